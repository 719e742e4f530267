// The cross-attention of a sample sentence at each checkpoint of a run.

import { ask } from "./api.js";
import { at, decoded, fixed, language, make, t } from "./elements.js";
import { HeatMap } from "./map.js";
import { setUpPlayer } from "./player.js";

const [moment, layer, head] = ["#moment", "#film-layer", "#film-head"].map((selector) => at(selector));
const stop = setUpPlayer(at("#play"), moment, drawFilm);
let film = null;
let map = null;

// Asks for the film of a sentence, counted from 1, and shows it.
export async function openFilm(path, name, sentence) {
  stop();
  at("#film").hidden = false;
  at("#film-status").textContent = t("film.working");
  at("#film-title").scrollIntoView();
  try {
    const made = await ask(path, { body: { sentence } });
    film = { ...made, name, bytes: decoded(made.weights) };
    const numbers = (count) => Array.from({ length: count }, (_, i) => make("option", { value: i + 1 }, i + 1));
    Object.assign(moment, { max: film.steps.length - 1, value: film.steps.length - 1 });
    layer.replaceChildren(...numbers(film.layers));
    head.replaceChildren(make("option", { value: 0 }), ...numbers(film.heads));
    [layer.value, head.value] = [film.layer, film.head];
    at("#film-status").textContent = "";
    drawFilm();
    moment.focus();
  } catch (error) {
    at("#film-status").textContent = error.message || t(error.kind);
  }
}

function weights() {
  const size = film.target.length * film.source.length;
  const start = (Number(moment.value) * film.layers + Number(layer.value) - 1) * film.heads;
  const one = (number) => film.bytes.subarray((start + number) * size, (start + number + 1) * size);
  const heads = Number(head.value) ? [one(Number(head.value) - 1)] : Array.from({ length: film.heads }, (_, i) => one(i));
  return Float32Array.from({ length: size }, (_, i) => heads.reduce((sum, part) => sum + part[i], 0) / heads.length / 255);
}

export function drawFilm() {
  if (!film) return;
  head.options[0].textContent = t("film.mean");
  const values = weights();
  const step = film.steps[moment.value].toLocaleString(language);
  const which = Number(head.value) ? `${t("head")} ${head.value}` : t("film.mean");
  at("#moment-shown").textContent = t("film.step", step);
  moment.setAttribute("aria-valuetext", t("film.step", step));
  map ??= new HeatMap(at("#film-map"), () => "cross-attention");
  map.show({
    rows: film.target, columns: film.source, values, low: 0, high: values.reduce((a, b) => Math.max(a, b), 0.001),
    scale: t("scale.own"),
    caption: t("film.caption", film.name, step, `${t("layer")} ${layer.value}, ${which}`),
    label: `${t("film")}. ${t("map-keys-plain")}`,
    describe: (row, column) => `“${film.target[row]}” → “${film.source[column]}”: ${fixed(values[row * film.source.length + column])}`,
  });
}

for (const choice of [layer, head]) choice.addEventListener("change", drawFilm);
