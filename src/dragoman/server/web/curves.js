// Curves of several runs over each other, each as a figure with its table.

import { language, make, shortened, t, textTable } from "./elements.js";
import { drawing, picture, saveButtons, xml } from "./files.js";

const [LEFT, RIGHT, TOP, BOTTOM, HIGH] = [58, 14, 8, 22, 200];
const SAVED = 640; // pixels of width in a file
const MOST_ROWS = 200; // of a table
const MARKED = 60; // points up to which each has a mark
// All of them stand out from white and from our dark ground; with the dashes, 16 runs differ.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const DEV = ["dev_loss", "bleu", "chrf"]; // few points, which are not smoothed
const FROM_ZERO = ["bleu", "chrf"]; // they may be 0, so no logarithm
export const CURVES = ["training_loss", ...DEV, "rate", "gradient_norm", "tokens_per_second"];

export const shown = (value) =>
  value && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toLocaleString(language, { maximumSignificantDigits: 4 });

export const look = (slot) => ({ colour: COLOURS[slot % 4], dash: DASHES[(slot + (slot >> 2)) % 4] });
const stroke = (slot) => `fill="none" stroke="${look(slot).colour}" stroke-dasharray="${look(slot).dash}"`;
export const sample = (slot, x, y) => `<path d="M${x} ${y}h28" stroke-width="2.5" ${stroke(slot)}/>`;

// The points of a run as they are drawn: [x, y, smoothed y].
function pointsOf(run, curve, { by, smooth, log }) {
  const points = [...run.points[curve]].sort(([a], [b]) => a - b).map(([step, [seconds, y]]) => [by === "hours" ? seconds && seconds / 3600 : step, y]);
  const usable = points.filter(([x, y]) => x !== null && (y > 0 || !log || FROM_ZERO.includes(curve)));
  const window = DEV.includes(curve) ? 1 : smooth;
  let sum = 0;
  return usable.map(([x, y], i) => {
    sum += y - (i < window ? 0 : usable[i - window][1]);
    return [x, y, window === 1 ? y : sum / Math.min(window, i + 1)];
  });
}

function ticks(low, high, most) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const unit = [1, 2, 5, 10].map((factor) => factor * power).find((unit) => (high - low) / unit <= most);
  const found = [];
  for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; i++) found.push(i * unit + 0);
  return found;
}

// Those of a logarithmic scale, as exponents, like low and high; where it spans little, those of a linear one.
function powers(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of high - low > 3 ? [1] : [1, 2, 5]) found.push(Math.log10(factor) + power);
  }
  const inside = found.filter((one) => low <= one && one <= high);
  return inside.length > 1 ? inside : ticks(10 ** low, 10 ** high, 4).map(Math.log10);
}

// runs: each with its name, slot and points; returns the width, the height and the content of an SVG.
function chart(runs, curve, settings, width, ink) {
  const lines = runs.map((run) => ({ ...run, line: pointsOf(run, curve, settings) })).filter(({ line }) => line.length);
  const log = settings.log && !FROM_ZERO.includes(curve);
  const scaled = (y) => (log ? Math.log10(y) : y);
  const [xs, ys] = [lines.flatMap(({ line }) => line.map(([x]) => x)), lines.flatMap(({ line }) => line.map(([, y]) => scaled(y)))];
  const ends = (values) => values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
  const wide = ([low, high]) => (high > low ? [low, high] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2]);
  const height = TOP + HIGH + BOTTOM + 18 * Math.max(1, lines.length) + 16;
  const text = (x, y, content, anchor) =>
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="11" text-anchor="${anchor}" fill="${ink}">${xml(content)}</text>`;
  if (!lines.length) return { width, height, content: text(width / 2, HIGH / 2, nothing(runs), "middle") };
  const [[left, right], [least, most]] = [wide(ends([...xs, 0])), wide(ends(ys))];
  const [low, high] = [least - (most - least) / 25, most + (most - least) / 25];
  const [toX, toY] = [
    (x) => LEFT + ((x - left) / (right - left)) * (width - LEFT - RIGHT),
    (y) => TOP + HIGH - ((scaled(y) - low) / (high - low)) * HIGH,
  ];
  const parts = [`<path d="M${LEFT} ${TOP}v${HIGH}h${width - LEFT - RIGHT}" fill="none" stroke="${ink}"/>`];
  for (const one of log ? powers(low, high) : ticks(low, high, 5)) {
    const y = TOP + HIGH - ((one - low) / (high - low)) * HIGH;
    parts.push(`<path d="M${LEFT} ${y.toFixed(1)}H${width - RIGHT}" stroke="${ink}" stroke-opacity=".15"/>`);
    parts.push(text(LEFT - 6, y + 4, shown(log ? Number((10 ** one).toPrecision(4)) : one), "end"));
  }
  for (const x of ticks(left, right, width < 400 ? 3 : 6)) parts.push(text(toX(x), TOP + HIGH + 16, shown(x), "middle"));
  parts.push(text(width - RIGHT, TOP + HIGH + 32, t(`by.${settings.by}`), "end"));
  lines.forEach(({ name, slot, line }, row) => {
    const path = (column) => line.map((one) => `${toX(one[0]).toFixed(1)} ${toY(one[column]).toFixed(1)}`).join("L");
    const draw = (column, wide, opacity) =>
      parts.push(`<path d="M${path(column)}" stroke-width="${wide}" stroke-opacity="${opacity}" stroke-linejoin="round" ${stroke(slot)}/>`);
    if (settings.smooth > 1 && !DEV.includes(curve)) draw(1, 1, 0.45);
    draw(2, 2, 1);
    for (const [x, , y] of line.length > MARKED ? line.slice(-1) : DEV.includes(curve) ? line : line.slice(-1)) {
      parts.push(`<circle cx="${toX(x).toFixed(1)}" cy="${toY(y).toFixed(1)}" r="3" fill="${look(slot).colour}"/>`);
    }
    const y = TOP + HIGH + 34 + 18 * row;
    parts.push(sample(slot, LEFT, y), text(LEFT + 36, y + 4, shortened(name, Math.floor((width - LEFT - 150) / 7)), "start"));
  });
  return { width, height, content: parts.join("") };
}

// What stands where there is nothing to draw.
const nothing = (runs) => t(runs.length ? "runs.nothing" : "runs.unticked");

// A figure of one measure. read: returns what is shown at the moment, the runs and the settings.
export class CurveFigure {
  constructor(root, curve, read) {
    Object.assign(this, { curve, read });
    this.title = make("h3", {});
    this.picture = make("div", {});
    this.below = make("figcaption", {});
    this.save = make("div", { class: "save" });
    this.rows = make("div", { class: "scroll", tabindex: "0", role: "group", "data-label": "table" });
    this.details = make("details", { ontoggle: () => this.fill() }, make("summary", { "data-t": "as-table" }), this.rows);
    root.append(make("figure", {}, this.title, this.picture, this.below, this.save, this.details));
  }

  speak() {
    this.title.textContent = t(`curve.${this.curve}`);
    const svg = (below) => {
      const { runs, settings } = this.read();
      const { width, height, content } = chart(runs, this.curve, settings, SAVED, "#000000");
      return drawing(width, height, content, below);
    };
    const [name, caption, json, rows] = [() => `curve-${this.curve}`, () => this.caption(), () => this.json(), () => this.texts()];
    saveButtons(this.save, { name, caption, svg, json, rows });
  }

  draw() {
    const { runs, settings } = this.read();
    const wide = Math.max(240, Math.floor(this.picture.clientWidth));
    const { width, height, content } = chart(runs, this.curve, settings, wide, "currentColor");
    const last = this.lastValues();
    this.picture.replaceChildren(picture(width, height, content, this.caption(last)));
    this.below.textContent = last + this.smoothed();
    this.fill();
  }

  lastValues() {
    const { runs, settings } = this.read();
    const last = runs.map((run) => [run.name, pointsOf(run, this.curve, settings).at(-1)]).filter(([, point]) => point);
    return last.map(([name, point]) => `${name}: ${shown(point[2])}`).join("; ") || nothing(runs);
  }

  smoothed() {
    const { settings } = this.read();
    return settings.smooth > 1 && !DEV.includes(this.curve) ? t("runs.smoothed", settings.smooth) : "";
  }

  caption(last = this.lastValues()) {
    return t("runs.caption", t(`curve.${this.curve}`), t(`by.${this.read().settings.by}`), this.smoothed(), last);
  }

  json() {
    const { runs, settings } = this.read();
    const lines = runs.map((run) => {
      const points = pointsOf(run, this.curve, settings);
      return { run: run.name, [settings.by]: points.map(([x]) => x), measured: points.map(([, y]) => y), drawn: points.map(([, , y]) => y) };
    });
    return { caption: this.caption(), ...settings, lines };
  }

  // As rows of texts; of more than 200 places, 200 that are evenly spread.
  texts() {
    const { runs, settings } = this.read();
    const columns = runs.map((run) => new Map(pointsOf(run, this.curve, settings).map(([x, , y]) => [x, y])));
    const all = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    const count = Math.min(all.length, MOST_ROWS);
    const places = Array.from({ length: count }, (_, i) => all[count > 1 ? Math.round((i * (all.length - 1)) / (count - 1)) : 0]);
    const cell = (column, x) => (column.has(x) ? shown(column.get(x)) : "");
    return [[t(`by.${settings.by}`), ...runs.map(({ name }) => name)], ...places.map((x) => [shown(x), ...columns.map((column) => cell(column, x))])];
  }

  fill() {
    this.rows.replaceChildren(...(this.details.open ? [textTable(this.texts())] : []));
  }
}
