// Maps of numbers with a sign: the effect of each source word, and the positional encoding.

import { at, decoded, fixed, shortest, t } from "./elements.js";
import { sentence } from "./files.js";
import { HeatMap } from "./map.js";

let occlusionMap = null;
let encodingMap = null;

export function showOcclusion(data) {
  at("#not-occluded").hidden = Boolean(data.occlusion);
  at("#occlusion-map").hidden = !data.occlusion;
  if (!data.occlusion) return;
  occlusionMap ??= new HeatMap(at("#occlusion-map"), () => "occlusion");
  const { rows, columns, drops, probabilities } = data.occlusion;
  const without = drops.map((row, i) => row.map((drop) => Math.max(0, probabilities[i] - drop)));
  // Shares, so that improbable words show their losses too.
  const share = (before, after) => (before === after ? 0 : (before - after) / Math.max(before, after));
  const values = Float32Array.from(without.flatMap((row, i) => row.map((after) => share(probabilities[i], after))));
  occlusionMap.show({
    rows, columns, values, low: -1, high: 1, signed: true,
    scale: t("occlusion.scale"),
    caption: `${t("occlusion.caption")}; ${sentence(data)}`,
    label: `${t("occlusion.title")}. ${t("map-keys-plain")}`,
    describe: (row, column) => {
      const [before, after] = [probabilities[row], without[row][column]].map(shortest);
      return t("occlusion.cell", rows[row], columns[column], before, after);
    },
  });
}

export function showEncoding(data) {
  at("#not-encoded").hidden = Boolean(data.positional_encoding);
  at("#encoding-map").hidden = !data.positional_encoding;
  if (!data.positional_encoding) return;
  encodingMap ??= new HeatMap(at("#encoding-map"), () => "positional-encoding");
  const { rows, columns, largest, scheme } = data.positional_encoding;
  const steps = decoded(data.positional_encoding.table);
  const values = Float32Array.from(steps, (step) => ((step - 127) / 127) * largest);
  encodingMap.show({
    rows: Array.from({ length: rows }, (_, i) => String(i)),
    columns: Array.from({ length: columns }, (_, i) => String(i)),
    values, low: -largest, high: largest, signed: true, least: 3,
    scale: t("encoding.scale"),
    caption: `${t("encoding.caption", scheme)}; ${t("model")} ${data.model}`,
    label: `${t("encoding.title")}. ${t("map-keys-plain")}`,
    describe: (row, column) => {
      const text = t("encoding.cell", row, column, fixed(values[row * columns + column]));
      if (scheme !== "sinusoidal") return text;
      const length = 2 * Math.PI * 10000 ** ((2 * Math.floor(column / 2)) / columns);
      return text + t("encoding.wave", fixed(length, 1));
    },
  });
}
