// Tables: the heads, and the probabilities of the positions.

import { openHead } from "./attention.js";
import { at, fixed, language, make, t, table } from "./elements.js";
import { saveButtons, sentence, tableDrawing } from "./files.js";

const STATISTICS =
  "entropy normalised_entropy distance offset max_weight previous same next special punctuation diversity".split(" ");
let sorted = { column: null, up: true };
let made = {}; // rows, of which data and in which language

export function showHeads(data) {
  at("#heads").hidden = !data.heads.length;
  if (made.heads !== data.heads || made.language !== language) {
    made = { heads: data.heads, language, rows: data.heads.map((row) => make("tr", {}, ...headCells(row))) };
    at("#heads-table").replaceChildren(table([], []));
  }
  const order = data.heads.map((row, number) => ({ ...row, where: number }));
  if (sorted.column) {
    const sign = sorted.up ? 1 : -1;
    const last = (row) => (row[sorted.column] === null ? 1 : 0); // what has no value comes last
    order.sort((a, b) => last(a) - last(b) || sign * (a[sorted.column] - b[sorted.column]));
  }
  const heading = (column, title) => {
    const direction = sorted.column === column ? (sorted.up ? "ascending" : "descending") : "none";
    const mark = { ascending: " ▲", descending: " ▼", none: "" }[direction];
    const sort = () => {
      sorted = { column, up: sorted.column === column ? !sorted.up : column === "where" };
      showHeads(data);
      at(`#heads-table [data-column="${column}"]`).focus();
    };
    const button = make("button", { type: "button", "data-column": column, onclick: sort }, title + mark);
    const tip = column === "where" ? null : t(`tip.${column}`);
    return make("th", { scope: "col", "aria-sort": direction, title: tip }, button);
  };
  const head = [heading("where", t("head")), ...STATISTICS.map((name) => heading(name, t(`statistic.${name}`)))];
  at("#heads-table thead tr").replaceChildren(...head);
  at("#heads-table tbody").replaceChildren(...order.map(({ where }) => made.rows[where]));
  saveTable("heads", data, { heads: data.heads });
}

function headCells(row) {
  const onclick = () => openHead(row);
  const name = `${t(`kind.${row.kind}`)} ${row.layer}.${row.head}`;
  const cells = STATISTICS.map((name) => make("td", {}, row[name] === null ? "–" : fixed(row[name])));
  const pattern = row.pattern ? ` (${t(`pattern.${row.pattern}`)})` : "";
  return [make("th", { scope: "row" }, make("button", { type: "button", onclick }, name), pattern), ...cells];
}

// Lets a table be saved as it is shown, and its numbers.
function saveTable(id, data, numbers) {
  const caption = () => `${t(`${id}.title`)}; ${sentence(data)}`;
  const rows = () => [...document.querySelectorAll(`#${id}-table tr`)].map((row) => [...row.cells].map((cell) => cell.textContent));
  const svg = (below) => tableDrawing(rows(), below);
  const name = () => (id === "positions" ? "probabilities" : id);
  saveButtons(at(`#${id}-save`), { name, caption, svg, json: () => ({ caption: caption(), ...numbers }), rows });
}

export function showPositions(data) {
  const titles = ["position", "token", "probability", "rank", "entropy", "alternatives"];
  const body = data.positions.map((position, number) => {
    const part = make("span", { class: "part" });
    part.style.width = `${6 * position.probability}rem`;
    const others = position.alternatives.map((other) => `${other.token} ${fixed(other.probability)}`).join(" · ");
    return [
      make("td", {}, String(number + 1)),
      make("th", { scope: "row", dir: "auto" }, position.token),
      make("td", {}, make("span", { class: "bar-room", "aria-hidden": "true" }, part), fixed(position.probability)),
      make("td", {}, String(position.rank)),
      make("td", {}, fixed(position.entropy)),
      make("td", { class: "text" }, others),
    ];
  });
  const head = titles.map((title) => make("th", { scope: "col" }, t(`positions.${title}`)));
  at("#positions-table").replaceChildren(table(head, body));
  saveTable("positions", data, { positions: data.positions });
}
