// What needs a look in a translation, in words.

import { at, make, t } from "./elements.js";
import { goToTerm } from "./glossary.js";
import { goToWord } from "./paper.js";

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

// lines: as `shown` gives them. Returns how many things need a look.
export function drawNotes(lines, alreadyIn) {
  const notes = alreadyIn ? [make("li", {}, alreadyIn)] : [];
  const translations = lines.filter(({ translation }) => translation);
  let count = 0;
  lines.forEach(({ translation }, line) => {
    for (const flag of translation?.flags ?? []) {
      count += 1;
      const place = translations.length > 1 && t("line", line + 1);
      const button = make("button", { type: "button", onclick: () => goToWord(line, 0) }, place || t("look"));
      const said = place ? [button, " ", inWords(flag)] : [inWords(flag), " ", button];
      const term = flag.startsWith("no ") && flag.slice(3);
      const mend = term ? [" ", make("button", { type: "button", onclick: () => goToTerm(term) }, t("glossary"))] : [];
      notes.push(make("li", { class: "warning" }, ...said, ...mend));
    }
  });
  lines.forEach(({ translation }, line) => {
    if (!translation?.parts) return;
    const where = translations.length > 1 ? `${t("line", line + 1)}: ` : "";
    notes.push(make("li", {}, where, t("parts", translation.parts)));
  });
  const met = new Set(translations.flatMap(({ translation }) => translation.terms_met.map((term) => inTarget(term, translation))));
  if (met.size) notes.push(make("li", {}, t("terms-met", [...met].join(", "))));
  at("#notes").replaceChildren(...notes);
  return count;
}
