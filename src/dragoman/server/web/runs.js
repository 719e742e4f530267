// The page that follows training runs: a list, their curves, and sample translations.

import { ask } from "./api.js";
import { CURVES, CurveFigure, sample } from "./curves.js";
import { at, language, make, speak, t, themed } from "./elements.js";
import { picture } from "./files.js";
import { drawFilm, openFilm } from "./film.js";
import { setUpSettings } from "./settings.js";
import { clearTrouble, showTrouble } from "./trouble.js";

const PAUSE = 3000; // milliseconds between two questions for what is new
const SHOWN = 4; // runs whose curves are drawn at first
const MOST_WORDS = 300; // of a text whose differences are marked

const runs = new Map(); // by name, in the order of the list
const controls = ["by", "smooth", "log"].map((id) => at(`#${id}`));
const wanted = new URLSearchParams(location.hash.slice(1));
let timer = 0;
let asking = false;
let samplesAsked = "";
let samples = { key: "", steps: [], samples: [] };

const chosen = () => [...runs.values()].filter((run) => run.box.checked);
const settings = () => ({ by: at("#by").value, smooth: Number(at("#smooth").value), log: at("#log").checked });
const figures = CURVES.map((curve) => new CurveFigure(at("#curves"), curve, () => ({ runs: chosen(), settings: settings() })));
const noPoints = () => Object.fromEntries(CURVES.map((curve) => [curve, new Map()]));
const pathOf = (run, what) => `api/v1/runs/${encodeURIComponent(run.name)}/${what}`;
const inUnit = (value, unit) => value.toLocaleString(language, { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: unit === "hour" ? 1 : 0 });

function duration(seconds) {
  if (seconds < 90) return inUnit(seconds, "second");
  if (seconds < 90 * 60) return inUnit(seconds / 60, "minute");
  return seconds < 48 * 3600 ? inUnit(seconds / 3600, "hour") : inUnit(seconds / 86400, "day");
}

// The list.

function makeRun(name) {
  const box = make("input", { type: "checkbox", onchange: choose });
  const slot = [...Array(runs.size + 1).keys()].find((slot) => ![...runs.values()].some((run) => run.slot === slot));
  const line = make("td", {}, box, " ", picture(34, 12, sample(slot, 3, 6)));
  const cells = Array.from({ length: 5 }, () => make("td", {}));
  const row = make("tr", {}, line, make("th", { scope: "row", dir: "auto", translate: "no" }, name), ...cells);
  box.checked = wanted.has("run") ? wanted.getAll("run").includes(name) : runs.size < SHOWN;
  return { name, box, slot, row, cells, offset: 0, points: noPoints(), standing: null };
}

const stateOf = ({ state, silent }) => t(`run.${state}`, duration(silent));

function drawRun({ name, box, cells, standing }) {
  const { step, steps, best, best_step, metric, seconds_left, served, checkpoints } = standing;
  const number = (value) => value.toLocaleString(language);
  const texts = [
    stateOf(standing),
    steps ? t("runs.of", number(step), number(steps)) : number(step),
    best === null ? "–" : t("runs.at", t(`metric.${metric}`), best.toFixed(metric === "loss" ? 3 : 1), number(best_step)),
    seconds_left === null ? "–" : t("runs.at-most", duration(seconds_left)),
  ];
  texts.forEach((text, i) => cells[i].textContent === text || (cells[i].textContent = text));
  box.setAttribute("aria-label", t("runs.show", name));
  const links = served.map(({ step, source, target }) => [
    step === null ? t("runs.open-model") : t("runs.open", number(step)),
    `./#${new URLSearchParams({ source, target })}`,
  ]);
  const now = JSON.stringify([links, checkpoints, language]);
  if (cells[4].known === now) return; // a link that has the focus keeps it
  cells[4].known = now;
  const parts = links.map(([text, href]) => make("a", { href }, text));
  cells[4].replaceChildren(checkpoints.map(number).join(" · "), ...parts.flatMap((part) => [" ", part]));
}

async function readList() {
  const answer = await ask("api/v1/runs", { method: "GET" });
  const listed = new Set(answer.runs.map(({ name }) => name));
  for (const [name, run] of runs) {
    if (!listed.has(name)) run.row.remove(), runs.delete(name);
  }
  const changes = [];
  for (const standing of answer.runs) {
    if (!runs.has(standing.name)) {
      runs.set(standing.name, makeRun(standing.name));
      at("#runs tbody").append(runs.get(standing.name).row);
    }
    const run = runs.get(standing.name);
    if (run.standing && run.standing.state !== standing.state) changes.push(t("runs.changed", run.name, stateOf(standing)));
    run.standing = standing;
    drawRun(run);
  }
  if (changes.length) at("#announcement").textContent = changes.join("; ");
  at("#no-runs").hidden = runs.size > 0;
  at("#left-out").hidden = !answer.left_out;
  at("#left-out").textContent = t("runs.left-out", answer.left_out);
}

// What is new in the metrics of a run since the last answer. Returns whether there was something.
async function readCurves(run) {
  let more = true;
  let changed = false;
  while (more) {
    const answer = await ask(pathOf(run, `curves?offset=${run.offset}`), { method: "GET" });
    if (answer.start < run.offset) run.points = noPoints(); // the file was written anew
    changed ||= answer.offset !== run.offset;
    run.offset = answer.offset;
    for (const [curve, { steps, seconds, values }] of Object.entries(answer.curves)) {
      steps.forEach((step, i) => run.points[curve].set(step, [seconds[i], values[i]]));
    }
    ({ more } = answer);
  }
  return changed;
}

function draw() {
  for (const figure of figures) figure.draw();
}

function repaint() {
  draw();
  drawFilm();
}

// Samples.

function option(value, text) {
  return make("option", { value }, text);
}

function fillSelect(select, options) {
  const now = JSON.stringify(options);
  if (select.known === now) return;
  select.known = now;
  const { value } = select;
  select.replaceChildren(...options.map(([value, text]) => option(value, text)));
  if (options.some(([one]) => one === value)) select.value = value;
}

async function readSamples() {
  fillSelect(at("#sampled"), chosen().map(({ name }) => [name, name]));
  const run = runs.get(at("#sampled").value);
  const step = at("#validation").value;
  if (!run) samples = { key: "", steps: [], samples: [] };
  else {
    const key = JSON.stringify([run.name, step, run.points.dev_loss.size, run.offset]);
    samplesAsked = key;
    if (key === samples.key) return;
    const path = (step) => pathOf(run, `samples${step ? `?step=${step}` : ""}`);
    const all = await ask(path(""), { method: "GET" });
    const found = step && all.steps.includes(Number(step)) ? await ask(path(step), { method: "GET" }) : all;
    if (samplesAsked !== key) return; // an older answer never replaces a newer one
    samples = { ...found, key };
  }
  drawSamples();
}

function drawSamples() {
  const { steps } = samples;
  const latest = steps.length ? t("samples.latest", steps.at(-1).toLocaleString(language)) : t(chosen().length ? "samples.none" : "runs.unticked");
  fillSelect(at("#validation"), [["", latest], ...steps.map((step) => [String(step), step.toLocaleString(language)]).reverse()]);
  const shown = JSON.stringify([samples.samples, language]);
  if (at("#samples").known === shown) return;
  at("#samples").known = shown;
  at("#samples").replaceChildren(
    ...samples.samples.map(({ source, reference, now, before }, number) => {
      const [was, is] = before ? differences(before, now) : [[], [now]];
      const parts = { source: [source], reference: [reference], before: was, now: is };
      const lines = Object.entries(parts).filter(([name]) => name !== "before" || before);
      return make("li", {}, make("dl", {}, ...lines.flatMap(([name, texts]) => [make("dt", {}, t(`sample.${name}`)), make("dd", { dir: "auto" }, ...texts)])), watch(number + 1));
    }),
  );
}

function watch(sentence) {
  const onclick = () => openFilm(pathOf({ name: at("#sampled").value }, "film"), at("#sampled").value, sentence);
  return make("button", { type: "button", onclick }, t("film.open"));
}

const wordsOf = (text) => [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)].map(({ segment }) => segment);

// Two texts as nodes, with marks at the words that the other one does not have there: all but a longest common part.
function differences(before, now) {
  const [old, young] = [wordsOf(before), wordsOf(now)];
  if (Math.max(old.length, young.length) > MOST_WORDS) return [[before], [now]];
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(young.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = young.length - 1; j >= 0; j--) {
      common[i][j] = old[i] === young[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const [was, is] = [[], []];
  let [i, j] = [0, 0];
  while (i < old.length || j < young.length) {
    if (i < old.length && j < young.length && old[i] === young[j]) was.push(old[i++]), is.push(young[j++]);
    else if (j === young.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) was.push(make("del", {}, old[i++]));
    else is.push(make("ins", {}, young[j++]));
  }
  return [was, is];
}

// Following.

async function follow() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  try {
    await readList();
    let changed = false;
    for (const run of chosen()) changed = (await readCurves(run)) || changed;
    if (changed) draw();
    await readSamples();
    timer = setTimeout(follow, PAUSE);
  } catch (error) {
    showTrouble(error, follow);
    if (error.kind === "refused") timer = setTimeout(() => (clearTrouble(), follow()), PAUSE); // such as a run that was moved
  } finally {
    asking = false;
  }
}

function remember() {
  const names = chosen().map(({ name }) => name);
  const values = new URLSearchParams((names.length || !runs.size ? names : [""]).map((name) => ["run", name])); // none is a choice, too
  const { by, smooth, log } = settings();
  if (by !== "steps") values.set("by", by);
  if (smooth > 1) values.set("smooth", smooth);
  if (log) values.set("log", "1");
  history.replaceState(null, "", `#${values}`);
}

function choose() {
  remember();
  draw();
  follow();
}

function speakIn(chosenLanguage) {
  speak(chosenLanguage);
  for (const figure of figures) figure.speak();
  for (const run of runs.values()) drawRun(run);
  repaint();
  drawSamples();
}

at("#by").value = wanted.get("by") === "hours" ? "hours" : "steps";
at("#smooth").value = ["5", "20"].find((value) => value === wanted.get("smooth")) ?? "1";
at("#log").checked = wanted.has("log");
for (const control of controls) control.addEventListener("change", choose);
for (const select of ["#sampled", "#validation"]) at(select).addEventListener("change", () => readSamples().catch((error) => showTrouble(error, follow)));
document.addEventListener("visibilitychange", follow);
addEventListener("resize", draw);
themed.addEventListener("change", repaint);
setUpSettings(speakIn, repaint);
follow();
