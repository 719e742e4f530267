// The page of a model: Figure 1 to click, films, a changed model, attention with one's own numbers. The weights are in
// the page.

import { load, setUpArithmetic, showOwn } from "./arithmetic.js";
import { at, fillSelect, fixed, language, make, read, speak, t, table, textTable } from "./elements.js";
import { grid, largest, shaded } from "./grid.js";
import { setUpPlayer } from "./player.js";
import { row } from "./tape.js";
import { BOS, EOS, Transformer } from "./transformer.js";

const RATE = 0.003; // of a training step
const LONGEST = 16; // words of a sentence
const LIKELY = 4; // words that are shown of a distribution
const data = read("data");
const model = new Transformer(data);
const pieces = { source: data.source_pieces, target: data.target_pieces ?? data.source_pieces };
const boxes = [...document.querySelectorAll(".box")];
const attentive = ["self", "masked", "cross"];

// What is shown. source, target: ids without EOS; prefix: how many of what the decoder reads, null for all; zoom: head
// and cell of an attention box, null where the reader has not zoomed in.
const view = { source: data.source, target: [], prefix: null, box: boxes[0], layer: 0, head: null, cell: null, reference: data.reference };
const changes = { without: new Set(), factor: 1, places: [] };
let ran = null; // logits and trace of what is shown
let film = { kind: "decode", frames: [] };
let stopFilm = null;

// Words.

const word = (side, id) => pieces[side][id].replace(/^ /, "") || "␣";
const text = (side, ids) => ids.map((id) => pieces[side][id]).join("").trim();
const sourceWords = () => [...view.source, EOS].map((id) => word("source", id));
const decoderInput = () => [BOS, ...view.target].slice(0, view.prefix ?? undefined);
const targetWords = () => decoderInput().map((id) => word("target", id));
const inEncoder = (box) => /^(encoder|source)/.test(box.dataset.key);
const wordsOf = (box) => (inEncoder(box) ? sourceWords() : targetWords());
const sideOf = (box) => t(inEncoder(box) ? "side.encoder" : "side.decoder");

// The ids of words, or the first word that is none.
function idsOf(side, sentence) {
  const found = sentence.trim().split(/\s+/).filter(Boolean).map((name, i) => {
    const id = pieces[side].findIndex((piece) => piece === ` ${name}`);
    return id < 0 && !i ? pieces[side].findIndex((piece) => piece === name) : id;
  });
  return { ids: found, unknown: sentence.trim().split(/\s+/)[found.indexOf(-1)] };
}

function takeSentence(side, input) {
  const { ids, unknown } = idsOf(side, input.value);
  let trouble = "";
  if (!ids.length) trouble = t("sentence.empty");
  else if (unknown !== undefined) trouble = t("sentence.unknown", unknown);
  else if (ids.length > LONGEST) trouble = t("sentence.long", LONGEST);
  at("#sentence-said").textContent = trouble;
  return trouble ? null : ids;
}

// The model.

function translateAgain() {
  view.target = model.translate([...view.source, EOS], changes).target;
}

function runAgain() {
  ran = model.run([...view.source, EOS], decoderInput(), changes);
}

const keyOf = (box, layer = view.layer) => box.dataset.key.replace("{layer}", layer);
const layersOf = (box) => (box.dataset.layers ? box.dataset.layers.split(",").map(Number) : [0]);
const traced = (box = view.box) => ran.trace.get(keyOf(box));

function openBox(box, layer = view.layer) {
  const layers = layersOf(box);
  Object.assign(view, { box, layer: layers.includes(layer) ? layer : layers.at(-1), cell: null });
  for (const each of boxes) each.setAttribute("aria-pressed", each === box);
  showPanel();
}

// The panel of a box.

function showPanel() {
  const { box } = view;
  const { sort } = box.dataset;
  const { config } = data;
  at("#panel-title").textContent = `${sideOf(box)}: ${t(`box.${sort}`)}`;
  at("#panel-layer").replaceChildren();
  if (layersOf(box).length > 1) {
    const select = make("select", { id: "panel-layer-choice" });
    at("#panel-layer").append(make("label", {}, t("panel.layer"), " ", select));
    fillSelect("#panel-layer-choice", layersOf(box).map((layer) => [layer, layer + 1]), view.layer, (layer) => openBox(box, layer));
  }
  const sizes = sort === "feed-forward" ? [config.d_model, config.feed_forward.d_ff] : [config.d_model];
  at("#panel-what").textContent = t(`what.${sort}`, ...sizes);
  at("#panel-formula").replaceChildren(at(`#formula-${sort}`).content.cloneNode(true));
  at("#panel-formula-note").textContent = attentive.includes(sort) ? t(`formula.note.${sort}`) : "";
  at("#panel-code").replaceChildren(at(`#code-${sort}`).content.cloneNode(true));
  at("#panel-shapes").replaceChildren(textTable([[t("shape.name"), t("shape.rows"), t("shape.columns")], ...shapes(sort, traced())]));
  at("#zoom").hidden = !attentive.includes(sort);
  const show = attentive.includes(sort) ? showAttention : { linear: showLikely, softmax: showLikely }[sort] ?? showVectors;
  show(traced(), at("#panel-numbers"));
}

function shapes(sort, part) {
  const of = (name, { rows, columns }) => [name, String(rows), String(columns)];
  const weight = (name) => {
    const { rows, columns } = model.parameter(`${keyOf(view.box)}.${name}.weight`);
    return { rows: columns, columns: rows };
  };
  if (attentive.includes(sort)) {
    const [head] = part.parts;
    const inputs = sort === "cross" ? [of("X", part.x), of("X (encoder)", part.memory)] : [of("X", part.x)];
    return [
      ...inputs, ...["query", "key", "value"].map((name) => of(`W^${name[0].toUpperCase()}`, weight(name))),
      of("Q", part.q), of("K", part.k), of("V", part.v), of(t("head", 1) + ": Q", head.query), of(t("head", 1) + ": Q Kᵀ", head.scores),
      of(t("head", 1) + ": V", head.value), of(t("head", 1), head.output), of("Concat", part.concat), of("W^O", weight("out")), of(t("output"), part.output),
    ];
  }
  if (sort === "feed-forward") {
    const inner = [of("W₁", weight("hidden")), of(t("hidden"), part.hidden), of("W₂", weight("out"))];
    return [of("x", part.x), ...inner, of(t("output"), part.output)];
  }
  const table = { embedding: "W_E", linear: "W_Eᵀ" }[sort];
  const matrix = table && model.parameter(`${keyOf(view.box)}.weight`);
  const matrices = table === "W_E" ? [of("W_E", matrix)] : matrix ? [of("W_Eᵀ", { rows: matrix.columns, columns: matrix.rows })] : [];
  return [...(part.x ? [of("x", part.x)] : []), ...matrices, ...(part.table ? [of("PE", part.table)] : []), of(t("output"), part.output)];
}

const scrolled = (label, ...content) => make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, ...content);
const titled = (title, of, names, options) => [make("h4", {}, title), scrolled(title, grid(of, names, options))];

function showVectors(part, place) {
  const names = wordsOf(view.box);
  const { sort } = view.box.dataset;
  const content = [];
  if (part.table) content.push(...titled(t("box.positions"), part.table, names));
  if (part.hidden) {
    const zeros = part.hidden.data.filter((value) => value === 0).length;
    const counts = [zeros, part.hidden.data.length].map((count) => count.toLocaleString("en"));
    content.push(...titled(t("hidden"), part.hidden, names), make("p", { class: "note" }, t("zeros", ...counts)));
  }
  content.push(...titled(t("output"), part.output, names, { role: { "add-norm": "norm", norm: "norm", add: "residual" }[sort] ?? "" }));
  if (sort === "add-norm" || sort === "norm") {
    const before = part.added ?? part.x;
    const rows = names.map((name, i) => [name, ...moments(row(before, i)), ...moments(row(part.output, i))]);
    content.push(scrolled(t("mean"), textTable([["", t("mean"), t("deviation"), t("mean.after"), t("deviation.after")], ...rows])));
  }
  place.replaceChildren(...content);
}

function moments(numbers) {
  const mean = numbers.reduce((all, value) => all + value, 0) / numbers.length;
  return [mean, Math.sqrt(numbers.reduce((all, value) => all + (value - mean) ** 2, 0) / numbers.length)].map((value) => fixed(value));
}

// The likeliest words, as [id, number].
const likeliest = (numbers) => [...numbers].map((value, id) => [id, value]).sort((a, b) => b[1] - a[1]).slice(0, LIKELY);

function showLikely(part, place) {
  const sure = view.box.dataset.sort === "softmax";
  const cell = ([id, value]) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${sure ? 3 * value : 0}rem`;
    return make("td", {}, bar, `${word("target", id)} ${fixed(value, sure ? 3 : 2)}`);
  };
  const rows = targetWords().map((name, i) => [make("th", { scope: "row", dir: "auto" }, name), ...likeliest(row(part.output, i)).map(cell)]);
  const head = [make("th", { scope: "col" }, t("after")), make("th", { scope: "col", colspan: LIKELY }, t("likely"))];
  place.replaceChildren(scrolled(t("likely"), table(head, rows)));
}

// Attention: all heads, one of them, one product.

function showAttention(part, place) {
  const [rows, columns] = [wordsOf(view.box), view.box.dataset.sort === "cross" ? sourceWords() : wordsOf(view.box)];
  const { head, cell } = view;
  const zoomed = (to) => {
    Object.assign(view, to);
    showPanel();
    at("#zoom button:last-child").focus();
  };
  const levels = [["zoom.all", [], { head: null, cell: null }]];
  if (head !== null) levels.push(["zoom.head", [head + 1], { cell: null }]);
  if (head !== null && cell) levels.push(["zoom.product", [rows[cell[0]], columns[cell[1]]], {}]);
  at("#zoom").replaceChildren(
    ...levels.map(([key, values, to], level) => {
      const current = level === levels.length - 1 ? "step" : null;
      return make("button", { type: "button", "aria-current": current, onclick: () => zoomed(to) }, t(key, ...values));
    }),
  );
  if (head === null) return showHeads(part, place, zoomed);
  const one = part.parts[head];
  if (cell) return showProduct(part, one, place, rows, columns, cell);
  const edit = () => {
    load({ words: rows, names: columns, q: listed(one.query), k: listed(one.key), v: listed(one.value), causal: view.box.dataset.sort === "masked" });
    at("#own-title").scrollIntoView();
    at("#presets button").focus({ preventScroll: true });
  };
  const label = (i, j, said) => t("cell", rows[i], columns[j], said);
  const press = (i, j) => zoomed({ cell: [i, j] });
  place.replaceChildren(
    make("p", { class: "note" }, t("weights")),
    scrolled(t("weights"), grid(one.weights, rows, { columns, press, chosen: [rows.length - 1, 0], label, masked: one.masked })),
    ...titled(`Q (${t("role.query")})`, one.query, rows, { role: "query" }),
    ...titled(`K (${t("role.key")})`, one.key, columns, { role: "key" }),
    ...titled(`V (${t("role.value")})`, one.value, columns, { role: "value" }),
    ...titled(t("output"), one.output, rows),
    make("p", {}, make("button", { type: "button", onclick: edit }, t("edit"))),
  );
}

const listed = (of) => Array.from({ length: of.rows }, (_, i) => [...row(of, i)].map((value) => Number(value.toFixed(3))));

function showHeads(part, place, zoomed) {
  const minis = part.parts.map(({ weights, masked }, head) => {
    const squares = make("span", { class: "mini", "aria-hidden": "true" });
    squares.style.gridTemplateColumns = `repeat(${weights.columns}, 10px)`;
    weights.data.forEach((weight, n) => {
      const square = make("i", { class: masked.data[n] === -Infinity ? "hidden-cell" : "" });
      square.style.setProperty("--w", weight.toFixed(3));
      squares.append(square);
    });
    return make("button", { type: "button", onclick: () => zoomed({ head }) }, squares, t("head", head + 1));
  });
  const names = wordsOf(view.box);
  const choice = [make("p", { class: "note" }, t("zoom.choose")), make("div", { class: "minis" }, ...minis)];
  place.replaceChildren(...choice, ...titled(t("output"), part.output, names));
}

function showProduct(part, one, place, rows, columns, [i, j]) {
  const [q, k] = [row(one.query, i), row(one.key, j)];
  const products = q.map((value, n) => value * k[n]);
  const most = Math.max(...products.map(Math.abs));
  const line = (name, numbers, most) => [make("th", { scope: "row", dir: "auto" }, name), ...[...numbers].map((value) => shaded(make("td", {}), value, most))];
  const head = [make("td", {}, t("product.head")), ...[...q].map((_, n) => make("th", { scope: "col" }, String(n + 1)))];
  const lines = [
    line(`q “${rows[i]}”`, q, largest(one.query)),
    line(`k “${columns[j]}”`, k, largest(one.key)),
    line(t("product.times"), products, most),
  ];
  const grid = table(head, lines);
  grid.className = "grid";
  ["query", "key"].forEach((role, n) => (grid.tBodies[0].rows[n].className = role));
  const [score, scaled, weight] = [one.scores, one.scaled, one.weights].map((of) => row(of, i)[j]);
  const numbers = [score, part.divisor, scaled].map((value) => fixed(value, 3));
  const divided = part.divisor === 1 ? t("product.unscaled", numbers[0]) : t("product.sum", ...numbers);
  const changed = changes.factor === 1 ? "" : t("product.changed", fixed(changes.factor));
  const masked = row(one.masked, i)[j] === -Infinity;
  place.replaceChildren(
    scrolled(t("product.times"), grid),
    make("p", { class: "sum" }, divided + changed),
    make("p", { class: "sum" }, masked ? t("product.masked", rows[i], columns[j]) : t("product.weight", fixed(weight, 4))),
  );
}

// Films. A frame: the box and layer that it opens, how many words the decoder has read, what it says, and, of a training
// step, which weights the model has and whether the boxes show gradients.

// Boxes in the order in which a sentence passes them, each with its layer: those of a layer together, layer by layer.
function passed(some) {
  const order = [];
  for (let i = 0, end = 1; i < some.length; i = end++) {
    const { layers } = some[i].dataset;
    while (layers && some[end]?.dataset.layers === layers) end++;
    for (const layer of layersOf(some[i])) order.push(...some.slice(i, end).map((box) => [box, layer]));
  }
  return order;
}

function decodingFilm(step) {
  const source = [...view.source, EOS];
  const prefix = [BOS, ...view.target].slice(0, step + 1);
  const { trace } = model.run(source, prefix, changes);
  const said = [word("target", prefix.at(-1)), text("target", prefix.slice(1))];
  const order = passed(step ? boxes.filter((box) => !inEncoder(box)) : boxes);
  const p = row(trace.get("softmax").output, step);
  const next = view.target[step] ?? EOS;
  const frames = order.map(([box, layer]) => {
    return { box, layer, say: () => sayPassing(box, layer, trace.get(keyOf(box, layer)), said[0], p, next) };
  });
  const [first, last] = [order[0], order.at(-1)];
  frames.unshift({ box: first[0], layer: first[1], whole: !step, say: () => t("film.start", step + 1, said[1] || "<s>") });
  frames.push({ box: last[0], layer: last[1], say: () => (next === EOS ? t("film.end") : t("film.append", word("target", next))) });
  return { kind: "decode", step, frames: frames.map((frame) => ({ ...frame, prefix: frame.whole ? null : step + 1 })) };
}

function sayPassing(box, layer, part, last, p, next) {
  const { sort } = box.dataset;
  const side = sideOf(box);
  const final = wordsOf(box).at(-1);
  if (attentive.includes(sort)) {
    const columns = sort === "self" || sort === "cross" ? sourceWords() : targetWords();
    const i = part.x.rows - 1;
    const surest = part.parts.map(({ weights }, head) => [Math.max(...row(weights, i)), head]).sort((a, b) => b[0] - a[0])[0];
    const best = row(part.parts[surest[1]].weights, i).indexOf(surest[0]);
    return t("film.attention", `${side}, ${t(`box.${sort}`)}`, layer + 1, final, columns[best], fixed(surest[0]), surest[1] + 1);
  }
  if (sort === "linear") {
    const [id, logit] = likeliest(row(part.output, part.output.rows - 1))[0];
    return t("film.linear", last, part.output.columns, fixed(logit), word("target", id));
  }
  if (sort === "softmax") return t("film.softmax", word("target", next), fixed(p[next], 3));
  if (sort === "norm" && !box.dataset.layers) return t("film.last-norm", side);
  const key = { "add-norm": "film.norm", norm: "film.before" }[sort] ?? `film.${sort}`;
  return sort === "embedding" || sort === "positions" ? t(key, side, final) : t(key, side, layer + 1);
}

const norm = (numbers) => Math.sqrt(numbers.reduce((all, value) => all + value ** 2, 0));
const weightsNow = () => new Map([...model.parameters].map(([name, { data }]) => [name, data.slice()]));
const putWeights = (weights) => {
  for (const [name, { data }] of model.parameters) data.set(weights.get(name));
};

function trainingFilm() {
  const [source, target] = [[...view.source, EOS], view.reference];
  const before = weightsNow();
  const { loss, trace } = model.learn(source, target, changes);
  const gradients = new Map([...model.parameters].map(([name, { gradient }]) => [name, gradient ? norm(gradient) : 0]));
  const p = trace.get("softmax").output;
  const step = model.steps + 1;
  model.step(RATE);
  const after = weightsNow();
  const lossAfter = model.learn(source, target, changes).loss;
  putWeights(before);
  let learned = null; // what the model says after the step; its frame has the weights
  const now = () => (learned ??= text("target", model.translate(source, changes).target));
  const labels = [...target, EOS];
  const shift = () => [[t("film.reads"), t("film.predicts")], ...labels.map((id, i) => [word("target", [BOS, ...target][i]), word("target", id)])];
  const losses = () => {
    const right = labels.map((id, i) => row(p, i)[id]);
    const more = [[t("film.p"), t("film.minus-log")], ...right.map((value) => [fixed(value, 4), fixed(-Math.log(value), 3)])];
    return shift().map((cells, i) => [...cells, ...more[i]]);
  };
  const names = [...gradients.keys(), ...Object.keys(model.shared)];
  const ofBox = (box, layer) => {
    const inside = names.filter((name) => name.startsWith(`${keyOf(box, layer)}.`));
    return norm(inside.map((name) => gradients.get(model.shared[name] ?? name)));
  };
  const boxOf = (sort) => boxes.find((box) => box.dataset.sort === sort);
  const backward = passed(boxes).filter(([box, layer]) => ofBox(box, layer)).reverse();
  const most = Math.max(...backward.map(([box, layer]) => ofBox(box, layer)));
  const shades = new Map(backward.map(([box, layer]) => [`${keyOf(box, layer)}`, ofBox(box, layer) / most]));
  const frames = [
    { box: boxOf("embedding"), layer: 0, table: shift, say: () => t("film.pair", step, text("source", view.source), text("target", target)) },
    { box: boxOf("masked"), layer: 0, table: shift, say: () => t("film.forward") },
    { box: boxOf("softmax"), layer: 0, table: losses, say: () => t("film.right") },
    { box: boxOf("softmax"), layer: 0, table: losses, say: () => t("film.loss", fixed(loss, 4)) },
    ...backward.map(([box, layer]) => ({ box, layer, shades, say: () => t("film.gradient", fixed(ofBox(box, layer), 4)) })),
    { box: boxOf("embedding"), layer: 0, shades, weights: after, say: () => t("film.update", RATE) },
    { box: boxOf("softmax"), layer: 0, weights: after, say: () => t("film.after", fixed(loss, 4), fixed(lossAfter, 4), now()) },
  ];
  return { kind: "train", after, frames: frames.map((frame) => ({ weights: before, ...frame, prefix: null, target })) };
}

function startFilm(made) {
  stopFilm?.();
  film = made;
  const slider = at("#film-slider");
  slider.max = film.frames.length - 1;
  slider.value = 0;
  showFrame();
}

function showFrame() {
  const slider = at("#film-slider");
  const frame = film.frames[Number(slider.value)];
  view.prefix = frame.prefix;
  if (frame.weights) putWeights(frame.weights);
  if (frame.target) view.target = frame.target;
  runAgain();
  openBox(frame.box, frame.layer);
  for (const box of boxes) {
    const shade = frame.shades?.get(keyOf(box));
    box.toggleAttribute("data-gradient", shade !== undefined);
    box.style.setProperty("--w", shade ?? 0);
  }
  at("#film-said").textContent = frame.say();
  slider.setAttribute("aria-valuetext", frame.say());
  at("#film-table").replaceChildren(...(frame.table ? [textTable(frame.table())] : []));
}

function setUpFilms() {
  const slider = at("#film-slider");
  stopFilm = setUpPlayer(at("#film-play"), slider, showFrame);
  for (const [id, step] of [["#film-back", -1], ["#film-forward", 1]]) {
    at(id).addEventListener("click", () => {
      stopFilm();
      slider.value = Number(slider.value) + step;
      showFrame();
    });
  }
  at("#film-next").addEventListener("click", () => {
    if (film.kind === "decode") return startFilm(decodingFilm(film.step < view.target.length ? film.step + 1 : 0));
    putWeights(film.after);
    startFilm(trainingFilm());
  });
  at("#film-reset").addEventListener("click", () => {
    model.reset();
    showModel();
  });
}

// Opens a film from its beginning.
function openFilm(kind) {
  startFilm(kind === "train" ? trainingFilm() : decodingFilm(0));
  at("#film-next").textContent = t(`film.next.${kind}`);
  at("#film-reference").hidden = kind !== "train";
}

// The changed model.

function showChanges() {
  const { config } = data;
  const kinds = [["encoder", config.encoder_layers], ["decoder", config.decoder_layers], ["cross", config.decoder_layers]];
  at("#change-heads").replaceChildren(
    ...kinds.flatMap(([kind, layers]) =>
      Array.from({ length: layers }, (_, layer) =>
        make("fieldset", {}, make("legend", {}, t(`change.${kind}`, layer + 1)), ...Array.from({ length: config.attention.heads }, (_, head) => {
          const name = `${kind}.${layer}.${head}`;
          const change = ({ target }) => {
            changes.without[target.checked ? "delete" : "add"](name);
            showChanged();
          };
          const box = make("input", { type: "checkbox", onchange: change });
          box.checked = !changes.without.has(name);
          return make("label", {}, box, ` ${t("head", head + 1)}`);
        }))),
    ),
  );
  const places = view.source.map((id, i) => [i, `${i + 1}. ${word("source", id)}`]);
  const select = at("#change-word");
  const chosen = Math.min(Math.max(0, select.selectedIndex), places.length - 1);
  const showPlace = (i) => (at("#change-place").value = changes.places[i] ?? i);
  fillSelect("#change-word", places, chosen, showPlace);
  showPlace(chosen);
  at("#change-factor").value = Math.log2(changes.factor);
}

// Shows what the changed model says beside what it says unchanged.
function showChanged() {
  const source = [...view.source, EOS];
  const changed = changes.without.size || changes.factor !== 1 || changes.places.some((place, i) => place !== i);
  const before = model.translate(source);
  const after = changed ? model.translate(source, changes) : before;
  view.target = after.target;
  at("#change-factor-said").textContent = fixed(changes.factor);
  at("#change-places").textContent = t("change.places", sourceWords().map((name, i) => `${name} ${changes.places[i] ?? i}`).join(", "));
  const line = (key, { target, probabilities }, other) => {
    const words = [...target, EOS].flatMap((id, i) => {
      const said = `${word("target", id)} (${probabilities[i] === undefined ? "…" : fixed(probabilities[i])})`;
      return [(other.target[i] ?? EOS) === id ? said : make("mark", {}, said), " "];
    });
    return make("p", { dir: "auto" }, make("b", {}, `${t(key)}: `), ...words);
  };
  const mean = ({ probabilities }) => fixed(probabilities.reduce((all, p) => all + p, 0) / probabilities.length);
  const same = String(before.target) === String(after.target);
  const verdict = !changed ? t("change.none") : same ? t("change.same", mean(before), mean(after)) : t("change.differs");
  at("#change-said").replaceChildren(line("change.as-trained", before, before), ...(changed ? [line("change.changed", after, before)] : []), make("p", {}, verdict));
  openFilm(film.kind);
  at("#sentence-said").textContent = t("sentence.said", text("source", view.source), text("target", after.target));
}


function setUpChanges() {
  at("#change-factor").addEventListener("input", ({ target }) => {
    changes.factor = 2 ** Number(target.value);
    showChanged();
  });
  at("#change-place").addEventListener("input", ({ target }) => {
    if (target.value === "") return;
    changes.places[Number(at("#change-word").selectedIndex)] = Math.min(1000, Math.max(0, Math.round(Number(target.value))));
    showChanged();
  });
  at("#change-undo").addEventListener("click", () => {
    changes.without.clear();
    Object.assign(changes, { factor: 1, places: [] });
    showModel();
  });
}

// The page.

function showModel() {
  showChanges();
  showChanged();
}

function render() {
  const { config } = data;
  const parameters = model.weights.length.toLocaleString("en");
  const { heads } = config.attention;
  at("#size").textContent = t("size", parameters, config.d_model, heads, config.attention.d_k ?? config.d_model / heads);
  at("#vocabulary").textContent = data.words.length ? t("vocabulary", data.words.join(", ")) : t("vocabulary.parts");
  fillSelect("#film-kind", ["decode", "train"].map((kind) => [kind, t(`film.${kind}`)]), film.kind, (kind) => {
    translateAgain();
    openFilm(kind);
  });
  for (const box of boxes) box.setAttribute("aria-label", `${sideOf(box)}: ${t(`box.${box.dataset.sort}`)}`);
  showModel();
  showOwn();
}

for (const box of boxes) {
  const open = () => {
    stopFilm();
    view.prefix = null;
    runAgain();
    openBox(box);
  };
  box.addEventListener("click", () => {
    open();
    if (matchMedia("(max-width: 860px)").matches) at("#panel").scrollIntoView(); // it is below the figure there
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  });
}
at("#sentence").value = text("source", data.source);
at("#sentence-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const ids = takeSentence("source", at("#sentence"));
  if (!ids) return;
  changes.places = [];
  view.source = ids;
  view.reference = String(ids) === String(data.source) ? data.reference : model.translate([...ids, EOS]).target;
  at("#reference").value = text("target", view.reference);
  showModel();
});
at("#reference").value = text("target", data.reference);
at("#reference").addEventListener("change", ({ target }) => {
  const ids = takeSentence("target", target);
  if (!ids) return;
  view.reference = ids;
  openFilm("train");
});
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    speak(button.dataset.language);
    render();
  });
}
setUpFilms();
setUpChanges();
speak(language);
setUpArithmetic();
render();
