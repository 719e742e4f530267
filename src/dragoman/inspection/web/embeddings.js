// The words of the sentence among the embeddings, before training and after it.

import { showDrawn } from "./drawn.js";
import { at, fillSelect, fixed, make, shortened, t, textTable } from "./elements.js";
import { sentence, xml } from "./files.js";
import { MAX_LABEL, widest } from "./map.js";
import { moveWithin } from "./words.js";

const SIDES = ["source", "translation"];
const MARGIN = 24; // pixels around the points

let embedded = null; // the data that is shown
let side = 0; // of SIDES, which the reader has chosen
let near = 0; // the number of the word whose neighbours are shown

// The maps of the side that is shown, by the names of their titles.
function moments() {
  const { untrained, trained } = embedded.neighbourhoods;
  return Object.entries({ untrained, trained }).flatMap(([name, sides]) => (sides ? [[name, sides[side]]] : []));
}

export function showEmbeddings(data) {
  if (data !== embedded) near = 0;
  embedded = data;
  const choices = SIDES.map((name, number) => [number, t(name)]);
  fillSelect("#embeddings-side", choices, side, (number) => {
    [side, near] = [number, 0];
    showEmbeddings(data);
  });
  at("#embeddings-untrained").textContent = t(data.neighbourhoods.untrained ? "embeddings.rebuilt" : "embeddings.unknown");
  const words = at("#embeddings-words");
  words.onkeydown = (event) => moveWithin(event, words);
  words.replaceChildren(
    ...data.neighbourhoods.trained[side].words.map((word, number) => {
      const onfocus = () => lookAt(number);
      const attributes = { type: "button", class: "word", dir: "auto", tabindex: number ? -1 : 0 };
      return make("button", { ...attributes, onfocus, onclick: onfocus }, word);
    }),
  );
  lookAt(near);
}

const neighbours = (map, word) => (map.neighbours[word] ?? []).map(([index, cosine]) => [map.near[index], fixed(cosine)]);
const listed = (map, word) => neighbours(map, word).map((pair) => pair.join(" ")).join(", ");

function lookAt(word) {
  near = word;
  [...at("#embeddings-words").children].forEach((button, number) => button.classList.toggle("looking", number === word));
  const maps = moments();
  const { words } = maps[0][1];
  const titles = maps.map(([name]) => t(`embeddings.${name}`));
  const read = maps.map(([, map], i) => `${titles[i]}: ${listed(map, word) || "–"}`);
  at("#embeddings .readout").textContent = words.length ? `“${words[word]}”: ${read.join("; ")}` : "";
  const ranks = maps[0][1].neighbours[word] ?? [];
  const cells = maps.map(([, map]) => neighbours(map, word));
  at("#embeddings-near").replaceChildren(
    textTable([
      [t("embeddings.rank"), ...titles.flatMap((title) => [title, t("embeddings.cosine")])],
      ...ranks.map((_, rank) => [String(rank + 1), ...cells.flatMap((pairs) => pairs[rank] ?? ["", ""])]),
    ]),
  );
  showDrawn("embeddings", {
    name: `embeddings-${SIDES[side]}`,
    caption: `${t(SIDES[side])}: ${titles.join(", ")}; ${t("embeddings.caption")}; ${sentence(embedded)}`,
    draw: (ink) => mapsSvg(maps, titles, ink),
    json: () => ({ side: SIDES[side], ...Object.fromEntries(maps) }),
    rows: () => [
      [t("embeddings.word"), ...titles],
      ...words.map((label, number) => [label, ...maps.map(([, map]) => listed(map, number))]),
    ],
  });
}

// Beside each other where there is room, else below each other.
function mapsSvg(maps, titles, ink) {
  const room = at("#embeddings-picture").clientWidth - 4;
  const beside = room >= 640;
  const wide = Math.max(280, Math.min(520, beside ? room / 2 : room));
  const tall = 0.8 * wide;
  const content = maps.map(([, map], i) => {
    const [x, y] = beside ? [i * wide, 0] : [0, i * tall];
    return `<g transform="translate(${x} ${y})">${mapSvg(map, titles[i], wide, tall, ink)}</g>`;
  });
  const [across, down] = beside ? [maps.length, 1] : [1, maps.length];
  return { content: content.join(""), width: Math.ceil(across * wide), height: Math.ceil(down * tall) };
}

// Words are dots with labels, neighbours crosses; those of the chosen word have lines and labels.
function mapSvg({ words, near: labels, points, neighbours }, title, wide, tall, ink) {
  const along = (axis, length, first) => {
    const values = points.map((point) => point[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return values.map((value) => first + MARGIN + ((value - low) / (high - low || 1)) * (length - 2 * MARGIN));
  };
  const xs = along(0, wide, 0);
  const ys = along(1, tall - 24, 24);
  const own = new Set((neighbours[near] ?? []).map(([index]) => words.length + index));
  const text = (x, y, label, weight) =>
    `<text x="${x}" y="${y}" font-size="12" font-weight="${weight}" fill="${ink}">${xml(shortened(label, MAX_LABEL))}</text>`;
  const taken = []; // by labels
  // A label beside its mark, where it covers no other one if there is such a place.
  const named = (i, label, weight) => {
    const long = widest([label]);
    const places = [-5, 14, -18, 27].flatMap((dy) => [6, -6 - long].map((dx) => [xs[i] + dx, ys[i] + dy]));
    const inside = places.filter(([x, y]) => x > 2 && x + long < wide - 2 && y > 36 && y < tall - 4);
    const free = inside.find(([x, y]) => taken.every(([left, right, base]) => right < x || x + long < left || Math.abs(base - y) > 12));
    const [x, y] = free ?? inside[0] ?? places[0];
    taken.push([x, x + long, y]);
    return text(x, y, label, weight);
  };
  const marks = points.map((_, i) => {
    const [x, y] = [xs[i], ys[i]];
    const [word, chosen] = [i < words.length, i === near || own.has(i)];
    const label = word ? words[i] : labels[i - words.length];
    const name = word || chosen ? named(i, label, chosen ? "bold" : "normal") : "";
    const line = own.has(i) ? `<path d="M${xs[near]} ${ys[near]}L${x} ${y}" stroke="${ink}" stroke-dasharray="2 3"/>` : "";
    const dot = `<circle cx="${x}" cy="${y}" r="${i === near ? 6 : 4}" fill="${ink}"/>`;
    const cross = `<path d="M${x - 4} ${y - 4}l8 8m-8 0l8 -8" stroke="${ink}" stroke-opacity="${chosen ? 1 : 0.6}"/>`;
    return line + (word ? dot : cross) + name;
  });
  const frame = `<rect x="1" y="22" width="${wide - 2}" height="${tall - 24}" fill="none" stroke="${ink}" stroke-opacity=".5"/>`;
  return text(4, 15, title, "bold") + frame + marks.join("");
}
