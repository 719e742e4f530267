// Tables of numbers, each cell shaded by its number.

import { fixed, make } from "./elements.js";
import { row } from "./tape.js";

const WIDEST = 32; // columns that are shown of a matrix
const exactly = (value) => (Math.abs(value) >= 1000 && Number.isFinite(value) ? value.toExponential(1).replace("-", "−") : fixed(value, 2));

// What a cell shows, and how dark it is: 1 for the largest number of its table.
export function shaded(cell, value, most, text = exactly(value)) {
  cell.textContent = text;
  cell.style.setProperty("--w", Number.isFinite(value) ? Math.min(1, Math.abs(value) / most).toFixed(3) : 0);
  cell.className = value === -Infinity ? "hidden-cell" : value < 0 ? "negative" : "positive";
  return cell;
}

export const largest = (of) => of.data.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 1e-9);

// A table of a matrix. names: of its rows; columns: their names, by default numbers; role: its colour; press: makes
// each cell a button for (row, column), of which Tab reaches `chosen`; label: of such a button; masked: scores, which
// are -Infinity where a cell is hidden.
export function grid(of, names, { columns = null, role = "", press = null, chosen = [0, 0], label = null, masked = of } = {}) {
  const count = Math.min(of.columns, columns ? of.columns : WIDEST);
  const most = largest(of);
  const heads = Array.from({ length: count }, (_, j) => make("th", { scope: "col", dir: "auto" }, columns ? columns[j] : String(j + 1)));
  const cell = (i, j) => {
    const value = row(of, i)[j];
    if (!press) return shaded(make("td", {}), value, most);
    const first = i === chosen[0] && j === chosen[1];
    const button = shaded(make("button", { type: "button", tabindex: first ? 0 : -1, onclick: () => press(i, j) }), value, most);
    button.setAttribute("aria-label", label(i, j, button.textContent));
    if (row(masked, i)[j] === -Infinity) button.className = "hidden-cell";
    return make("td", {}, button);
  };
  const body = names.map((name, i) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, name), ...heads.map((_, j) => cell(i, j))));
  const corner = make("td", {}, count < of.columns ? `${count} / ${of.columns}` : "");
  const table = make("table", { class: `grid ${role}` }, make("thead", {}, make("tr", {}, corner, ...heads)), make("tbody", {}, ...body));
  if (press) table.addEventListener("keydown", (event) => moveInGrid(event, table, count));
  return table;
}

function moveInGrid(event, table, columns) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const buttons = [...table.querySelectorAll("button")];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
