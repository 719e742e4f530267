// What needs a look in a translation, in words.

import { at, make, t } from "./elements.js";
import { goToWord } from "./paper.js";

const PLAIN = ["empty", "loop", "too long", "too short", "copied", "wrong script", "unfinished"];
const NAMED = { "lost ": "lost", "invented ": "invented", "no ": "no", "has ": "has" };

export function inWords(flag) {
  if (PLAIN.includes(flag)) return t(`flag.${flag}`);
  const found = Object.keys(NAMED).find((start) => flag.startsWith(start));
  return found ? t(`flag.${NAMED[found]}`, flag.slice(found.length)) : flag;
}

// lines: as `shown` gives them. Returns how many things need a look.
export function drawNotes(lines, alreadyIn) {
  const notes = alreadyIn ? [make("li", {}, alreadyIn)] : [];
  const translations = lines.filter(({ translation }) => translation);
  let count = 0;
  lines.forEach(({ translation }, line) => {
    for (const flag of translation?.flags ?? []) {
      count += 1;
      const where = translations.length > 1 ? t("line", line + 1) : t("look");
      const button = make("button", { type: "button", onclick: () => goToWord(line, 0) }, where);
      notes.push(make("li", { class: "warning" }, button, " ", inWords(flag)));
    }
  });
  const met = new Set(translations.flatMap(({ translation }) => translation.terms_met));
  if (met.size) notes.push(make("li", {}, t("terms-met", [...met].join(", "))));
  at("#notes").replaceChildren(...notes);
  return count;
}
