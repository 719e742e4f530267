// One head in five stages: product, scale, mask, softmax, weighted sum.

import { at, decoded, fillSelect, fixed, make, numbered, t } from "./elements.js";
import { sentence } from "./files.js";
import { HeatMap } from "./map.js";

const STAGES = ["product", "scale", "mask", "softmax", "sum"];
const [LARGEST, MASKED] = [2 ** 15 - 1, -(2 ** 15)]; // of the steps of panels.py: the largest number, and -Infinity

let staged = null; // the data that is shown
let stageMap = null;
// What the reader has chosen, which stays when the sentence changes. layer: null, the last.
const view = { kind: "", layer: null, head: 1, stage: "product" };

export function showStages(data) {
  staged = data;
  const { kinds, stages } = data;
  at("#stages").hidden = !kinds.length;
  at("#not-staged").hidden = stages !== null;
  const whole = ({ name, layers }) => stages.find((kind) => kind.name === name)?.layers.length === layers;
  at("#stages-left-out").hidden = stages === null || kinds.every(whole);
  at("#stages-shown").hidden = !stages?.length;
  if (!stages?.length) return;
  stageMap ??= new HeatMap(at("#stages-map"), stageFile, pressOnStage);
  at("#stages-stage").replaceChildren(
    make("legend", {}, t("stages.stage")),
    ...STAGES.map((stage) => {
      const onchange = () => look({ stage });
      return make("label", {}, make("input", { type: "radio", name: "stage", value: stage, onchange }), ` ${t(`stage.${stage}`)}`);
    }),
  );
  drawStage();
}

// What is shown: the chosen one where it is in the data.
function looked() {
  const kind = staged.stages.find(({ name }) => name === view.kind) ?? staged.stages.at(-1);
  const { layers, heads } = kind;
  const layer = layers.includes(view.layer) ? view.layer : layers.at(-1);
  return { kind, layer, head: Math.min(view.head, heads), number: layers.indexOf(layer) * heads + Math.min(view.head, heads) - 1 };
}

function look(changes) {
  Object.assign(view, changes);
  drawStage();
}

const stageFile = () => {
  const { kind, layer, head } = looked();
  return `${kind.name}-${layer}-${head}-${view.stage}`;
};

function pressOnStage(key) {
  const { kind, layer } = looked();
  const turn = { "[": -1, "]": 1 }[key];
  const step = { "-": -1, "+": 1 }[key];
  const next = STAGES[STAGES.indexOf(view.stage) + step];
  if (kind.layers.includes(layer + turn)) look({ layer: layer + turn });
  else if (next) look({ stage: next });
  else if (/^[1-9]$/.test(key) && Number(key) <= kind.heads) look({ head: Number(key) });
  else return Boolean(turn || step);
  return true;
}

function unpacked({ largest, steps }, number, size) {
  const table = new Int16Array(decoded(steps).buffer, 2 * size * number, size);
  return Float32Array.from(table, (step) => (step === MASKED ? -Infinity : (step / LARGEST) * largest[number]));
}

// The numbers of each stage of a head.
function stagesOf(kind, number) {
  const [tall, wide] = [kind.rows.length, kind.columns.length];
  const product = unpacked(kind.product, number, tall * wide);
  const scale = product.map((value) => value / kind.divisor);
  const mask = kind.masked ? unpacked(kind.masked, number, tall * wide) : scale;
  const dimensions = decoded(kind.output.steps).length / 2 / kind.output.largest.length / tall;
  const sum = unpacked(kind.output, number, tall * dimensions);
  return { dimensions, product, scale, mask, softmax: unpacked(kind.weights, number, tall * wide), sum };
}

// What a stage does, with what it does here.
function stageTitle(kind, tables) {
  if (view.stage === "scale") return kind.divisor === 1 ? t("stages.unscaled") : t("stages.scale", fixed(kind.divisor));
  if (view.stage !== "mask") return t(`stages.${view.stage}`);
  if (!kind.masked) return t("stages.unmasked");
  const added = tables.mask.some((value, i) => value !== -Infinity && Math.abs(value - tables.scale[i]) > 0.001);
  return t("stages.mask") + (added ? t("stages.added") : "");
}

function drawStage() {
  const { kind, layer, head, number } = looked();
  const { stages, kinds } = staged;
  fillSelect("#stages-kind", stages.map(({ name }) => [name, t(`kind.${name}`)]), kind.name, (name) => look({ kind: name }));
  fillSelect("#stages-layer", kind.layers.map((one) => [one, one]), layer, (one) => look({ layer: one }));
  fillSelect("#stages-head", numbered(kind.heads), head, (one) => look({ head: one }));
  at(`#stages-stage [value="${view.stage}"]`).checked = true;
  const tables = stagesOf(kind, number);
  const values = tables[view.stage];
  const ofKeys = view.stage !== "sum";
  const columns = ofKeys ? kind.columns : Array.from({ length: tables.dimensions }, (_, i) => String(i + 1));
  const most = values.reduce((a, b) => (b === -Infinity ? a : Math.max(a, Math.abs(b))), 1e-6);
  const signed = view.stage !== "softmax";
  const total = kinds.find(({ name }) => name === kind.name).layers;
  const which = `${t(`kind.${kind.name}`)}; ${t("which.head", layer, total, head, kind.heads)}; ${stageTitle(kind, tables)}`;
  stageMap.show({
    rows: kind.rows, columns, values, signed, low: signed ? -most : 0, high: signed ? most : 1, least: 40, numbered: true,
    scale: t(`stage.${view.stage}`),
    caption: `${which}; ${t(ofKeys ? "stages.keys-in-columns" : "stages.dimensions-in-columns")}; ${sentence(staged)}`,
    label: `${which}. ${t("stages.move")}`,
    describe: (row, column) => {
      const cell = row * columns.length + column;
      if (!ofKeys) return t("stages.output", kind.rows[row], column + 1, fixed(values[cell]));
      const path = [tables.product, tables.scale, tables.mask, tables.softmax].map((table) => fixed(table[cell]));
      return t("stages.cell", kind.rows[row], columns[column], ...path);
    },
  });
}
