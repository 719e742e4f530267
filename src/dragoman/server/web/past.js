// The last translations. They stay in this browser, and go when the reader clears them or wants none.

import { at, make, t } from "./elements.js";
import { nameOf } from "./languages.js";
import { allowed, keep, read } from "./storage.js";

const KEPT = "history";
const OFF = "off";
const MOST = 50; // translations
const LONGEST = 5000; // characters of a text and its translation

let goTo = () => {};

const on = () => read(KEPT) !== OFF;

function readAll() {
  try {
    const entries = JSON.parse(read(KEPT));
    return Array.isArray(entries) ? entries : [];
  } catch {
    return [];
  }
}

function write(entries) {
  while (!keep(KEPT, entries.length ? JSON.stringify(entries) : "") && entries.length) entries = entries.slice(0, -1);
  drawPast();
}

// Keeps a translation: `source`, `target`, `text` and `translation`. A text that goes on from the last one, or is its
// beginning, takes its place.
export function keepPast(entry) {
  if (!on() || entry.text.length + entry.translation.length > LONGEST) return;
  const [last, ...others] = readAll();
  const pair = ({ source, target }) => `${source} ${target}`;
  const same = (old) => pair(old) === pair(entry) && old.text === entry.text;
  const goesOn = last && pair(last) === pair(entry) && (entry.text.startsWith(last.text) || last.text.startsWith(entry.text));
  const before = last && !goesOn ? [last, ...others] : others;
  write([entry, ...before.filter((old) => !same(old))].slice(0, MOST));
}

export function drawPast() {
  if (!at("#past").open) return;
  const entries = readAll();
  const part = (text, lang, name) => make("span", { lang, dir: "auto", class: name }, text);
  const item = (entry) => {
    const { source, target, text, translation } = entry;
    const pair = make("span", { class: "note" }, `${nameOf(source)} → ${nameOf(target)}`);
    const parts = [pair, part(text, source, "from"), part(translation, target, "into")];
    return make("li", {}, make("button", { type: "button", onclick: () => goTo(entry) }, ...parts));
  };
  at("#past-list").replaceChildren(...entries.map(item));
  at("#past-none").hidden = entries.length > 0 || !on();
  at("#past-clear").disabled = !entries.length;
  at("#past-on").checked = on();
}

// open: takes an entry back into the page.
export function setUpPast(open) {
  goTo = open;
  at("#past").hidden = !allowed();
  at("#past").addEventListener("toggle", drawPast);
  at("#past-clear").addEventListener("click", () => {
    write([]);
    at("#past-on").focus(); // the button is disabled now
  });
  at("#past-on").addEventListener("change", ({ target }) => {
    keep(KEPT, target.checked ? "" : OFF);
    drawPast();
  });
}
