// Correcting a translation: what the reader writes goes to the server, for the next training, and stands here from then on.

import { ask } from "./api.js";
import { at, t } from "./elements.js";
import { correct } from "./lines.js";
import { say, translated } from "./paper.js";
import { clearTrouble, showTrouble } from "./trouble.js";

let corrected = null; // what a suggestion is for, as it was shown: the text may change while somebody writes it
let unsent = false; // whether the trouble that is shown is that of a suggestion
let shownNow = () => null;
let redraw = () => {};

function open() {
  const better = at("#better");
  if (at("#suggestion").hidden) {
    corrected = { ...shownNow(), original: translated() };
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
  const { wish, lines, original } = corrected;
  const better = at("#better").value;
  const body = { q: lines.join("\n"), s: better, original, source: wish.source, target: wish.target };
  at("#suggestion-send").disabled = true; // a second click would send it twice
  try {
    await ask("suggest", { body });
  } catch (error) {
    unsent = true;
    showTrouble(error, null); // whoever wants it sent presses the button again
    return draw();
  }
  show(original.split("\n"), better.split("\n"));
  say(() => t("suggestion.thanks"));
  at("#announcement").textContent = t("suggestion.thanks");
  close();
}

// Shows the lines that the reader has changed, if it can be said which ones they are.
function show(before, better) {
  const { lines, wish } = corrected;
  if (better.length !== lines.length) return;
  lines.forEach((line, number) => better[number] !== before[number] && correct(line, wish, better[number]));
  redraw();
}

// shown: returns the lines and the wish of what is shown; redrawn: draws it again.
export function setUpSuggestion(shown, redrawn, copy) {
  [shownNow, redraw] = [shown, redrawn];
  at("#suggest").addEventListener("click", open);
  at("#better").addEventListener("input", draw);
  at("#suggestion-copy").addEventListener("click", (event) => copy(at("#better").value, event.target));
  at("#suggestion-cancel").addEventListener("click", close);
  at("#suggestion").addEventListener("submit", send);
  addEventListener("beforeunload", (event) => at("#suggestion").hidden || event.preventDefault()); // the browser asks
}
