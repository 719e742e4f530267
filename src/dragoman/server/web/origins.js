// Where a word comes from: the pair of the memory that speaks most for it, which can be corrected or forgotten.

import { fetchFrom } from "./api.js";
import { at, make, t } from "./elements.js";
import { pair } from "./languages.js";
import { examine } from "./lines.js";
import { inPair } from "./notes.js";
import { percent, say, shown } from "./paper.js";
import { showTrouble } from "./trouble.js";

const DWELL = 60; // milliseconds over a word before the server is asked

let looked = null; // the word
let waiting = 0;

// correct: opens the form for a pair; again: translates again.
export function setUpOrigins(correct, again) {
  const output = at("#output");
  const look = ({ target, type }) => {
    const word = target.closest(".word");
    if (!word || pair()?.memory !== "all" || (type === "pointerover" && output.matches(".pinned"))) return;
    looked = word;
    clearTimeout(waiting);
    waiting = setTimeout(draw, DWELL, word, correct, again);
  };
  for (const moved of ["pointerover", "focusin"]) output.addEventListener(moved, look);
}

async function draw(word, correct, again) {
  const { line, word: number } = word.place;
  const { translation } = shown()[line] ?? {};
  if (!translation) return;
  const { origins } = await examine(translation, pair());
  if (looked !== word) return;
  const [origin] = origins[number] ?? [];
  at("#origin").hidden = !origin;
  if (!origin) return;
  const { wish } = translation;
  const button = (key, onclick) => make("button", { type: "button", class: "link", onclick }, t(key));
  const given = { lines: [origin.text], original: origin.translation, wish, number: origin.number };
  const own = [button("origin.correct", () => correct(given)), " ", button("origin.forget", () => forget(origin, wish, again))];
  at("#origin").replaceChildren(t("origin", ...inPair(origin), percent(origin.share)), " ", ...(origin.yours ? own : []));
}

async function forget({ number }, { source, target }, again) {
  try {
    await fetchFrom(`api/v1/memories/${source}/${target}/${number}`, { method: "DELETE" });
  } catch (error) {
    return showTrouble(error, null);
  }
  looked = null; // what is still asked of another word, which the pointer crossed, comes too late
  clearTimeout(waiting);
  at("#origin").hidden = true;
  say(() => t("origin.forgotten"));
  again();
}
