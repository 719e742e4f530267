// What needs a look in a translation, in words.

import { at, make, t } from "./elements.js";
import { goToTerm } from "./glossary.js";
import { withoutTerms } from "./lines.js";
import { goToLine } from "./paper.js";

// By how much terms may lower the score of a line, a log-probability. Where they lower it by more, a particle or a word
// beside them is mostly lost: so it was measured (docs/page.md).
const COSTLY = 4;

const PLAIN = ["empty", "loop", "too long", "too short", "copied", "wrong script", "unfinished"];
const NAMED = { "lost ": "lost", "invented ": "invented", "no ": "no", "has ": "has" };

export function inWords(flag) {
  if (PLAIN.includes(flag)) return t(`flag.${flag}`);
  const found = Object.keys(NAMED).find((start) => flag.startsWith(start));
  return found ? t(`flag.${NAMED[found]}`, flag.slice(found.length)) : flag;
}

// A term and its translation: the one that is there, of those that the glossary has.
function inTarget(term, { wish, text }) {
  const line = wish.glossary?.map((one) => one.split("\t")).find(([source]) => source === term);
  if (!line) return term;
  const targets = line[1].split("|").map((target) => target.trim());
  const there = targets.filter((target) => text.toLowerCase().includes(target.toLowerCase()));
  return `${term} → ${(there.length ? there : targets).join(" | ")}`;
}

// A note that leads to its line, and to the glossary if it is about a term.
function warning(line, oneOfMany, text, term) {
  const look = make("button", { type: "button", onclick: () => goToLine(line) }, oneOfMany ? t("line", line + 1) : t("look"));
  const said = oneOfMany ? [look, " ", text] : [text, " ", look];
  const mend = term ? [" ", make("button", { type: "button", onclick: () => goToTerm(term) }, t("glossary"))] : [];
  return make("li", { class: "warning" }, ...said, ...mend);
}

// The translation without the terms, where they make it much less probable.
function dearlyPaid(translation) {
  const plain = translation.terms_met.length && !translation.steered && withoutTerms(translation);
  return plain && plain.score - translation.score > COSTLY ? plain : null;
}

// lines: as `shown` gives them.
export function drawNotes(lines, alreadyIn) {
  const notes = alreadyIn ? [make("li", {}, alreadyIn)] : [];
  const translations = lines.filter(({ translation }) => translation);
  lines.forEach(({ translation }, line) => {
    for (const flag of translation?.flags ?? []) {
      const term = flag.startsWith("no ") && flag.slice(3);
      notes.push(warning(line, translations.length > 1, inWords(flag), term));
    }
    const plain = translation && dearlyPaid(translation);
    if (!plain) return;
    const terms = translation.terms_met.map((term) => inTarget(term, translation)).join(", ");
    const note = warning(line, translations.length > 1, t("terms-unlikely", terms), translation.terms_met[0]);
    note.append(make("p", { class: "note" }, `${t("terms-without")} `, make("span", { lang: translation.wish.target, dir: "auto" }, plain.text)));
    notes.push(note);
  });
  lines.forEach(({ translation }, line) => {
    if (!translation?.parts) return;
    const where = translations.length > 1 ? `${t("line", line + 1)}: ` : "";
    notes.push(make("li", {}, where, t("parts", translation.parts)));
  });
  const met = new Set(translations.flatMap(({ translation }) => translation.terms_met.map((term) => inTarget(term, translation))));
  if (met.size) notes.push(make("li", {}, t("terms-met", [...met].join(", "))));
  at("#notes").replaceChildren(...notes);
}
