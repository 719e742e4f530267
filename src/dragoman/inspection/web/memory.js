// The pairs of a memory that speak for each word of the translation.

import { at, fixed, make, t, table } from "./elements.js";

export function showMemory(data) {
  at("#memory").hidden = !data.memory;
  if (!data.memory) return;
  const titles = ["word", "probability", "neighbours", "source", "target", "origin"];
  const head = titles.map((title) => make("th", { scope: "col" }, t(`memory.${title}`)));
  const rows = data.memory.flatMap(({ word, pairs }) => pairs.map((pair, number) => [
    make("th", { scope: "row", dir: "auto" }, number ? "" : word),
    make("td", {}, fixed(pair.probability)),
    make("td", {}, fixed(pair.neighbours)),
    ...["source", "target", "origin"].map((name) => make("td", { class: "text", dir: "auto" }, pair[name])),
  ]));
  at("#memory-table").replaceChildren(table(head, rows));
}
