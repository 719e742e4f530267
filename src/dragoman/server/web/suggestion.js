// Correcting a translation: what the reader writes goes to the server. With a memory it counts from then on; else it is for
// the next training, and only this page shows it. Loaded where a server takes corrections.

import { ask } from "./api.js";
import { at, t } from "./elements.js";
import { find as findPair } from "./languages.js";
import { correct, forgetAll } from "./lines.js";
import { setUpOrigins } from "./origins.js";
import { say, translated } from "./paper.js";
import { clearTrouble, showTrouble } from "./trouble.js";

let corrected = null; // what a suggestion is for, as it was shown: the text may change while somebody writes it
let unsent = false; // whether the trouble that is shown is that of a suggestion
let shownNow = () => null;
let redraw = () => {};
let translate = () => {};

// given: a pair of the memory to correct; without it, what is shown.
function open(given) {
  const better = at("#better");
  if (at("#suggestion").hidden || given) {
    corrected = given ?? { ...shownNow(), original: translated() };
    at("#suggestion").hidden = false;
    at("#corrected").textContent = corrected.lines.join("\n");
    better.value = corrected.original;
    better.lang = corrected.wish.target;
    better.rows = Math.min(Math.max(corrected.lines.length, 3), 12);
    better.setSelectionRange(0, 0);
    better.scrollTop = 0;
    draw();
  }
  better.focus();
}

function draw() {
  const { value } = at("#better");
  at("#suggestion-copy").disabled = !value.trim();
  at("#suggestion-send").disabled = !value.trim() || bare(value) === bare(corrected.original);
}

// The server keeps no correction of spaces alone.
const bare = (text) => text.replaceAll(/[^\S\n]+/g, " ").replaceAll(/^ | $/gm, "");

function close() {
  if (unsent) clearTrouble();
  unsent = false;
  at("#suggestion").hidden = true;
  at("#suggest").focus();
}

async function send(event) {
  event.preventDefault();
  const { wish, lines, original, number } = corrected;
  const better = at("#better").value;
  const { source, target } = wish;
  const text = lines.join("\n");
  const whole = { q: text, s: better, original, source, target, origin: "page" };
  at("#suggestion-send").disabled = true; // a second click would send it twice
  try {
    if (number === undefined) await ask("suggest", { body: whole });
    else await ask(`api/v1/memories/${source}/${target}/${number}`, { method: "PUT", body: { text, translation: better } });
  } catch (error) {
    unsent = true;
    showTrouble(error, null); // whoever wants it sent presses the button again
    return draw();
  }
  const remembered = findPair(source, target)?.memory;
  if (remembered) again();
  else show(original.split("\n"), better.split("\n"));
  const thanks = () => t(remembered ? "suggestion.remembered" : "suggestion.thanks");
  say(thanks);
  at("#announcement").textContent = thanks();
  close();
}

function again() {
  forgetAll();
  translate();
}

// Shows the lines that the reader has changed, if it can be said which ones they are.
function show(before, better) {
  const { lines, wish } = corrected;
  if (better.length !== lines.length) return;
  lines.forEach((line, number) => better[number] !== before[number] && correct(line, wish, better[number]));
  redraw();
}

// shown: returns the lines and the wish of what is shown; redrawn: draws it again; anew: translates it again.
export function setUpSuggestion(shown, redrawn, copy, anew) {
  [shownNow, redraw, translate] = [shown, redrawn, anew];
  setUpOrigins(open, again);
  at("#suggest").hidden = false;
  at("#suggest").addEventListener("click", () => open());
  at("#better").addEventListener("input", draw);
  at("#suggestion-copy").addEventListener("click", (event) => copy(at("#better").value, event.target));
  at("#suggestion-cancel").addEventListener("click", close);
  at("#suggestion").addEventListener("submit", send);
  addEventListener("beforeunload", (event) => at("#suggestion").hidden || event.preventDefault()); // the browser asks
}
