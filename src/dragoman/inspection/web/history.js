// The page of `dragoman insight`: cross-attention at each checkpoint of a run; the tables are in the document.

import { at, decoded, language, make, read, speak, t, themed, variable } from "./elements.js";
import { setUpPlayer } from "./player.js";

const data = read("data");
const weights = new DataView(decoded(data.weights).buffer); // 16 bits each
const [, layers, heads, rows, columns] = data.shape;
const [step, layer, head] = ["#step", "#layer", "#head"].map((selector) => at(selector));
const cells = [...document.querySelectorAll("#map tbody td")];
const stepText = (number) => data.steps[number].toLocaleString("en");

function weightAt(snapshot, head, row, column) {
  const index = (((snapshot * layers + Number(layer.value) - 1) * heads + head - 1) * rows + row) * columns + column;
  return weights.getUint16(2 * index, true) / data.scale;
}

function weight(snapshot, row, column) {
  if (+head.value) return weightAt(snapshot, +head.value, row, column);
  let sum = 0;
  for (let each = 1; each <= heads; each++) sum += weightAt(snapshot, each, row, column);
  return sum / heads;
}

function shade(cell, value) {
  cell.style.setProperty("--w", value.toFixed(3));
  cell.classList.toggle("dark", value > 0.65);
}

function show() {
  const snapshot = +step.value;
  for (let row = 0; row < rows; row++) {
    const inRow = Array.from({ length: columns }, (_, column) => weight(snapshot, row, column));
    const most = inRow.indexOf(Math.max(...inRow));
    inRow.forEach((value, column) => {
      const cell = cells[row * columns + column];
      cell.textContent = value.toFixed(2);
      cell.classList.toggle("most", column === most);
      shade(cell, value);
    });
  }
  at("#readout").textContent = t("readout", stepText(snapshot), data.losses[snapshot].toFixed(3));
  step.setAttribute("aria-valuetext", at("#readout").textContent);
  for (const [number, button] of document.querySelectorAll("#snapshots button").entries()) {
    button.setAttribute("aria-pressed", number === snapshot);
  }
}

function paint() {
  const ink = variable("--mark").split(" ").map(Number);
  for (const [snapshot, button] of document.querySelectorAll("#snapshots button").entries()) {
    const image = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        image.data.set([...ink, Math.round(255 * weight(snapshot, row, column))], 4 * (row * columns + column));
      }
    }
    at("canvas", button).getContext("2d").putImageData(image, 0, 0);
    at("span", button).textContent = t("step", stepText(snapshot));
  }
}

function render() {
  paint();
  show();
}

const stop = setUpPlayer(at("#play"), step, show);
for (const choice of [layer, head]) choice.addEventListener("change", render);
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    speak(button.dataset.language);
    render();
  });
}
themed.addEventListener("change", paint);
for (const cell of document.querySelectorAll("td[data-w]")) shade(cell, Number(cell.dataset.w));
at("#snapshots").append(
  ...data.steps.map((_, snapshot) => {
    const choose = () => {
      stop();
      step.value = snapshot;
      show();
    };
    const canvas = make("canvas", { width: columns, height: rows });
    return make("li", {}, make("button", { type: "button", onclick: choose }, canvas, make("span", {})));
  }),
);
speak(language);
render();
