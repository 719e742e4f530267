// Which languages to translate from and into.

import { ask } from "./api.js";
import { at, language, make, t } from "./elements.js";

const AUTO = "auto";
const DETECTED_BY = 2000; // characters at the beginning of a text

let served = { pairs: [], detects: false };
let detected = null; // language and confidence of the text, with `auto`
const choice = { source: AUTO, target: "" };
let picked = false; // whether somebody has chosen the target
let lacking = []; // languages that the address asks for in vain

export function nameOf(code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}

const FROM_RIGHT = new Set(["Adlm", "Arab", "Hebr", "Mand", "Nkoo", "Rohg", "Syrc", "Thaa"]); // scripts

// How a language is written: "rtl", from right to left, or "ltr".
export function directionOf(code) {
  try {
    return FROM_RIGHT.has(new Intl.Locale(code).maximize().script) ? "rtl" : "ltr";
  } catch {
    return "ltr";
  }
}

const sources = () => [...new Set(served.pairs.map((pair) => pair.source))];
const targets = (source) =>
  [...new Set(served.pairs.filter((pair) => source === AUTO || pair.source === source).map((pair) => pair.target))];
export const find = (source, target) => served.pairs.find((pair) => pair.source === source && pair.target === target);

// Takes what is served, and the languages that the address names.
export function serve(models, wanted) {
  served = models;
  const known = sources();
  const detects = served.detects && known.length > 1;
  choice.source = known.includes(wanted.source) ? wanted.source : detects ? AUTO : known[0];
  choose({ target: wanted.target ?? language }); // who reads the page in Korean mostly wants Korean
  picked = Boolean(wanted.target);
  lacking = [wanted.source, wanted.target].filter((code) => code && ![AUTO, choice.source, choice.target].includes(code));
}

// Changes the choice as little as possible so that there is a model for it.
export function choose(changes) {
  Object.assign(choice, changes);
  lacking = [];
  if (changes.source) detected = null;
  picked ||= Boolean(changes.target);
  const possible = targets(choice.source);
  if (!possible.includes(choice.target)) choice.target = possible[0];
  draw();
}

export function draw() {
  const option = (code, name) => make("option", { value: code }, name);
  const known = sources();
  const auto = served.detects && known.length > 1 ? [option(AUTO, t("detect"))] : [];
  at("#source-language").replaceChildren(...auto, ...known.map((code) => option(code, nameOf(code))));
  at("#target-language").replaceChildren(...targets(choice.source).map((code) => option(code, nameOf(code))));
  at("#source-language").value = choice.source;
  at("#target-language").value = choice.target;
  drawDetected();
}

function drawDetected() {
  const found = choice.source === AUTO && detected;
  at("#detected").textContent = found ? t("detected", nameOf(detected.language), Math.round(detected.confidence)) : "";
  at("#swap").disabled = !find(choice.target, source());
  at("#swap").hidden = !sources().includes(choice.target); // there is no way back
}

// The source language: the one that was chosen, or detected in the last text; null before there is one.
export const source = () => (choice.source === AUTO ? (detected?.language ?? null) : choice.source);
export const likely = () => source() ?? sources()[0]; // before anything is detected
export const target = () => choice.target;
export const lackingNames = () => lacking.map(nameOf).join(", ");
export const pair = () => find(source(), choice.target);
export const chosen = () => ({ ...choice });

// Returns the language of a text, detecting it where that was chosen.
export async function sourceOf(text, signal) {
  if (choice.source !== AUTO) return choice.source;
  const { target } = choice;
  const { texts } = await ask("api/v1/detect", { body: { texts: [text.slice(0, DETECTED_BY).toWellFormed()] }, signal });
  const possible = texts[0].filter((one) => one.language === target || find(one.language, target));
  detected = possible[0] ?? { language: sources()[0], confidence: 0 };
  if (picked || detected.language !== target) drawDetected();
  else {
    choice.target = targets(target).find((code) => code !== target) ?? target;
    draw();
  }
  return detected.language;
}

export function forget() {
  detected = null;
  drawDetected();
}
