// The page of the server: what is typed is translated.

import { ask, Trouble } from "./api.js";
import { drawCode } from "./code.js";
import { drawDocuments, setUpDocuments } from "./documents.js";
import { at, fixed, language, make, speak, t, table } from "./elements.js";
import { download } from "./files.js";
import { drawGlossary, glossaryLines, offerTerm, setUpGlossary, termsFor } from "./glossary.js";
import * as languages from "./languages.js";
import { find, translateLines, wishFor, withoutGlossary } from "./lines.js";
import { drawNotes } from "./notes.js";
import { drawSource, drawTarget, percent, say, setUpPaper, showProbabilities, shown, translated } from "./paper.js";
import { drawPast, keepPast, setUpPast } from "./past.js";
import { drawReading } from "./reading.js";
import { setUpSettings } from "./settings.js";
import { carryOver, drawSteps, sentencesOf, setUpSteering } from "./steering.js";
import { keep, read } from "./storage.js";
import { openTab } from "./tabs.js";
import { Terms } from "./terms.js";
import { againButton, clearTrouble, showTrouble } from "./trouble.js";
import { drawWithout, setUpWithout } from "./without.js";
import { drawWriting, setUpWriting } from "./write.js";

const PAUSE = 300; // milliseconds after the last key
const QUIET = 1200; // milliseconds without a key before a translation is announced
const READ_OUT = 200; // characters that are read out at most
const LONG = 600; // characters from which on the letters are smaller
const NO_TERMS = new Terms([]); // for two models, one after the other
const SESSION = "session"; // what is kept until the tab is closed

const source = at("#source");
let limits = { max_texts: 1, max_characters: Infinity, max_alternatives: 0 };
let turn = 0; // of the latest request: answers to older ones are not shown
let controller = new AbortController();
let waiting = 0;
let announcing = 0;
let last = null; // the text and the wish of what is shown
let others = null; // the answer with other translations
let inside = null; // the module that looks inside, once a panel has been opened
let attempts = 0; // to load it: many browsers remember that an address could not be loaded

// A character is what the server counts: a code point.
const lengthOf = (text) => [...text].length;
const linesOf = (text) => text.toWellFormed().split("\n");
const takesTerms = (from) => languages.find(from, languages.target())?.glossary !== false;
const commonWords = (from) => {
  const serves = ({ source, target }) => source === from && target === languages.target();
  return limits.models.find(({ pairs }) => pairs.some(serves))?.common ?? [];
};
function wishFrom(source) {
  const target = languages.target();
  return { source, target, terms: takesTerms(source) ? termsFor(source, target) : NO_TERMS };
}

function translateAfter(pause) {
  clearTimeout(waiting);
  waiting = setTimeout(translateNow, pause);
}

async function translateNow() {
  clearTimeout(waiting);
  if (!limits.pairs) return; // the start translates what stands in the box then
  const mine = ++turn;
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  clearTrouble();
  const text = source.value;
  const lines = linesOf(text);
  keep("text", text, SESSION);
  at("#desk").classList.toggle("working", Boolean(text.trim()));
  let wish = last?.wish;
  try {
    if (!text.trim()) return finish([], null);
    if (lengthOf(text) > limits.max_characters) {
      throw new Trouble("length", t("too-long", lengthOf(text).toLocaleString(language), limits.max_characters.toLocaleString(language)));
    }
    wish = wishFrom(await languages.sourceOf(text, signal));
    await translateLines(lines, wish, limits.max_texts, signal, () => mine === turn && settle(lines, wish));
    if (mine === turn) finish(lines, wish);
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    if (wish) settle(lines, wish); // what stays of another text is marked
    showTrouble(error, start);
  } finally {
    if (mine === turn) at("#desk").classList.remove("working");
  }
}

// Shows what is translated so far.
function settle(lines, wish) {
  last = wish && { lines, wish };
  const before = shown();
  const found = lines.map((line) => wish && find(line, wish));
  const typed = linesOf(source.value);
  drawSource(typed, typed.map((line) => wish && find(line, wish)));
  drawTarget(lines, found, languages.pair());
  if (!wish) languages.forget();
  Object.assign(at("#output"), { lang: languages.target(), dir: languages.directionOf(languages.target()) });
  source.lang = at("#mirror").lang = languages.source() ?? "";
  drawState();
  drawSteering();
  carryOver(before);
}

function finish(lines, wish) {
  settle(lines, wish);
  clearTimeout(announcing);
  if (wish) announcing = setTimeout(announce, QUIET);
  if (wish) weighTerms(wish).catch(() => {}); // the next translation asks again
  if (at("#alternatives").open) showAlternatives();
  inside?.lookInside();
}

// Asks what the lines with terms would be without them: a term may cost a sentence its grammar.
async function weighTerms(wish) {
  const { signal } = controller;
  const lines = shown().filter(({ translation }) => translation?.terms_met.length).map(({ text }) => text);
  await translateLines(lines, withoutGlossary(wish), limits.max_texts, signal, () => {});
  if (lines.length && !signal.aborted) drawState();
}

// Everything that depends on what is shown and on the language of the page.
function drawState() {
  const same = last && last.wish.source === last.wish.target;
  const lacking = languages.lackingNames();
  const general = [lacking && t("link.lacks", lacking), same && t("already", languages.nameOf(last.wish.target))];
  drawNotes(shown(), general.filter(Boolean));
  const text = source.value;
  at("#hint").hidden = Boolean(text);
  at("#desk").classList.toggle("long", text.length > LONG);
  at("#source").placeholder = t("placeholder");
  const characters = lengthOf(text);
  at("#count").textContent = text ? t("count", characters.toLocaleString(language), limits.max_characters.toLocaleString(language)) : "";
  at("#count").classList.toggle("warning", characters > limits.max_characters);
  at("#clear").hidden = !text;
  const stale = last && last.lines.join("\n") !== linesOf(text).join("\n");
  const missing = !last || stale || shown().some(({ text: line, translation }) => line.trim() && !translation);
  for (const id of ["copy", "save", "suggest"]) at(`#${id}`).disabled = missing;
  const pair = languages.pair();
  at("#measured").textContent = last && pair?.aligned_by ? inWordsOf(pair.aligned_by) : "";
  at("#probabilities-label").hidden = !pair?.word_scores;
  at("#probabilities-label span").textContent = t(pair?.confidence ? "confidences" : "probabilities");
  at("#probabilities").title = legend();
  drawReading();
  const from = languages.likely();
  if (limits.pairs) drawGlossary(from, languages.target(), takesTerms(from), commonWords(from));
  drawCode(() => ({ ...asked(text), ...languages.chosen(), ...glossaryPart(text) }));
}

// What the numbers of words mean.
const legend = () => t(languages.pair()?.confidence ? "confidences.note" : "probabilities.note");

function redraw() {
  if (!last) return;
  settle(last.lines, last.wish);
  inside?.lookInside();
}

function drawSteering() {
  drawSteps();
  drawWriting();
  drawWithout();
}

// The texts of the request as code: lines, or sentences where words of a line were chosen, as each is gone on from.
function asked(text) {
  if (!text) return { texts: ["…"] };
  const parts = shown().flatMap(({ text: line, translation }) => (translation?.steered ? sentencesOf(translation) : [[line, ""]]));
  const [texts, prefix] = [0, 1].map((which) => parts.map((part) => part[which]));
  return prefix.some(Boolean) ? { texts, prefix } : { texts: linesOf(text) };
}

// Which layer and head align words, and how that was measured.
function inWordsOf({ layer, head, agreement, links }) {
  const which = t("measured", head ? t("measured.head", layer, head) : t("measured.layer", layer));
  if (agreement === null) return `${which} ${t("measured.not")}`;
  return `${which} ${t("measured.agreement", percent(agreement), links.toLocaleString(language))}`;
}

function glossaryPart(text) {
  const { glossary } = wishFor(text, wishFrom(languages.likely()));
  return glossary.length ? { glossary } : {};
}

function documentWish() {
  const from = languages.likely();
  return { ...languages.chosen(), glossary: takesTerms(from) ? glossaryLines(from, languages.target()) : [] };
}

function announce() {
  if (!last) return;
  const text = translated();
  const notes = [...at("#notes").children].map((note) => note.textContent).join(" ");
  const said = text.length > READ_OUT ? t("announce.long", last.lines.length) : text;
  const { lines, wish: { source, target } } = last;
  if (source !== target) keepPast({ source, target, text: lines.join("\n"), translation: text });
  at("#announcement").textContent = `${t("announce", languages.nameOf(target))} ${said} ${notes}`;
}

async function showAlternatives() {
  others = null;
  if (!last) return drawAlternatives();
  const { lines, wish } = last;
  const text = lines.join("\n");
  const body = { texts: [text], ...wishFor(text, wish), alternatives: limits.max_alternatives };
  try {
    const { translations } = await ask("api/v1/translate", { body, signal: controller.signal });
    others = translations[0];
    drawAlternatives();
  } catch (error) {
    if (error.name !== "AbortError") at("#alternative-list").replaceChildren(make("p", { class: "warning" }, error.message || t(error.kind), " ", againButton(showAlternatives)));
  }
}

function drawAlternatives() {
  const list = at("#alternative-list");
  if (!others) return list.replaceChildren();
  const { text: best, score, alternatives, alternative_scores: scores } = others;
  const row = (text, score, number) => [
    make("td", {}, String(number + 1)),
    make("td", { dir: "auto", lang: languages.target() }, make("span", {}, text)),
    make("td", {}, fixed(score)),
    make("td", {}, make("button", { type: "button", class: "link", onclick: (event) => copy(text, event.target) }, t("copy"))),
  ];
  const head = ["alternatives.rank", "translation", "alternatives.score", "copy"].map((key) => make("th", { scope: "col" }, t(key)));
  const rows = [best, ...alternatives].map((text, number) => row(text, [score, ...scores][number], number));
  list.replaceChildren(alternatives.length ? table(head, rows) : make("p", {}, t("alternatives.none")));
}

async function copy(text, button) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copyWithoutClipboard(text);
  button.textContent = t("copied");
  setTimeout(() => (button.textContent = t(button.dataset.t ?? "copy")), 1500);
}

// Browsers have no clipboard for pages that come by HTTP from another machine.
function copyWithoutClipboard(text) {
  const box = make("textarea", { class: "unseen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

function remember() {
  const chosen = new URLSearchParams(languages.chosen());
  history.replaceState(null, "", `#${chosen}`);
}

function chooseLanguages(changes) {
  languages.choose(changes);
  remember();
  translateNow();
}

function swap() {
  const from = languages.source();
  const text = translated();
  languages.choose({ source: languages.target(), target: from });
  if (text) source.value = text;
  chooseLanguages({});
  source.focus();
}

function drawKeys() {
  const keys = t("key-list").split("\n").map((line) => line.split("\t"));
  at("#key-list").replaceChildren(...keys.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)]));
}

function speakIn(chosen) {
  speak(chosen);
  for (const element of document.querySelectorAll("button[data-label]")) element.title = t(element.dataset.label);
  at("#write").title = t("write.help");
  drawKeys();
  drawDocuments();
  drawPast();
  say();
  if (limits.pairs) languages.draw();
  drawState();
  drawSteering();
  if (others) drawAlternatives();
  inside?.drawInside();
}

function readAddress() {
  const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  languages.serve(limits, wanted);
  if (wanted.text === undefined) return;
  source.value = wanted.text;
  remember(); // the text does not stay in the address
}

// Most people never look inside, so what draws it is not loaded with the page.
async function openInside({ target }) {
  if (inside || !target.open) return;
  attempts += 1;
  try {
    inside = await import(`./inside.js?${attempts}`);
  } catch {
    at("#inside-status").replaceChildren(t("offline"), " ", againButton(() => openInside({ target })));
  }
}

async function takeCorrections() {
  const { setUpSuggestion } = await import("./suggestion.js");
  setUpSuggestion(() => last, redraw, copy, translateNow);
}

// Learns what is served, then translates what stands in the box.
async function start() {
  if (!limits.pairs) {
    try {
      limits = await ask("api/v1/models", { method: "GET" });
    } catch (error) {
      return showTrouble(error, start);
    }
    readAddress();
    at("#inside").hidden = !limits.max_inspect_tokens;
    setUpDocuments(limits.document_formats ?? [], documentWish);
    const settings = await ask("frontend/settings", { method: "GET" }).catch(() => ({}));
    if (settings.suggestions) await takeCorrections().catch(() => {}); // a reload loads it again
    speakIn(language);
  }
  translateNow();
}

source.addEventListener("input", (event) => {
  drawSource(linesOf(source.value), last ? linesOf(source.value).map((line) => find(line, last.wish)) : []);
  drawState();
  clearTimeout(announcing);
  translateAfter(event.inputType === "insertFromPaste" || event.inputType === "insertFromDrop" ? 0 : PAUSE);
});
source.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translateNow();
});
at("#source-language").addEventListener("change", (event) => chooseLanguages({ source: event.target.value }));
at("#target-language").addEventListener("change", (event) => chooseLanguages({ target: event.target.value }));
at("#swap").addEventListener("click", swap);
at("#clear").addEventListener("click", () => {
  source.focus();
  source.select();
  document.execCommand("delete"); // unlike a new value, Ctrl+Z takes it back
  translateNow();
});
at("#copy").addEventListener("click", (event) => copy(translated(), event.target));
at("#save").addEventListener("click", () => download("translation.txt", "text/plain", translated()));
at("#copy-code").addEventListener("click", (event) => copy(at("#code-text").textContent, event.target));
at("#copy-link").addEventListener("click", (event) => {
  const link = new URL(location.href);
  link.hash = new URLSearchParams({ ...languages.chosen(), text: source.value });
  copy(link.href, event.target);
});
at("#probabilities").addEventListener("change", ({ target: { checked } }) => {
  showProbabilities(checked);
  say(() => (checked ? legend() : ""));
});
at("#alternatives").addEventListener("toggle", () => at("#alternatives").open && showAlternatives());
at("#inside").addEventListener("toggle", openInside, true);
at("#code").addEventListener("toggle", drawState);
at("#code").addEventListener("change", drawState);
at("#show-keys").addEventListener("click", () => at("#keys").showModal());
addEventListener("keydown", (event) => {
  if (event.key === "?" && !event.target.closest("input, textarea, select")) at("#keys").showModal();
});
at("#door").open = read("door") === "open";
at("#door").addEventListener("toggle", () => keep("door", at("#door").open ? "open" : ""));
addEventListener("pagehide", () => keep("text", source.value, SESSION));
addEventListener("hashchange", () => {
  if (!limits.pairs) return;
  readAddress();
  translateNow();
});

setUpPaper(() => {
  inside?.lookInside();
  offerTerm();
});
setUpSteering(redraw, languages.pair);
setUpWriting();
setUpWithout(languages.pair);
setUpGlossary(() => translateAfter(0));
setUpPast(({ text, translation, ...pair }) => {
  openTab("tab-text");
  source.value = text;
  chooseLanguages(pair);
  source.focus();
});
setUpSettings(speakIn, () => inside?.drawInside());
source.value ||= read("text", SESSION) ?? ""; // as it was before a reload
start();
