"use strict";
// The page of `dragoman inspect`. Everything it shows comes from the two JSON blocks of the document; text from them is
// only ever set as text. Weights come in steps of 1/255.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const data = read("data");
const strings = read("strings");
const at = (selector, root = document) => root.querySelector(selector);

let language = (navigator.language || "en").startsWith("ko") ? "ko" : "en";
// "{0}" and so on stand for the values.
const t = (key, ...values) => strings[language][key].replace(/\{(\d)\}/g, (_, number) => values[number]);
const fixed = (value, digits = 2) =>
  value === null ? "" : value.toFixed(digits).replace("-", "−").replace(/^−(0\.?0*)$/, "$1");

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A table with the cells of its head and of each row.
function table(head, rows) {
  const body = rows.map((cells) => make("tr", {}, ...cells));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

// Colours.

const parsed = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const themed = matchMedia("(prefers-color-scheme: dark)");

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The colours of a variable, as a function from 0..1 to [red, green, blue].
function palette(name) {
  const stops = variable(name).split(",").map((stop) => parsed(stop.trim()));
  return (part) => {
    const position = Math.min(1, Math.max(0, part)) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (position - low)));
  };
}
const css = (colour) => `rgb(${colour.join(",")})`;
const readable = ([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff");

// Files.

function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const xml = (text) =>
  String(text)
    .toWellFormed()
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

// An SVG on a white ground, with its caption below.
function drawing(width, height, content, caption) {
  const lines = [""];
  const most = Math.max(30, Math.floor(width / 8));
  for (const word of caption.split(/(?<=\s)/)) {
    if ((lines.at(-1) + word).length > most && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += word;
  }
  const y = (line) => height + 18 + 16 * line;
  const written = lines.map((line, i) => `<text x="6" y="${y(i)}" font-size="12">${xml(line)}</text>`);
  const tall = height + 16 * lines.length + 14;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${tall}" viewBox="0 0 ${width} ${tall}" ` +
    `font-family="system-ui, sans-serif"><rect width="${width}" height="${tall}" fill="#ffffff"/>` +
    `${content}${written.join("")}</svg>`
  );
}

function savePng(name, svg) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", {});
    const scale = Math.min(2, 8000 / Math.max(image.width, image.height));
    canvas.width = Math.ceil(image.width * scale);
    canvas.height = Math.ceil(image.height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(`${name}.png`, "image/png", blob), "image/png");
    URL.revokeObjectURL(url);
  };
  image.src = url;
}

function saveButtons(root, name, svg, json) {
  const button = (format, onclick) => make("button", { type: "button", onclick }, `${t("save")} ${format}`);
  root.replaceChildren();
  if (svg) {
    root.append(button("SVG", () => download(`${name()}.svg`, "image/svg+xml", svg())));
    root.append(button("PNG", () => savePng(name(), svg())));
  }
  root.append(button("JSON", () => download(`${name()}.json`, "application/json", JSON.stringify(json(), null, 1))));
}

const shortened = (text, longest) => (text.length > longest ? `${text.slice(0, longest - 1)}…` : text);
const MAX_TEXT = 200; // letters of a sentence in a caption

function sentence() {
  const [source, target] = [data.source, data.target].map(({ text }) => shortened(text, MAX_TEXT));
  return t("caption", data.model, source, target, data.version);
}
