// Attention: all maps of a kind as thumbnails, and one large.

import { at, decoded, fixed, language, make, palette, t, variable } from "./elements.js";
import { sentence } from "./files.js";
import { HeatMap, paintPixels } from "./map.js";

let attended = null; // the data that is shown
let needed = null;
let word = null; // that the reader has gone to
let wentTo = ""; // word, sentence and kind for which the cursor has gone there
export let kinds = [];
let map = null;
let thumbnailsOf = ""; // what the thumbnails show now
const state = { kind: 0, layer: 0, head: 0, show: "head" }; // what is shown of it
Object.assign(state, { subwords: false, special: false, punctuation: false, whole: false });
const chosen = {}; // what the reader has chosen of that, which stays when the sentence changes: a kind by its name

// missing: asked for the weights of a kind, by its name, that are not in the data; what is shown then is its frame.
// marked: the word to mark, with its `side`, its `label`, and how many words of the sentence `before` it have the same one.
export function showAttention(data, missing, marked = null) {
  at("#attention").hidden = !data.kinds.length;
  [needed, word] = [missing, marked];
  if (data !== attended) takeAttention(data);
  if (kinds.length) drawAttention();
}

function takeAttention(data) {
  attended = data;
  thumbnailsOf = "";
  kinds = data.kinds.map((kind) => ({
    ...kind,
    weights: decoded(kind.weights),
    rollout: kind.rollout && decoded(kind.rollout),
    size: data[kind.rows].tokens.length * data[kind.columns].tokens.length,
  }));
  if (!kinds.length) return;
  map ??= setUpAttention();
  makeTabs();
  const kind = kinds.findIndex(({ name }) => name === chosen.kind);
  state.kind = kind < 0 ? kinds.length - 1 : kind;
  // What links words is a good one to begin with: the head that aligns them best, or the mean of the last layer.
  const { layer, head } = data.alignment ?? { layer: kinds.at(-1).layers, head: null };
  const first = { layer: layer - 1, head: (head ?? 1) - 1, show: head ? "head" : "mean" };
  Object.assign(state, first, chosen, { kind: state.kind });
  keepWithin(kinds[state.kind]);
}

function keepWithin(kind) {
  state.layer = Math.max(0, Math.min(kind.layers - 1, state.layer));
  state.head = Math.max(0, Math.min(kind.heads - 1, state.head));
}

// With `focus`, the thumbnail that is chosen is the one that keys go to.
export function choose(changes, focus = false) {
  Object.assign(state, changes);
  keepWithin(kinds[state.kind]);
  for (const name of Object.keys(changes)) chosen[name] = name === "kind" ? kinds[state.kind].name : state[name];
  drawAttention();
  if (focus) at(`#thumbnails button[data-layer="${state.layer}"][data-head="${state.head}"]`).focus();
}

// Opens a head, whose layer and number are counted from 1.
export function openHead({ kind, layer, head }) {
  const panel = at("#attention").closest("details"); // on the page of the server
  if (panel) panel.open = true;
  choose({ kind: kinds.findIndex(({ name }) => name === kind), layer: layer - 1, head: head - 1, show: "head" });
  map.canvas.scrollIntoView({ block: "center" });
  map.canvas.focus({ preventScroll: true });
}

const SMALL = 100000; // cells of all thumbnails that need no bits
const AT_ONCE = 20000; // cells of thumbnails that are painted in one go
const HIDDEN = ["special", "punctuation"]; // what can be hidden

// The labels of a sentence with the tokens of each, of words or of subwords, without the tokens of `hidden`.
export function labelled(sentence, subwords, hidden = new Set()) {
  const groups = subwords ? sentence.tokens.map((label, i) => ({ label, tokens: [i, i + 1] })) : sentence.words;
  return groups
    .map(({ label, tokens: [start, end] }) => ({
      label,
      tokens: Array.from({ length: end - start }, (_, i) => start + i).filter((token) => !hidden.has(token)),
    }))
    .filter(({ tokens }) => tokens.length);
}

// The rows and columns that are shown, and all columns there are.
function labelsOf(kind) {
  const hidden = (sentence) => new Set(HIDDEN.flatMap((name) => (state[name] ? sentence[name] : [])));
  const [queries, keys] = [attended[kind.rows], attended[kind.columns]];
  return {
    rows: labelled(queries, state.subwords, hidden(queries)),
    columns: labelled(keys, state.subwords, hidden(keys)),
    every: labelled(keys, state.subwords),
    width: keys.tokens.length,
  };
}

// The sum over a column's tokens, the mean over a row's.
export function merged(weights, width, rows, columns) {
  const result = new Float32Array(rows.length * columns.length);
  const columnOf = new Int16Array(width).fill(-1);
  columns.forEach(({ tokens }, column) => tokens.forEach((token) => (columnOf[token] = column)));
  rows.forEach(({ tokens }, y) => {
    const [start, part] = [y * columns.length, 1 / (255 * tokens.length)];
    for (const token of tokens) {
      for (let other = 0; other < width; other++) {
        if (columnOf[other] >= 0) result[start + columnOf[other]] += weights[token * width + other] * part;
      }
    }
  });
  return result;
}

function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}

// The maps of one layer, of all, or of one head, as one.
function aggregated(kind, { show, layer, head }, { width, rows }, columns) {
  const one = (block, number) =>
    merged(block.subarray(number * kind.size, (number + 1) * kind.size), width, rows, columns);
  if (show === "head") return one(kind.weights, layer * kind.heads + head);
  if (show === "rollout") return one(kind.rollout, layer);
  const layers = show.endsWith("all") ? [...Array(kind.layers).keys()] : [layer];
  const result = new Float32Array(rows.length * columns.length);
  for (const number of layers) {
    for (let other = 0; other < kind.heads; other++) {
      const weights = one(kind.weights, number * kind.heads + other);
      if (show.startsWith("mean")) weights.forEach((value, i) => (result[i] += value / (layers.length * kind.heads)));
      else weights.forEach((value, i) => (result[i] = Math.max(result[i], value)));
    }
  }
  return result;
}

// Where something is hidden, each row is scaled to the sum it had.
function weightsOf(kind, which, labels) {
  const { rows, columns, every } = labels;
  const result = aggregated(kind, which, labels, columns);
  if (!state.special && !state.punctuation) return result;
  const whole = aggregated(kind, which, labels, every);
  const sum = (values, row, width) => values.subarray(row * width, (row + 1) * width).reduce((a, b) => a + b, 0);
  rows.forEach((_, row) => {
    const shown = sum(result, row, columns.length);
    const scale = shown > 0 ? sum(whole, row, every.length) / shown : 0;
    for (let i = row * columns.length; i < (row + 1) * columns.length; i++) result[i] *= scale;
  });
  return result;
}

function whichOf(kind) {
  const { show, layer, head } = state;
  const alone = kind.heads === 1 && ["mean", "max"].includes(show);
  if (show === "head" || alone) return t("which.head", layer + 1, kind.layers, head + 1, kind.heads);
  return t(`which.${show}`, layer + 1, kind.layers, kind.heads);
}

function drawAttention() {
  const kind = kinds[state.kind];
  at("#kind-means").textContent = t(`means.${kind.name}`);
  markTabs();
  for (const id of ["thumbnails", "attention-map"]) at(`#${id}`).hidden = !kind.weights;
  if (!kind.weights) return needed(kind.name);
  if (state.show === "rollout" && !kind.rollout) state.show = "head";
  at('#show [value="rollout"]').disabled = !kind.rollout;
  const labels = labelsOf(kind);
  const values = weightsOf(kind, state, labels);
  const [rows, columns] = [labels.rows.map((row) => row.label), labels.columns.map((column) => column.label)];
  const most = largest(values);
  const rules = [t(state.subwords ? "rule.subwords" : "rule.words")];
  const hidden = HIDDEN.filter((name) => state[name]).map((name) => t(`hidden.${name}`));
  if (hidden.length) rules.push(t("rule.hidden", hidden.join(", ")));
  at("#show").value = state.show;
  const mark = { row: placeOf(kind.rows, labels.rows), column: placeOf(kind.columns, labels.columns) };
  map.show({
    rows,
    columns,
    values,
    mark,
    low: 0,
    high: state.whole ? 1 : most,
    scale: t(state.whole ? "scale.whole" : "scale.own"),
    caption: [t(`kind.${kind.name}`), whichOf(kind), ...rules, t("rule.rounded"), sentence(attended)].join("; "),
    label: `${t(`kind.${kind.name}`)}, ${whichOf(kind)}. ${t("map-keys")}`,
    describe: (row, column) => {
      const inRow = values.subarray(row * columns.length, (row + 1) * columns.length);
      const weight = inRow[column];
      const rank = 1 + inRow.filter((other) => other > weight).length;
      return t("cell", rows[row], columns[column], fixed(weight), rank, columns.length, row + 1, column + 1);
    },
  });
  goToMark(kind, mark, values, columns.length);
  drawThumbnails(kind, labels);
}

// Which row or column belongs to the word that the reader has gone to; -1: none.
function placeOf(name, labels) {
  if (!word || (word.side === "source") !== (name === "source")) return -1;
  const same = attended[name].words.filter(({ label }) => label === word.label);
  const token = same[word.before]?.tokens[0];
  return labels.findIndex(({ tokens }) => tokens.includes(token));
}

// Goes once to the largest weight of the word.
function goToMark({ name }, { row, column }, values, width) {
  const here = JSON.stringify([word, attended.source.text, attended.target.text, name]);
  if (here === wentTo || (row < 0 && column < 0)) return;
  wentTo = here;
  map.pinned = false;
  const inLine = row < 0 ? values.filter((_, i) => i % width === column) : values.subarray(row * width, (row + 1) * width);
  const best = inLine.indexOf(largest(inLine));
  map.goTo(...(row < 0 ? [best, column] : [row, best]));
}

function markTabs() {
  for (const tab of document.querySelectorAll("#kinds [role=tab]")) {
    const selected = Number(tab.dataset.kind) === state.kind;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) at("#attention").setAttribute("aria-labelledby", tab.id);
  }
}

function drawThumbnails(kind, labels) {
  const thumbnails = at("#thumbnails");
  const current = [state.kind, state.subwords, state.special, state.punctuation, variable("--map"), language].join();
  if (current !== thumbnailsOf) {
    thumbnailsOf = current;
    thumbnails.style.gridTemplateColumns = `auto repeat(${kind.heads}, max-content)`;
    const layers = [...Array(kind.layers).keys()];
    const heads = [...Array(kind.heads).keys()];
    thumbnails.replaceChildren(
      make("span", {}),
      ...heads.map((head) => make("span", {}, `${t("head")} ${head + 1}`)),
      ...layers.flatMap((layer) => [
        make("span", {}, `${t("layer")} ${layer + 1}`),
        ...heads.map((head) => thumbnail(layer, head)),
      ]),
    );
    paintThumbnails(kind, labels, [...thumbnails.querySelectorAll("button")], SMALL);
  }
  for (const button of thumbnails.querySelectorAll("button")) {
    const [layer, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
    const here = layer === state.layer && head === state.head;
    button.tabIndex = here ? 0 : -1;
    button.setAttribute("aria-pressed", here && state.show === "head");
  }
}

function thumbnail(layer, head) {
  const name = `${t("layer")} ${layer + 1}, ${t("head")} ${head + 1}`;
  const onclick = () => choose({ layer, head, show: "head" }, true);
  const attributes = { type: "button", "data-layer": layer, "data-head": head, "aria-label": name, title: name };
  return make("button", { ...attributes, onclick }, make("canvas", {}));
}

// Many large ones bit by bit, so that what was chosen is seen before.
function paintThumbnails(kind, labels, buttons, atOnce = AT_ONCE) {
  const colours = palette("--map");
  const cells = labels.rows.length * labels.columns.length || 1;
  const later = atOnce === SMALL && cells * buttons.length > SMALL;
  for (const button of later ? [] : buttons.splice(0, Math.ceil(atOnce / cells))) {
    const which = { show: "head", layer: Number(button.dataset.layer), head: Number(button.dataset.head) };
    const values = weightsOf(kind, which, labels);
    const most = largest(values) || 1;
    paintPixels(at("canvas", button), values, labels.columns.length, colours, (value) => value / most);
  }
  if (buttons.length) setTimeout(() => buttons[0].isConnected && paintThumbnails(kind, labels, buttons));
}

function makeTabs() {
  const tabs = kinds.map(({ name }, number) => {
    const attributes = { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "attention" };
    const onclick = () => choose({ kind: number });
    return make("button", { ...attributes, "data-kind": number, "data-t": `kind.${name}`, onclick }, t(`kind.${name}`));
  });
  at("#kinds").replaceChildren(...tabs);
}

// Returns the large map.
function setUpAttention() {
  at("#kinds").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    choose({ kind: (state.kind + step + kinds.length) % kinds.length });
    at('#kinds [aria-selected="true"]').focus();
  });
  for (const show of ["head", "mean", "max", "rollout", "mean-all", "max-all"]) {
    at("#show").append(make("option", { value: show, "data-t": `show.${show}` }, t(`show.${show}`)));
  }
  at("#show").addEventListener("change", (event) => choose({ show: event.target.value }));
  const boxes = { subwords: "subwords", special: "hide-special", punctuation: "hide-punctuation", whole: "whole-scale" };
  for (const [name, id] of Object.entries(boxes)) {
    at(`#${id}`).addEventListener("change", (event) => choose({ [name]: event.target.checked }));
  }
  at("#thumbnails").addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    choose({ layer: state.layer + move[0], head: state.head + move[1], show: "head" }, true);
  });
  return new HeatMap(at("#attention-map"), () => `${kinds[state.kind].name}-attention`, (key) => {
    const kind = kinds[state.kind];
    if (key === "[" || key === "]") choose({ layer: state.layer + (key === "]" ? 1 : -1) });
    else if (/^[1-9]$/.test(key) && Number(key) <= kind.heads) choose({ head: Number(key) - 1, show: "head" });
    else return false;
    return true;
  });
}
