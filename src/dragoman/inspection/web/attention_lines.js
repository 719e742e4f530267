// Attention as lines between two columns of words, in a colour for each head.

import { kinds, labelled, merged } from "./attention.js";
import { showDrawn } from "./drawn.js";
import { at, fillSelect, fixed, make, numbered, shortened, t } from "./elements.js";
import { sentence, xml } from "./files.js";
import { MAX_LABEL, widest } from "./map.js";

const FAINT = 0.05; // weights below it have no line
// 3 to 1 at least on white and on the dark ground; colours and dashes change together, so that heads differ in grey, too.
const COLOURS = ["#1f83c9", "#d55e00", "#009e73", "#888888", "#cc79a7", "#a3781a", "#7a6fd0"];
const DASHES = ["", "8 4", "8 3 2 3", "2 3"];
const [ROW, LEGEND] = [26, 76]; // pixels of a word's height, and of a head's width in the legend

let lined = null; // the data that is shown
// What the reader has chosen, which stays when the sentence changes. layer: null, the last; off: heads that are not shown;
// word: number of the query whose lines are shown, '' for all.
const picked = { kind: "", layer: null, off: new Set(), word: "", subwords: false };

const pickedKind = () => kinds.find(({ name }) => name === picked.kind) ?? kinds.at(-1);
const pickedLayer = (kind) => Math.min(picked.layer ?? kind.layers, kind.layers);

// After `showAttention`, whose weights it shows.
export function showLines(data) {
  at("#lines").hidden = !data.kinds.length;
  if (!data.kinds.length) return;
  if (data !== lined) picked.word = "";
  lined = data;
  const kind = pickedKind();
  const pick = (changes) => {
    Object.assign(picked, { word: "" }, changes);
    showLines(data);
  };
  fillSelect("#lines-kind", kinds.map(({ name }) => [name, t(`kind.${name}`)]), kind.name, (name) => pick({ kind: name }));
  fillSelect("#lines-layer", numbered(kind.layers), pickedLayer(kind), (layer) => pick({ layer }));
  const words = labelled(data[kind.rows], picked.subwords).map(({ label }, row) => [row, label]);
  fillSelect("#lines-word", [["", t("lines.all")], ...words], picked.word, (word) => pick({ word }));
  at("#lines-subwords").onchange = (event) => pick({ subwords: event.target.checked });
  at("#lines-picture").onclick = ({ target: { dataset } }) => dataset.row && pick({ word: Number(dataset.row) });
  at("#lines-heads").replaceChildren(
    make("legend", {}, t("lines.heads")),
    ...numbered(kind.heads).map(([head]) => headBox(head)),
  );
  drawLines();
}

function headBox(head) {
  const onchange = () => {
    if (!picked.off.delete(head)) picked.off.add(head);
    drawLines();
  };
  const box = make("input", { type: "checkbox", "data-head": head, onchange });
  box.checked = !picked.off.has(head);
  const label = make("label", {}, box, ` ${head}`);
  label.style.borderBottom = `4px solid ${colourOf(head)}`;
  return label;
}

const colourOf = (head) => COLOURS[(head - 1) % COLOURS.length];

function drawLines() {
  const kind = pickedKind();
  const layer = pickedLayer(kind);
  const [rows, columns] = [kind.rows, kind.columns].map((side) => labelled(lined[side], picked.subwords));
  const heads = numbered(kind.heads).map(([head]) => head).filter((head) => !picked.off.has(head));
  const tables = heads.map((head) => {
    const start = ((layer - 1) * kind.heads + head - 1) * kind.size;
    return merged(kind.weights.subarray(start, start + kind.size), lined[kind.columns].tokens.length, rows, columns);
  });
  const from = rows.map((_, row) => row).filter((row) => picked.word === "" || row === picked.word);
  const weight = (table, row, column) => table[row * columns.length + column];
  const best = (table, row) => columns.map(({ label }, i) => [weight(table, row, i), label]).sort((a, b) => b[0] - a[0])[0];
  const read = picked.word === "" ? [] : tables.map((table, i) => {
    const [most, label] = best(table, from[0]);
    return t("lines.read", heads[i], label, fixed(most));
  });
  at("#lines .readout").textContent = read.length ? `“${rows[from[0]].label}”: ${read.join("; ")}` : "";
  const which = t("lines.which", layer, kind.layers, heads.join(", ") || "–");
  const rule = t(picked.subwords ? "rule.subwords" : "rule.words");
  const lines = from.flatMap((row) =>
    columns.flatMap((_, column) => {
      const weights = tables.map((table) => weight(table, row, column));
      return weights.some((value) => value >= FAINT) ? [{ row, column, weights }] : [];
    }),
  );
  const [labels, others] = [rows, columns].map((side) => side.map(({ label }) => label));
  showDrawn("lines", {
    name: `${kind.name}-attention-lines`,
    caption: [t(`kind.${kind.name}`), which, rule, t("rule.rounded"), t("lines.faint", FAINT), sentence(lined)].join("; "),
    draw: (ink) => linesSvg(labels, others, heads, lines, ink),
    json: () => ({ kind: kind.name, layer, heads, rows: labels, columns: others, weights: tables.map((table) =>
      labels.map((_, row) => others.map((_, column) => Number(weight(table, row, column).toFixed(4))))) }),
    rows: () => [
      [t("lines.from"), t("lines.to"), ...heads.map((head) => `${t("head")} ${head}`)],
      ...lines.map(({ row, column, weights }) => [labels[row], others[column], ...weights.map((value) => fixed(value))]),
    ],
  });
}

function linesSvg(labels, others, heads, lines, ink) {
  const [left, right] = [labels, others].map((side) => widest(side) + 12);
  const gap = Math.max(120, Math.min(420, at("#lines-picture").clientWidth - left - right - 4));
  const width = Math.ceil(left + gap + right);
  const inRow = Math.max(1, Math.floor(width / LEGEND));
  const top = 20 * Math.ceil(heads.length / inRow) + 8;
  const tall = ROW * Math.max(labels.length, others.length);
  const y = (index, side) => top + (tall * (index + 0.5)) / side.length;
  const pen = (head) => `stroke="${colourOf(head)}" stroke-dasharray="${DASHES[(head - 1) % DASHES.length]}"`;
  const word = (label, x, height, anchor, rest) =>
    `<text x="${x}" y="${height + 4}" font-size="13" text-anchor="${anchor}" fill="${ink}" ${rest}>${xml(shortened(label, MAX_LABEL))}</text>`;
  const legend = heads.map((head, i) => {
    const [x, height] = [LEGEND * (i % inRow) + 4, 20 * Math.floor(i / inRow) + 12];
    return (
      `<line x1="${x}" y1="${height}" x2="${x + 18}" y2="${height}" stroke-width="3" ${pen(head)}/>` +
      word(`${t("head")} ${head}`, x + 22, height, "start", "")
    );
  });
  // Several heads lie beside each other, not on top of each other.
  const aside = (i) => ((i - (heads.length - 1) / 2) * 0.4 * ROW) / Math.max(1, heads.length);
  const drawn = lines.flatMap(({ row, column, weights }) =>
    weights.map((weight, i) =>
      weight < FAINT
        ? ""
        : `<line x1="${left}" y1="${y(row, labels) + aside(i)}" x2="${left + gap}" y2="${y(column, others) + aside(i)}" ` +
          `stroke-width="${0.5 + 3 * weight}" stroke-opacity="${Math.min(1, weight + 0.1)}" ${pen(heads[i])}/>`,
    ),
  );
  const chosen = (row) => `data-row="${row}" font-weight="${row === picked.word ? "bold" : "normal"}"`;
  const words = [
    ...labels.map((label, row) => word(label, left - 6, y(row, labels), "end", chosen(row))),
    ...others.map((label, column) => word(label, left + gap + 6, y(column, others), "start", "")),
  ];
  return { content: [...legend, ...drawn, ...words].join(""), width: Math.max(width, 280), height: top + tall + 4 };
}
