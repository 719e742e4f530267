// What needs a look in a translation, in words.

import { at, make, t } from "./elements.js";
import { goToTerm } from "./glossary.js";
import { cut, withoutTerms } from "./lines.js";
import { goToLine, goToLinked, percent } from "./paper.js";

// By how much terms may lower the score of a line, a log-probability. Where they lower it by more, a particle or a word
// beside them is mostly lost: so it was measured (docs/page.md).
const COSTLY = 4;

const NEAR = 0.75; // of the texts of a note, from 0 to 1

export const inPair = ({ text, translation, origin, date }) => [text, translation, origin, date];

const PLAIN = ["empty", "loop", "too long", "too short", "copied", "wrong script", "unfinished", "unsure"];
const NAMED = { "lost ": "source", "invented ": "target", "no ": "source", "has ": "target" }; // on which side it stands

const nameIn = (flag) => Object.keys(NAMED).find((start) => flag.startsWith(start));

export function inWords(flag) {
  if (PLAIN.includes(flag)) return t(`flag.${flag}`);
  const found = nameIn(flag);
  return found ? t(`flag.${found.trim()}`, flag.slice(found.length)) : flag;
}

// Where a name stands in a text: at the beginning of a word, whatever its case; -1: nowhere.
function placeOf(name, text, from = 0) {
  const place = text.toLowerCase().indexOf(name.toLowerCase(), from);
  return place > 0 && /[\p{L}\p{N}]/u.test(text[place - 1]) ? placeOf(name, text, place + 1) : place;
}

// Where what a flag names stands in its line: `side`, and by number each `sentence` and `word`. None where it names nothing.
function placesOf(flag, { line, text, segments }) {
  const start = nameIn(flag);
  const side = NAMED[start];
  const whole = side === "source" ? line : text;
  return (start ? (segments ?? []) : []).flatMap(({ [side]: [first, end] }, sentence) => {
    const within = cut(whole, [first, end]);
    const place = placeOf(flag.slice(start.length), within);
    const before = cut(whole, [0, first]) + within.slice(0, place);
    return place < 0 ? [] : [{ side, sentence, word: before.trimStart().split(/\s+/).length - 1 }];
  });
}

// Underlines the sentences that a flag is about: all of its line where that is not known.
function markFlagged({ translation, sentences }) {
  const flags = translation?.flags ?? [];
  const places = flags.map((flag) => placesOf(flag, translation));
  const all = places.some((found) => !found.length);
  const flagged = new Set(places.flat().map(({ sentence }) => sentence));
  sentences.forEach((one, number) => one.classList.toggle("flagged", all || flagged.has(number)));
}

// A term and its translation: the one that is there, of those that the glossary has.
function inTarget(term, { wish, text }) {
  const line = wish.glossary.map((one) => one.split("\t")).find(([source]) => source === term);
  if (!line) return term;
  const targets = line[1].split("|").map((target) => target.trim());
  const there = targets.filter((target) => text.toLowerCase().includes(target.toLowerCase()));
  return `${term} → ${(there.length ? there : targets).join(" | ")}`;
}

// A note that leads to what it is about, and to the glossary if that is a term.
function warning(line, oneOfMany, text, term, place) {
  const go = () => (place ? goToLinked(line, place) : goToLine(line));
  const look = make("button", { type: "button", onclick: go }, oneOfMany ? t("line", line + 1) : t("look"));
  const said = oneOfMany ? [look, " ", text] : [text, " ", look];
  const mend = term ? [" ", make("button", { type: "button", onclick: () => goToTerm(term) }, t("glossary"))] : [];
  return make("li", { class: "warning" }, ...said, ...mend);
}

// The translation without the terms, where they make it much less probable.
function dearlyPaid(translation) {
  const plain = translation.terms_met.length && !translation.steered && withoutTerms(translation);
  return plain && plain.score - translation.score > COSTLY ? plain : null;
}

// lines: as `shown` gives them; about: what is to say about all of them.
export function drawNotes(lines, about) {
  const notes = about.map((text) => make("li", {}, text));
  const translations = lines.filter(({ translation }) => translation);
  lines.forEach(markFlagged);
  lines.forEach(({ translation }, line) => {
    for (const flag of translation?.flags ?? []) {
      const term = flag.startsWith("no ") && flag.slice(3);
      notes.push(warning(line, translations.length > 1, inWords(flag), term, placesOf(flag, translation)[0]));
    }
    const plain = translation && dearlyPaid(translation);
    if (!plain) return;
    const terms = translation.terms_met.map((term) => inTarget(term, translation)).join(", ");
    const [term] = translation.terms_met;
    const note = warning(line, translations.length > 1, t("terms-unlikely", terms), term, placesOf(`no ${term}`, translation)[0]);
    note.append(make("p", { class: "note" }, `${t("terms-without")} `, make("span", { lang: translation.wish.target, dir: "auto" }, plain.text)));
    notes.push(note);
  });
  if (translations.some(({ translation }) => translation.terms_missed.length)) notes.push(make("li", { class: "note" }, t("terms-missed")));
  lines.forEach(({ translation }, line) => {
    const where = translations.length > 1 ? `${t("line", line + 1)}: ` : "";
    for (const pair of translation?.steered ? [] : (translation?.memory ?? [])) {
      const exact = pair.similarity === 1;
      if (exact || pair.similarity >= NEAR) notes.push(make("li", {}, where, t(exact ? "memory.exact" : "memory.near", ...inPair(pair), percent(pair.similarity))));
    }
    for (const name of ["parts", "corrected"]) if (translation?.[name]) notes.push(make("li", {}, where, t(name)));
  });
  const met = new Set(translations.flatMap(({ translation }) => translation.terms_met.map((term) => inTarget(term, translation))));
  if (met.size) notes.push(make("li", {}, t("terms-met", [...met].join(", "))));
  at("#notes").replaceChildren(...notes);
}
