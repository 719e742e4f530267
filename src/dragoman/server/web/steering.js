// Choosing another word: the words that may stand in a place, the sentence that follows from each, and the way back.

import { ask } from "./api.js";
import { at, make, t } from "./elements.js";
import { cut, examine, find, nameOf, steer } from "./lines.js";
import { goToWord, LEAST, percent, say, shown } from "./paper.js";

let redraw = () => {};
let pairNow = () => null;
let steps = []; // `place`, its sentence, what was `chosen`, the line's translation `before` and `after`, and what to call it
let controller = new AbortController();

const lettersOf = (text) => [...text]; // as the server counts them
export const bare = (word) => word.replace(/(?<=[^\p{P}\p{S}])[\p{P}\p{S}]+$/u, "");

// A sentence of a line of the translation: its `text` in both languages, what was fixed of it, and where it is.
export function sentenceAt(place) {
  const { translation } = shown()[place.line] ?? {};
  const segment = translation?.segments?.[place.sentence];
  if (!segment) return null;
  const [source, target] = [cut(translation.line, segment.source), cut(translation.text, segment.target)];
  return { translation, source, target, fixed: translation.fixed?.[place.sentence] ?? 0 };
}

// The sentences of a translation that was steered: each text with what was fixed of its translation, as a prefix.
export const sentencesOf = ({ line, text, segments, fixed }) =>
  segments.map(({ source, target: [start, end] }, number) => {
    const kept = cut(text, [start, start + (fixed[number] ?? 0)]);
    const space = kept && cut(text, [start + fixed[number], end]).startsWith(" "); // without it, the last word may go on
    return [cut(line, source), space ? `${kept} ` : kept];
  });

// Puts another sentence in the place of one. kept: how many of its letters were chosen or written.
export function replaceSentence(place, chosen, called) {
  const { text, kept } = chosen;
  const { translation, source: sentence } = sentenceAt(place);
  const alone = translation.segments.length === 1;
  const joined = (name) => [...new Set([...(alone ? [] : translation[name]), ...(chosen[name] ?? [])])];
  const [start, end] = translation.segments[place.sentence].target;
  const added = lettersOf(text).length - (end - start);
  const moved = ({ source, target, confidence }, number) => {
    const first = number > place.sentence ? target[0] + added : target[0];
    const sure = number === place.sentence ? null : confidence; // nobody knows how good the reader's words are
    return { source, target: number < place.sentence ? target : [first, target[1] + added], confidence: sure };
  };
  const after = {
    ...translation,
    text: cut(translation.text, [0, start]) + text + cut(translation.text, [end]),
    segments: translation.segments.map(moved),
    flags: joined("flags"),
    terms_met: joined("terms_met"),
    terms_missed: joined("terms_missed"),
    fixed: { ...translation.fixed, [place.sentence]: kept },
    examined: undefined,
    steered: true,
  };
  steer(after, after);
  steps.push({ place, sentence, chosen, before: translation, after, called });
  redraw();
}

// Takes along what was chosen of a sentence that stands in a changed line, too, or that another glossary leaves as it
// was. before: what was shown.
export function carryOver(before) {
  shown().forEach(({ translation }, line) => {
    const old = before[line]?.translation;
    if (!old?.steered || !translation || translation.steered) return;
    const [was, is] = [old, translation].map((one) => nameOf(one.line, one.wish));
    if (was === is) return; // it was undone
    const other = old.line === translation.line;
    for (const step of steps.filter(({ after }) => nameOf(after.line, after.wish) === was)) {
      const replaced = cut(step.before.text, step.before.segments[step.place.sentence].target);
      const number = translation.segments.findIndex((_, sentence) => {
        const { source, target } = sentenceAt({ line, sentence });
        return source === step.sentence && (!other || target === replaced);
      });
      if (number >= 0) replaceSentence({ line, sentence: number }, step.chosen, step.called);
    }
  });
}

// The steps that belong to what is shown.
const visible = () => steps.filter(({ after }) => shown().some(({ translation }) => translation?.steered && find(after.line, after.wish) === translation));

// Whether what a step has fixed is still there: whoever writes a sentence anew may have written something else.
function stands({ place, after, chosen }) {
  const now = find(after.line, after.wish);
  const [text, fixed] = [cut(now.text, now.segments[place.sentence].target), now.fixed[place.sentence]];
  return chosen.kept <= fixed && text.startsWith(cut(chosen.text, [0, chosen.kept]));
}

// Takes back the steps from one on.
function undoFrom(step) {
  const gone = visible().slice(visible().indexOf(step)).reverse();
  for (const { before } of gone) steer(before, before.steered ? before : null);
  steps = steps.filter((one) => !gone.includes(one));
  redraw();
  const line = shown().findIndex(({ translation }) => translation?.line === step.before.line);
  const now = sentenceAt({ line, sentence: step.place.sentence });
  at("#announcement").textContent = now ? t("steps.undone", now.target) : "";
  if (document.activeElement === at("#undo") && !at("#steps").hidden) return;
  const first = shown()[line]?.sentences[step.place.sentence]?.querySelector(".word");
  goToWord(line, step.place.word ?? first?.place.word);
}

export function undo() {
  const last = visible().at(-1);
  if (last) undoFrom(last);
  return Boolean(last);
}

// Draws what was chosen so far, and marks it in the translation.
export function drawSteps() {
  const chosen = visible();
  at("#steps").hidden = !chosen.length;
  const back = (text, onclick, current) => make("li", {}, make("button", { type: "button", onclick, "aria-current": current ? "step" : null }, text));
  const crumbs = chosen.flatMap((step, number) =>
    stands(step) ? [back(step.called(), () => chosen[number + 1] && undoFrom(chosen[number + 1]), number === chosen.length - 1)] : [],
  );
  at("#steps ol").replaceChildren(back(t("steps.first"), () => undoFrom(chosen[0])), ...crumbs);
  for (const { translation, sentences } of shown()) {
    for (const [number, kept] of Object.entries(translation?.fixed ?? {})) markFixed(sentences[number], kept);
  }
}

function markFixed(sentence, kept) {
  let position = 0;
  for (const node of sentence?.childNodes ?? []) {
    if (node.classList) node.classList.toggle("fixed", position < kept);
    position += lettersOf(node.textContent).length;
  }
}

// The part of a sentence before one of its words.
function textBefore(word) {
  let text = "";
  for (const node of word.parentNode.childNodes) {
    if (node === word) return text;
    text += node.textContent;
  }
}

async function offer(word) {
  const { place } = word;
  const sentence = sentenceAt(place);
  if (!sentence || sentence.translation.wish.source === sentence.translation.wish.target) return;
  if (!sentence.translation.examined) say(() => t("choices.working"));
  const known = await examine(sentence.translation, pairNow());
  if (!word.isConnected || !getSelection().isCollapsed) return; // a second click has selected the word
  if (known.others[place.word] < LEAST) return; // what is said of the word says why
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const own = bare(word.firstChild.textContent);
  const score = known.words.filter(([label]) => label)[place.word]?.[1];
  const title = score === undefined ? t("choices.title", own) : t("choices.title-with", own, percent(Math.exp(score)));
  const status = make("p", { role: "status" }, t("choices.working"));
  const list = make("ol", {});
  const close = make("button", { type: "button", class: "link", onclick: () => at("#choices").hidePopover() }, t("close"));
  at("#choices").replaceChildren(make("h2", { id: "choices-title" }, title), status, list, close);
  openBeside(word);
  const prefix = textBefore(word);
  try {
    const body = { text: sentence.source, ...sentence.translation.wish, prefix };
    const { words } = await ask("api/v1/alternatives", { body, signal });
    if (!word.isConnected) return at("#choices").hidePopover();
    const others = words.filter(({ word: other }) => other !== own);
    const likely = others.length && others[0].probability >= LEAST; // what it was marked by is the most that one may have
    status.textContent = likely ? t("choices.note") : others.length ? t("choices.few", percent(LEAST)) : t("choices.none");
    list.replaceChildren(...others.map((one) => make("li", {}, choice(one, body.target, () => choose(word, own, prefix, one)))));
    at("button", list)?.focus();
  } catch (error) {
    if (error.name !== "AbortError") status.textContent = error.message || t(error.kind);
  }
}

function choice({ word, probability, text }, lang, onclick) {
  return make(
    "button",
    { type: "button", onclick },
    make("b", { lang, dir: "auto" }, word),
    " ",
    make("span", { class: "probability" }, percent(probability)),
    " ",
    make("span", { class: "follows", lang, dir: "auto" }, text),
  );
}

function choose(word, own, prefix, one) {
  const { place } = word;
  at("#choices").hidePopover();
  const kept = lettersOf(prefix + one.word).length;
  replaceSentence(place, { ...one, kept }, () => t("steps.word", own, one.word));
  goToWord(place.line, place.word);
  at("#announcement").textContent = t("choices.chosen", one.word, one.text);
}

function openBeside(word) {
  const { left, bottom } = word.getBoundingClientRect();
  const box = at("#choices");
  box.showPopover();
  const room = document.documentElement.clientWidth - box.offsetWidth - 8;
  box.style.left = `${Math.max(8, Math.min(left, room)) + scrollX}px`;
  box.style.top = `${bottom + 4 + scrollY}px`;
}

function moveInList(event) {
  const buttons = [...at("#choices").querySelectorAll("button")];
  const here = buttons.indexOf(document.activeElement);
  const there = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (there === undefined) return;
  event.preventDefault();
  buttons[there]?.focus();
}

// redrawn: draws what is shown again; pair: returns what can be asked for of the languages.
export function setUpSteering(redrawn, pair) {
  [redraw, pairNow] = [redrawn, pair];
  at("#output").addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    if (word && getSelection().isCollapsed) offer(word);
  });
  at("#output").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.place) offer(event.target);
  });
  at("#choices").addEventListener("keydown", moveInList);
  at("#choices").addEventListener("toggle", (event) => event.newState === "closed" && controller.abort());
  at("#undo").addEventListener("click", undo);
  addEventListener("keydown", (event) => {
    if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    if (event.target.closest?.("input, textarea")) return;
    const own = event.target.closest?.("#output"); // from there, the browser would undo what was typed into the text
    if (undo() || own) event.preventDefault();
  });
}
