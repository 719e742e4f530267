// The beam search, step by step.

import { at, fixed, make, shortened, t, table } from "./elements.js";
import { drawing, picture, saveButtons, sentence, xml } from "./files.js";

const [NODE_WIDTH, NODE_HEIGHT, STEP_WIDTH, ROW_HEIGHT] = [104, 46, 138, 58];
const [MAX_STEPS, MAX_ROWS] = [40, 16];

let shownTree = null; // the data whose tree is shown

// The nodes up to a step, with their coordinates: from left to right by step, in each step the best first.
function visibleNodes(tree, step) {
  const rows = new Map();
  const shown = new Map();
  const first = Math.max(0, step - MAX_STEPS + 1);
  tree.nodes.forEach((node, number) => {
    const row = rows.get(node.step) ?? 0;
    rows.set(node.step, row + 1);
    if (first <= node.step && node.step <= step && row < MAX_ROWS) {
      shown.set(number, { ...node, x: 8 + STEP_WIDTH * (node.step - first), y: 8 + ROW_HEIGHT * row });
    }
  });
  return shown;
}

function treeSvg(tree, step, ink) {
  const shown = visibleNodes(tree, step);
  const path = new Set(tree.path);
  const parts = [];
  let [width, height] = [0, 0];
  for (const [number, node] of shown) {
    const parent = shown.get(node.parent);
    const best = path.has(number);
    width = Math.max(width, node.x + NODE_WIDTH + 8);
    height = Math.max(height, node.y + NODE_HEIGHT + 8);
    if (parent) {
      const [from, to, half] = [parent.x + NODE_WIDTH, node.x, NODE_HEIGHT / 2];
      const bend = (from + to) / 2;
      const [start, end] = [parent.y + half, node.y + half];
      const line = `M${from} ${start}C${bend} ${start} ${bend} ${end} ${to} ${end}`;
      const dash = node.fate === "pruned" ? ' stroke-dasharray="4 4"' : "";
      parts.push(`<path d="${line}" fill="none" stroke="${ink}" stroke-width="${best ? 4 : 1}"${dash}/>`);
    }
  }
  for (const [number, node] of shown) parts.push(nodeSvg(node, path.has(number), ink));
  return { content: parts.join(""), width: Math.max(width, 320), height };
}

// Kept: round corners; finished: a double frame; pruned: a dashed one with sharp corners.
function nodeSvg(node, best, ink) {
  const { x, y, fate } = node;
  const wide = best ? 3 : 1;
  const corners = { kept: 14, finished: 4, pruned: 0 }[fate];
  const frame = (inset, dash) =>
    `<rect x="${x + inset}" y="${y + inset}" width="${NODE_WIDTH - 2 * inset}" height="${NODE_HEIGHT - 2 * inset}" ` +
    `rx="${corners}" fill="none" stroke="${ink}" stroke-width="${wide}"${dash}/>`;
  const frames = [frame(0, fate === "pruned" ? ' stroke-dasharray="4 4"' : "")];
  if (fate === "finished") frames.push(frame(4, ""));
  const text = (line, content, weight) =>
    `<text x="${x + NODE_WIDTH / 2}" y="${y + 15 + 12.5 * line}" font-size="${line ? 10 : 12}" text-anchor="middle" ` +
    `fill="${ink}" font-weight="${weight}">${xml(content)}</text>`;
  return (
    frames.join("") +
    text(0, shortened(node.token, 12), best ? "bold" : "normal") +
    text(1, node.step ? `${fixed(node.log_p)} → ${fixed(node.normalised)}` : t("start"), "normal") +
    text(2, t(`fate.${fate}`), "normal")
  );
}

export function showTree(data) {
  at("#not-searched").hidden = Boolean(data.tree);
  at("#tree-figure").hidden = !data.tree;
  if (!data.tree) return;
  const slider = at("#step");
  slider.oninput = drawTree;
  at("#tree-details").ontoggle = fillTree;
  const { steps, nodes, path } = data.tree;
  // First the step at which the winner is finished: later ones may be far from it.
  if (data.tree !== shownTree?.tree) Object.assign(slider, { max: steps, value: nodes[path.at(-1)].step });
  shownTree = data;
  drawTree();
}

function drawTree() {
  const { tree } = shownTree;
  const step = Number(at("#step").value);
  at("#step-shown").textContent = t("tree.step-of", step, tree.steps);
  const { content, width, height } = treeSvg(tree, step, "currentColor");
  const caption = treeCaption(shownTree, step);
  at("#tree-picture").replaceChildren(picture(width, height, content, caption));
  at("#tree-picture").scrollLeft = width;
  at("#tree-caption").textContent = caption;
  const drawn = (below) => {
    const { content, width, height } = treeSvg(tree, step, "#000000");
    return drawing(width, height, content, below);
  };
  const whole = { name: () => "beam-search", caption: () => caption, svg: drawn, json: () => ({ caption, ...tree }) };
  saveButtons(at("#tree-save"), { ...whole, rows: treeTexts });
  fillTree();
}

function treeCaption(data, step) {
  const { tree } = data;
  const parts = [t("tree.caption", tree.beams, tree.alpha)];
  if (step >= MAX_STEPS) parts.push(t("tree.cut-steps", step - MAX_STEPS + 1, step));
  const counts = Array(tree.steps + 1).fill(0);
  for (const node of tree.nodes) counts[node.step] += 1;
  const most = Math.max(...counts);
  if (most > MAX_ROWS) parts.push(t("tree.cut-rows", MAX_ROWS, most));
  return [...parts, sentence(data)].join("; ");
}

// What the table says: the headings, and each node up to the step that is shown.
function treeTexts() {
  const { tree } = shownTree;
  const path = new Set(tree.path);
  const step = Number(at("#step").value);
  const text = (number) => {
    const node = tree.nodes[number];
    return node.parent === null ? "" : text(node.parent) + node.token;
  };
  const rows = tree.nodes.map((node, number) => [
    ...[String(node.step), node.token, text(number).replaceAll("␣", " ")],
    ...[node.log_p, node.score, node.normalised].map((value) => fixed(value)),
    ...[t(`fate.${node.fate}`), path.has(number) ? t("yes") : ""],
  ]);
  const titles = ["step", "token", "so-far", "log-p", "score", "normalised", "fate", "best"];
  return [titles.map((title) => t(`tree.${title}`)), ...rows.filter((_, i) => 0 < tree.nodes[i].step && tree.nodes[i].step <= step)];
}

function fillTree() {
  const box = at("#tree-details .scroll");
  box.replaceChildren();
  if (!at("#tree-details").open) return;
  const [titles, ...rows] = treeTexts();
  const texts = [1, 2, 6, 7]; // columns that have no numbers
  const cell = (text, column) => make("td", texts.includes(column) ? { class: "text", dir: "auto" } : {}, text);
  box.append(table(titles.map((title) => make("th", { scope: "col" }, title)), rows.map((row) => row.map(cell))));
}
