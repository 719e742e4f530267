// The text and its translation, line by line: sentences and words that belong together are shaded together.

import { at, language, make, t } from "./elements.js";
import { cut, examine } from "./lines.js";

export const LEAST = 0.05; // of the likeliest other word, below which no other one is offered
const DWELL = 60; // milliseconds over a word before the server is asked what it belongs to

// Of each side a list of lines: `text`, `translation`, `element`, and its `sentences` and `words` as elements. The source
// lies unseen behind the box where it is typed, and has its shades.
const sides = { source: [], target: [] };
let pair = null; // what can be asked for of the languages
let looked = null; // side, line, sentence and word that is looked at
let pinned = false;
let withProbabilities = false;
let focused = { side: "target", line: 0, sentence: 0, word: null }; // the place that has the focus, or had it last
let onFocus = () => {};

const labelOf = (word) => word.firstChild.textContent; // without its probability
const other = (side) => (side === "source" ? "target" : "source");

// Draws the lines of the source as they are typed, with the sentences of those whose translation is known.
export function drawSource(lines, translations) {
  drawSide("source", lines, translations);
}

// Draws translations. Without one, what stood there stays until there is one.
export function drawTarget(lines, translations, languages) {
  pair = languages;
  drawSide("target", lines, translations);
  const words = at("#output").querySelectorAll("[tabindex='0']");
  if (!words.length) at("#output .word")?.setAttribute("tabindex", 0);
  for (const word of [...words].slice(1)) word.removeAttribute("tabindex");
  if (withProbabilities) showProbabilities(true);
}

// Only the lines that have changed.
function drawSide(side, lines, translations) {
  const root = at(side === "source" ? "#mirror" : "#output");
  const before = sides[side];
  release();
  sides[side] = lines.map((text, index) => {
    const translation = translations[index];
    const old = before[index];
    if (old && old.text === text && old.translation === translation) return old;
    if (old && side === "target" && !translation && text.trim()) {
      old.element.classList.add("stale");
      return { ...old, text, translation: null };
    }
    return makeLine(side, text, translation, index);
  });
  sides[side].forEach(({ element }, index) => {
    const there = root.children[index];
    if (!there) root.append(element);
    else if (there !== element) there.replaceWith(element);
  });
  while (root.children.length > lines.length) root.lastChild.remove();
}

function makeLine(side, text, translation, line) {
  const element = make("div", { class: "line", dir: side === "source" ? "auto" : null }); // the box has that of its language
  const made = { text, translation, element, sentences: [], words: [] };
  const letters = [...(side === "source" ? text : copyOrTranslation(text, translation))]; // the server counts these
  let done = 0;
  const gap = (end) => {
    if (end > done) element.append(letters.slice(done, end).join(""));
    done = end;
  };
  for (const segment of translation?.segments ?? []) {
    const [start, end] = segment[side];
    gap(start);
    element.append(makeSentence(side, letters.slice(start, end).join(""), made, line));
    done = end;
  }
  if (translation && !made.sentences.length) {
    element.append(makeSentence(side, letters.join(""), made, line));
    done = letters.length;
  }
  gap(letters.length);
  if (!letters.length) element.append(make("br", {}));
  return made;
}

function makeSentence(side, text, made, line) {
  const sentence = make("span", { class: "sentence" });
  const place = { side, line, sentence: made.sentences.length };
  for (const part of text.split(/(\s+)/)) {
    if (!part.trim()) {
      sentence.append(part);
      continue;
    }
    const word = make("span", { class: "word" }, part);
    word.place = { ...place, word: made.words.length };
    made.words.push(word);
    sentence.append(word);
  }
  sentence.place = { ...place, word: null };
  made.sentences.push(sentence);
  return sentence;
}

// The sentence that has the focus, or else the first one: its `text`, its `translation` and the `wish`. null: there is none.
export function focusedSentence() {
  const of = ({ translation } = {}) => (translation?.segments?.length ? translation : null);
  const translation = of(sides.target[focused.line]) ?? sides.target.map(of).find(Boolean);
  if (!translation) return null;
  const segment = translation.segments[translation === of(sides.target[focused.line]) ? focused.sentence : 0];
  const { source, target } = segment ?? translation.segments[0];
  return { text: cut(translation.line, source), translation: cut(translation.text, target), wish: translation.wish };
}

// The word that has the focus, or had it last: its `side`, its `label`, and how many words of its sentence `before` it
// have the same one; null: none.
export function focusedWord() {
  const { side, line, word } = focused;
  const element = sides[side][line]?.words[word];
  if (!element) return null;
  const words = [...element.parentNode.querySelectorAll(".word")];
  const label = labelOf(element);
  const same = words.filter((one) => labelOf(one) === label);
  return { side, label, before: same.indexOf(element) };
}

// The word that has the focus, or had it last, as `element`, and those that belong to it, by side; null: none.
export async function focusedLinks() {
  const place = focused;
  const { side, line, word } = place;
  const [here, there] = [sides[side][line], sides[other(side)][line]];
  const element = here?.translation && here.words[word];
  if (!element || here.translation !== there?.translation) return null;
  const { alignment } = await examine(here.translation, pair);
  if (place !== focused) return null;
  return { element, [side]: labelOf(element), [other(side)]: linkedWith(place, there, alignment).map(labelOf).join(" ") };
}

function attend(place) {
  if (!place || place === focused) return;
  focused = place;
  at(".said").classList.remove("elsewhere");
  onFocus();
}

// Says below the text what `said` returns; without it, what was said last, in the language of the page.

let saying = () => "";

export function say(said = saying) {
  saying = said;
  at("#readout").textContent = said();
}

// Shading.

let shaded = [];

function shade(element, name) {
  if (!element) return;
  element.classList.add(name);
  shaded.push(element);
}

function clear() {
  for (const element of shaded) element.classList.remove("looked", "linked");
  shaded = [];
}

// Whether a word is another one than the one that the offers below the text are about.
const elsewhere = (place) => Boolean(place) && !at("#always").hidden && !["side", "line", "word"].every((part) => place[part] === focused[part]);

// What was said stays where it is: without it, what lies below would move away from under the pointer. It goes where
// it is about another word than what is offered beside it, which keeps its place.
function leave() {
  if (elsewhere(looked)) say(() => "");
  pinned = false;
  looked = null;
  clear();
  at("#output").classList.remove("pinned");
  at(".said").classList.remove("elsewhere");
}

function release() {
  leave();
  say(() => "");
}

let dwelling = 0;

function look(place) {
  if (pinned || (place && looked === place)) return;
  if (!place) return leave();
  // Where a line is copied, or typed anew, the index leads to another line, or to none.
  const here = sides[place.side][place.line];
  const there = sides[other(place.side)][place.line];
  if (!here?.translation || here.translation !== there?.translation) return release();
  looked = place;
  at(".said").classList.toggle("elsewhere", elsewhere(place));
  clear();
  shade(here.sentences[place.sentence], "looked");
  shade(there.sentences[place.sentence], "looked");
  say(() => "");
  clearTimeout(dwelling);
  if (place.word !== null) dwelling = setTimeout(lookCloser, DWELL, place, here, there);
}

// Shades the words that belong to a word.
async function lookCloser(place, here, there) {
  if (looked === place) shade(here.words[place.word], "linked");
  const { alignment, others } = await examine(here.translation, pair);
  const own = place.side === "target";
  markChoices((own ? here : there).words, others);
  if (looked !== place || (pair?.alignment && !here.translation.examined)) return; // the server has not said
  const linked = linkedWith(place, there, alignment);
  for (const word of linked) shade(word, "linked");
  const words = linked.map(labelOf);
  const label = labelOf(here.words[place.word]);
  const inLinks = () => (words.length ? t(`linked.${place.side}`, label, words.join("”, “")) : t("linked.none", label));
  say(() => `${pair?.alignment ? inLinks() : ""} ${own ? inOtherWords(others[place.word]) : ""}`.trim());
  if (document.activeElement === here.words[place.word]) at("#announcement").textContent = at("#readout").textContent;
}

function linkedWith({ side, word }, there, alignment) {
  const own = side === "source" ? 0 : 1;
  return alignment.filter((link) => link[own] === word).map((link) => there.words[link[1 - own]]).filter(Boolean);
}

// Whether there are other words for a place. most: how probable the likeliest is at most.
function inOtherWords(most) {
  if (most === undefined) return "";
  return most < LEAST ? t("choices.unlikely", percent(LEAST)) : t("choices.likely");
}

export const percent = (part) => new Intl.NumberFormat(language, { style: "percent", maximumSignificantDigits: 2 }).format(part);

// The words for which others may be likely can be chosen anew.
function markChoices(words, others) {
  words.forEach((word, number) => {
    if (word.classList.contains("choice") || !(others[number] >= LEAST)) return;
    word.classList.add("choice");
    word.setAttribute("role", "button");
    word.setAttribute("aria-haspopup", "dialog");
  });
}

// attended: called when another word or sentence gets the focus.
export function setUpPaper(attended) {
  onFocus = attended;
  const [output, source] = [at("#output"), at("#source")];
  output.addEventListener("pointerover", (event) => look(event.target.closest(".word, .sentence")?.place));
  output.addEventListener("focusin", (event) => {
    look(event.target.place);
    attend(event.target.place);
  });
  output.addEventListener("pointerleave", () => pinned || leave());
  output.addEventListener("focusout", () => pinned || leave());
  output.addEventListener("click", (event) => {
    const { place } = event.target.closest(".word") ?? {};
    if (!place || !getSelection().isCollapsed) return;
    pin(place);
    focusOn(event.target.closest(".word"));
  });
  output.addEventListener("keydown", press);
  source.addEventListener("pointermove", (event) => {
    const under = document.elementsFromPoint(event.clientX, event.clientY);
    look(under.map((element) => element.closest("#mirror .word, #mirror .sentence")).find(Boolean)?.place);
  });
  source.addEventListener("pointerleave", () => pinned || leave());
  for (const moved of ["keyup", "click"]) source.addEventListener(moved, (event) => lookFromCaret(event, source));
  source.addEventListener("blur", () => pinned || leave());
}

function pin(place) {
  const same = pinned && looked?.line === place.line && looked.word === place.word;
  release();
  look(place);
  pinned = !same;
  at("#output").classList.toggle("pinned", pinned);
}

function lookFromCaret(event, source) {
  if (event.type === "keyup" && !/^(Arrow|Home|End|Page)/.test(event.key)) return;
  const place = placeAtCaret(source);
  if (place === undefined) return;
  attend(place);
  if (pinned) leave();
  look(place);
}

// The word that the caret is in, behind or before, else the sentence; null for none of them.
export function placeAtCaret(source) {
  const before = source.value.slice(0, source.selectionStart).split("\n");
  const line = before.length - 1;
  let column = before[line].length;
  const element = sides.source[line]?.element;
  if (!element) return undefined;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const under = () => walker.currentNode.parentElement.closest(".word, .sentence")?.place ?? null;
  while (walker.nextNode()) {
    const { length } = walker.currentNode;
    if (column < length || (column === length && under()?.word != null)) return under();
    if (column === length) return walker.nextNode() ? under() : null; // at the beginning of a word
    column -= length;
  }
  return undefined;
}

// One word can have the focus. The others have no tabindex at all: with -1, Chromium selects nothing from them on.
function focusOn(word) {
  for (const element of at("#output").querySelectorAll("[tabindex]")) element.removeAttribute("tabindex");
  word.tabIndex = 0;
  word.focus();
}

function press(event) {
  const words = sides.target.flatMap((line) => line.words);
  const here = words.indexOf(document.activeElement);
  if (event.key === "Escape") return release();
  if (here < 0) return; // in what is written along
  if (event.key === "Enter") {
    event.preventDefault();
    return pin(words[here].place);
  }
  const back = at("#output").matches(":dir(rtl)") ? "ArrowRight" : "ArrowLeft";
  const there = {
    [back]: here - 1,
    [back === "ArrowLeft" ? "ArrowRight" : "ArrowLeft"]: here + 1,
    ArrowUp: words.indexOf(firstOfSentence(words, here, -1)),
    ArrowDown: words.indexOf(firstOfSentence(words, here, 1)),
    Home: 0,
    End: words.length - 1,
  }[event.key];
  if (there === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (!words[there]) return;
  if (!pinned) focusOn(words[there]);
}

// The first word of the sentence before (-1) or after (1) that of a word.
function firstOfSentence(words, here, step) {
  const sentences = sides.target.flatMap((line) => line.sentences).filter((sentence) => at(".word", sentence));
  const number = sentences.indexOf(words[here]?.closest(".sentence"));
  return at(".word", sentences[number + step] ?? sentences[number] ?? document.createElement("p"));
}

// Puts the focus on the word of a line of the translation that had it last, or else on its first.
export const goToLine = (line) => goToWord(line, (focused.side === "target" && focused.line === line && focused.word) || 0);

// Puts the focus on a word of a line of the translation, or on one that belongs to a word of the text, else to its sentence.
export async function goToLinked(line, { side, sentence, word }) {
  const { translation, sentences } = sides.target[line];
  if (side === "target") return goToWord(line, word);
  const { alignment } = await examine(translation, pair);
  goToWord(line, alignment.find(([source]) => source === word)?.[1] ?? at(".word", sentences[sentence])?.place.word);
}

// Puts the focus on a word of a line of the translation.
export function goToWord(line, number) {
  const { words } = sides.target[line] ?? { words: [] };
  const word = words[number] ?? words.at(-1);
  if (word) focusOn(word);
}

// Probabilities.

// From which on a word has no number. A good word may be in another place than in a reference, so confidences are lower.
const sureFrom = () => (pair?.confidence ? 0.5 : 0.9);

// Of each word: that it stands in a good place, or its probability if the model cannot tell.
const valuesOf = ({ words, word_confidences: sure = [] }) =>
  pair?.confidence ? sure : words.filter(([label]) => label).map(([, score]) => Math.exp(score));

export async function showProbabilities(shown) {
  withProbabilities = shown;
  at("#output").classList.toggle("with-probabilities", shown);
  if (!shown) return;
  for (const { translation, words } of sides.target.filter((line) => line.translation)) {
    const values = valuesOf(await examine(translation, pair));
    if (values.length !== words.length) continue; // of scripts without spaces, or unknown
    words.forEach((word, number) => {
      const probability = values[number];
      word.style.setProperty("--doubt", (1 - probability).toFixed(2));
      word.classList.toggle("unsure", probability < sureFrom());
      if (probability < sureFrom()) word.dataset.probability = probability.toFixed(2).replace(/^0/, "");
    });
  }
}

// A line of the translation; blank ones stay as they are.
const copyOrTranslation = (text, translation) => translation?.text ?? (text.trim() ? "" : text);

export const translated = () =>
  sides.target.map(({ text, translation }) => copyOrTranslation(text, translation)).join("\n");
export const shown = () => sides.target;
export const sourceLines = () => sides.source;
