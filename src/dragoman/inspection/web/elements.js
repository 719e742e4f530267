// What all our pages are made of: elements, texts in two languages, colours. Text of others is only ever set as text.
// These modules draw what they are given; `page.py` puts them into one file, and the server serves them.

export const at = (selector, root = document) => root.querySelector(selector);
export const read = (id) => JSON.parse(at(`#${id}`).textContent);

// Bytes, as they are or from base64.
export const decoded = (given) =>
  typeof given === "string" ? Uint8Array.from(atob(given), (letter) => letter.charCodeAt(0)) : given;

export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A table with the cells of its head and of each row.
export function table(head, rows) {
  const body = rows.map((cells) => make("tr", {}, ...cells));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

// Rows of texts as a table; the first has the headings, and each other one begins with its own.
export function textTable([titles, ...rows]) {
  const heading = (scope) => (text) => (text ? make("th", { scope, dir: "auto" }, text) : make("td", {}));
  return table(
    titles.map(heading("col")),
    rows.map(([first, ...others]) => [heading("row")(first), ...others.map((text) => make("td", {}, text))]),
  );
}

// Fills a select with [value, text] of each choice; `choose` takes the value that is chosen, as it was given.
export function fillSelect(selector, choices, chosen, choose) {
  const select = at(selector);
  select.replaceChildren(...choices.map(([value, text]) => make("option", { value }, String(text))));
  select.selectedIndex = choices.findIndex(([value]) => value === chosen);
  select.onchange = () => choose(choices[select.selectedIndex][0]);
}

// The choices from 1 to a number.
export const numbered = (count) => Array.from({ length: count }, (_, i) => [i + 1, i + 1]);

// Texts.

const strings = read("strings"); // by language
export let language = (navigator.language || "en").startsWith("ko") ? "ko" : "en";

// "{0}" and so on stand for the values.
export const t = (key, ...values) => strings[language][key].replace(/\{(\d)\}/g, (_, number) => values[number]);
export const fixed = (value, digits = 2) =>
  value === null ? "" : value.toFixed(digits).replace("-", "−").replace(/^−(0\.?0*)$/, "$1").replace("Infinity", "∞");

// With two digits that say something: "0.31", "0.0031".
export const shortest = (value) => String(Number(value.toPrecision(2))).replace("-", "−");

export const shortened = (text, longest) => (text.length > longest ? `${text.slice(0, longest - 1)}…` : text);

// Writes the texts that are not made by code.
export function writeTexts(root) {
  for (const element of root.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", t(element.dataset.label));
  }
}

export function speak(chosen) {
  language = chosen;
  document.documentElement.lang = language;
  writeTexts(document);
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", button.dataset.language === language);
  }
}

// Colours.

const parsed = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
export const themed = matchMedia("(prefers-color-scheme: dark)");

export const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const STEPS = 255; // of a palette
const NONE = "#767676"; // what is masked

// The colours of a variable, as a function from 0..1 to [red, green, blue], which has a name for style sheets as `css`.
export function palette(name) {
  const stops = variable(name).split(",").map((stop) => parsed(stop.trim()));
  const colours = Array.from({ length: STEPS + 1 }, (_, step) => {
    const position = (step / STEPS) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    const colour = stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (position - low)));
    return Object.assign(colour, { css: `rgb(${colour.join(",")})` });
  });
  const none = Object.assign(parsed(NONE), { css: NONE });
  return (part) => (part === -Infinity ? none : colours[Math.round(STEPS * Math.min(1, Math.max(0, part)))]);
}
export const readable = ([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff");
