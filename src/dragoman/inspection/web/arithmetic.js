// Attention with one's own numbers: Q, K and V to edit, and every stage computed again.

import { at, fillSelect, fixed, make, t } from "./elements.js";
import { grid } from "./grid.js";
import { columnsOf, concatenated, matrix, product, productOfRows, row, scaledBy, softmax } from "./tape.js";

export const FILLS = ["infinity", "billion", "times"]; // what becomes of masked scores: -∞, -1e9, multiplied by 1e-9
const SHOWN = 8; // columns that can be edited; the others are computed with as they are
const PRESETS = {
  home: { words: ["I", "go", "home"], q: [[2, 0], [1.653, 1], [2.626, -1]], k: [[2, 0], [1.653, 1], [2.626, -1]], v: [[2, 0], [1.653, 1], [2.626, -1]], scale: false },
  thinking: {
    words: ["Thinking", "Machines"], q: [[1.384, -1.145, -0.866], [0.406, 0.938, -2.385]], k: [[3.387, 5.187, 0.465], [-3.216, -2.136, -4.803]],
    v: [[-0.212, 3.135, -3.704], [-0.219, 0.475, 2.324]],
  },
  dog: {
    words: ["I", "am", "dog"], q: [[56.8, 12.1, 43.5], [30.4, 100.8, 24.2], [11.11, 7.34, 20.23]], k: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    v: [[67.85, 90, 91], [62, 40, 50], [37, 41, 20]], width: 64,
  },
  apple: {
    words: ["<s>", "나는", "사과가", "좋다"], q: [[1, 0], [0, 2], [2, 1], [1, 3]], k: [[1, 1], [2, 0], [0, 2], [1, -1]],
    v: [[0, 0], [1, 0], [0, 1], [1, 1]], causal: true,
  },
};

// The stages of each head, and the outputs side by side. q, k, v: matrices whose columns are those of all heads;
// scale: whether to divide by √d_k; padding: how many keys, the last ones, are padding; closed: other masked scores, each
// as `query * keys + key`.
export function attend(q, k, v, { heads = 1, scale = true, temperature = 1, causal = false, padding = 0, fill = "infinity", closed = [] } = {}) {
  const [d_k, d_v] = [q.columns / heads, v.columns / heads];
  const divisor = (scale ? Math.sqrt(d_k) : 1) * temperature;
  const open = (i, j) => j < k.rows - padding && (!causal || j <= i + k.rows - q.rows) && !closed.includes(i * k.rows + j);
  const masks = { infinity: () => -Infinity, billion: () => -1e9, times: (score) => 1e-9 * score };
  const parts = Array.from({ length: heads }, (_, head) => {
    const [query, key] = [q, k].map((of) => columnsOf(of, head * d_k, d_k));
    const value = columnsOf(v, head * d_v, d_v);
    const scores = productOfRows(query, key);
    const scaled = scaledBy(scores, 1 / divisor);
    const masked = matrix(q.rows, k.rows, scaled.data.map((score, n) => (open(Math.floor(n / k.rows), n % k.rows) ? score : masks[fill](score))));
    const weights = softmax(masked);
    return { query, key, value, scores, scaled, masked, weights, output: product(weights, value) };
  });
  return { divisor, parts, output: concatenated(parts.map((part) => part.output)) };
}

export const fromRows = (rows, width = rows[0].length) =>
  matrix(rows.length, width, Float64Array.from({ length: rows.length * width }, (_, n) => rows[Math.floor(n / width)][n % width] ?? 0));

// What the reader has made of it. head: the one whose stages are shown.
const ours = { heads: 1, head: 0, temperature: 1, padding: 0, fill: "infinity", closed: [] };
let toggled = [0, 0]; // the masked score that Tab reaches

export function setUpArithmetic() {
  for (const [name, { words }] of Object.entries(PRESETS)) {
    const text = words.filter((word) => word !== "<s>").join(" ");
    at("#presets").append(make("button", { type: "button", onclick: () => load(PRESETS[name]) }, text));
  }
  const read = (id, key, value) => at(id).addEventListener("input", (event) => {
    const given = value(event.target);
    if (given === null) return;
    ours[key] = given;
    showArithmetic();
  });
  const between = (least, most) => ({ value }) => (value !== "" && Number(value) >= least && Number(value) <= most ? Number(value) : null);
  for (const key of ["scale", "causal"]) read(`#own-${key}`, key, (box) => box.checked);
  read("#own-temperature", "temperature", between(0.01, 100));
  read("#own-padding", "padding", (box) => Math.min(Number(box.value), ours.k.rows - 1));
  read("#own-fill", "fill", (select) => select.value);
  for (const [id, key, names] of [["#own-d_k", "d_k", ["q", "k"]], ["#own-d_v", "d_v", ["v"]], ["#own-heads", "heads", ["q", "k", "v"]]]) {
    at(id).addEventListener("change", ({ target }) => {
      const count = Math.round(Number(target.value));
      if (count >= 1 && count <= Number(target.max)) {
        ours[key] = count;
        for (const name of names) ours[name] = widened(ours[name], ours.heads * (name === "v" ? ours.d_v : ours.d_k));
      }
      showOwn();
    });
  }
  load(PRESETS.home);
}

// Takes a preset, or the numbers of a head: rows q, k and v. names: of the keys, where they are not those of the queries.
export function load({ words, names = words, q, k, v, width = q[0].length, ...settings }) {
  const all = { q: fromRows(q, width), k: fromRows(k, width), v: fromRows(v), words, names, d_k: width, d_v: v[0].length };
  Object.assign(ours, { heads: 1, head: 0, scale: true, temperature: 1, causal: false, padding: 0, fill: "infinity", closed: [] }, settings, all);
  showOwn();
}

// With more columns than before, those that are added get numbers from -1 to 1 that look random and are always the same.
function widened(of, columns) {
  const rows = Array.from({ length: of.rows }, (_, i) =>
    Array.from({ length: columns }, (_, j) => (j < of.columns ? row(of, i)[j] : Math.round(10 * Math.sin(7 * i + 3 * j + of.columns)) / 10)));
  return fromRows(rows);
}

// Shows the numbers that can be edited, then all that follows from them.
export function showOwn() {
  ours.head = Math.min(ours.head, ours.heads - 1);
  for (const key of ["d_k", "d_v", "heads", "temperature", "padding", "fill"]) at(`#own-${key}`).value = ours[key];
  for (const key of ["scale", "causal"]) at(`#own-${key}`).checked = ours[key];
  at("#own-padding").max = ours.k.rows - 1;
  at("#own-heads").max = Math.max(1, Math.floor(64 / ours.d_k));
  fillSelect("#own-head", Array.from({ length: ours.heads }, (_, head) => [head, head + 1]), ours.head, (head) => {
    ours.head = head;
    showArithmetic();
  });
  for (const [name, names, role] of [["q", ours.words, "query"], ["k", ours.names, "key"], ["v", ours.names, "value"]]) {
    const of = ours[name];
    const count = Math.min(of.columns, SHOWN);
    const cell = (i, j) => {
      const change = ({ target }) => {
        if (target.value === "" || !Number.isFinite(Number(target.value))) return;
        row(of, i)[j] = Number(target.value);
        showArithmetic();
      };
      const label = `${name.toUpperCase()}, ${names[i]}, ${j + 1}`;
      return make("td", {}, make("input", { type: "number", step: "any", value: Number(row(of, i)[j].toFixed(3)), "aria-label": label, oninput: change }));
    };
    const numbers = Array.from({ length: count }, (_, j) => j);
    const head = make("tr", {}, make("td", {}), ...numbers.map((j) => make("th", { scope: "col" }, String(j + 1))));
    const rows = names.map((word, i) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, word), ...numbers.map((j) => cell(i, j))));
    const table = make("table", { class: `grid ${role}` }, make("thead", {}, head), make("tbody", {}, ...rows));
    const more = of.columns > count ? [make("p", { class: "note" }, t("own.more", count + 1, of.columns))] : [];
    at(`#own-${name}`).replaceChildren(table, ...more);
  }
  showArithmetic();
}

// Masks a score, or shows it again.
function toggle(i, j) {
  const n = i * ours.k.rows + j;
  ours.closed = ours.closed.includes(n) ? ours.closed.filter((other) => other !== n) : [...ours.closed, n];
  toggled = [i, j];
  showArithmetic();
  at("#own-stages .mask button[tabindex='0']").focus();
}

function showArithmetic() {
  toggled = [Math.min(toggled[0], ours.words.length - 1), Math.min(toggled[1], ours.names.length - 1)];
  const { divisor, parts, output } = attend(ours.q, ours.k, ours.v, ours);
  const part = parts[ours.head];
  const [words, columns] = [ours.words, ours.names];
  const stages = [
    ["scores", part.scores, "", []], ["scaled", part.scaled, "", [fixed(divisor, 3)]], ["masked", part.masked, "mask", []],
    ["weights", part.weights, "", []], ["output", part.output, "value", []],
  ];
  at("#own-stages").replaceChildren(
    ...stages.map(([name, of, role, values]) => {
      const press = name === "masked" ? toggle : null;
      const label = (i, j, said) => t("own.toggle", words[i], columns[j], said);
      const table = grid(of, words, { columns: name === "output" ? null : columns, role, press, label, chosen: toggled });
      const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": t(`own.${name}`, ...values) }, table);
      return make("div", { class: "stage" }, make("h4", {}, t(`own.${name}`, ...values)), scroll);
    }),
  );
  for (const id of ["#own-concat", "#own-which"]) at(id).hidden = ours.heads === 1;
  at("#own-concat .scroll").replaceChildren(grid(output, words, { role: "value" }));
  const sums = Array.from(words, (_, i) => row(part.weights, i).reduce((all, weight) => all - (weight > 0 ? weight * Math.log(weight) : 0), 0));
  const most = row(part.weights, 0);
  const best = most.indexOf(Math.max(...most));
  at("#own-said").textContent = t("own.said", words[0], columns[best], fixed(most[best], 3), fixed(sums[0], 2), fixed(Math.log(columns.length), 2));
}
