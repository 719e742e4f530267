// Without this word: the sentence without a word of the text, translated, and what that does to the words of the
// translation. The model's attention is a guess at what belongs together; this is the check.

import { ask } from "./api.js";
import { at, fixed, language, make, t, table } from "./elements.js";
import { nameOf } from "./lines.js";
import { placeAtCaret, sourceLines } from "./paper.js";
import { bare, sentenceAt } from "./steering.js";

const MUCH = 0.1; // of a drop that is marked

let controller = new AbortController();
let chosen = null; // the word that the caret is in
let pairNow = () => null;
let shownFor = ""; // translation and language of the page

const nameShown = ({ line, wish, text }) => `${language}\n${text}\n${nameOf(line, wish)}`;
const elementOf = (place) => sourceLines()[place.line]?.words[place.word];

function drawButton() {
  const element = chosen && elementOf(chosen);
  const sentence = element && sentenceAt(chosen);
  const possible = sentence && at(".word + .word, .word ~ .word", element.parentNode); // another one is left
  at("#without").hidden = !possible;
  if (possible) at("#without").textContent = t("without.button", bare(element.textContent));
}

// The text of a sentence without a word; the marks behind it stay.
function textWithout(word) {
  const nodes = [...word.parentNode.childNodes];
  const here = nodes.indexOf(word);
  const text = (some) => some.map((node) => node.textContent).join("");
  const marks = word.textContent.slice(bare(word.textContent).length);
  const before = text(nodes.slice(0, here)).trimEnd() + marks;
  return (before + text(nodes.slice(here + 1))).trim();
}

async function show() {
  const element = elementOf(chosen);
  const sentence = element && sentenceAt(chosen);
  if (!sentence) return drawButton();
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const { wish } = sentence.translation;
  const shorter = textWithout(element);
  shownFor = nameShown(sentence.translation);
  at("#without-panel").hidden = false;
  at("#without-title").textContent = t("without.title", bare(element.textContent));
  at("#without-source").textContent = shorter;
  at("#without-target").textContent = t("working");
  at("#without-target").lang = wish.target;
  at("#without-words").replaceChildren();
  at("#without-title").focus();
  const both = { texts: [sentence.source, shorter], translations: [sentence.target, sentence.target] };
  const { source, target } = wish;
  const scored = pairNow()?.word_scores ? ask("api/v1/words", { body: { ...both, source, target }, signal }) : Promise.resolve(null);
  try {
    const [found, scores] = await Promise.all([ask("api/v1/translate", { body: { texts: [shorter], ...wish }, signal }), scored]);
    at("#without-target").textContent = found.translations[0].text;
    if (scores) drawDrops(scores.translations.map(({ words }) => words.filter(([word]) => word)), target);
  } catch (error) {
    if (error.name !== "AbortError") at("#without-target").textContent = error.message || t(error.kind);
  }
}

function drawDrops([whole, less], lang) {
  const head = ["without.word", "without.with", "without.less", "without.drop"].map((key) => make("th", { scope: "col" }, t(key)));
  const rows = whole.map(([word, log], number) => {
    const [before, after] = [Math.exp(log), Math.exp(less[number]?.[1] ?? log)];
    const drop = before - after;
    const texts = [`${fixed(100 * before, 1)}%`, `${fixed(100 * after, 1)}%`, fixed(100 * drop, 1)];
    const cells = texts.map((text) => make("td", {}, text));
    return [make("th", { scope: "row", lang, dir: "auto", class: drop >= MUCH ? "much" : null }, word), ...cells];
  });
  at("#without-words").replaceChildren(table(head, rows));
}

function close() {
  controller.abort();
  at("#without-panel").hidden = true;
}

// What is shown of a line that is no more goes with it.
export function drawWithout() {
  drawButton();
  const there = sourceLines().some(({ translation }) => translation && nameShown(translation) === shownFor);
  if (!there) close();
}

export function setUpWithout(pair) {
  pairNow = pair;
  const source = at("#source");
  for (const moved of ["keyup", "click"]) {
    source.addEventListener(moved, () => {
      chosen = placeAtCaret(source);
      drawButton();
    });
  }
  const forget = () => {
    chosen = null;
    drawButton();
  };
  source.addEventListener("input", forget);
  at("#output").addEventListener("focusin", forget);
  at("#without").addEventListener("click", show);
  at("#without-close").addEventListener("click", () => {
    close();
    source.focus();
  });
}
