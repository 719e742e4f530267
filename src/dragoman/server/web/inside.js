// Looking inside: what the model did with the sentence that has the focus. Loaded when a panel is first opened.

import { ask, fetchFrom } from "./api.js";
import { showAttention } from "./attention.js";
import { at, make, t, themed } from "./elements.js";
import { download } from "./files.js";
import { nameOf } from "./languages.js";
import { focusedSentence, focusedWord } from "./paper.js";
import { showEncoding, showOcclusion } from "./signed.js";
import { showHeads, showPositions } from "./tables.js";
import { showTree } from "./tree.js";
import { againButton, showTrouble } from "./trouble.js";

const PAUSE = 200; // milliseconds for which a sentence has the focus before it is asked for
const SHOWN_POSITIONS = 50; // at least

const PANELS = {
  "attention-panel": (data) => showAttention(data, fetchWeights, focusedWord()),
  heads: showHeads,
  positions: showPositions,
  tree: (data) => drawFetched("tree", data, showTree, ({ inspections: [one] }) => one.inspection.tree),
  occlusion: (data) => drawFetched("occlusion", data, showOcclusion, (answer) => answer),
  encoding: (data) => drawFetched("positions", data, showEncoding, (answer) => answer.positional_encoding),
};

let asked = ""; // for which sentence
let sentence = null;
let legs = []; // what each model did: `data`, as the figures take it, `wish`, `service`, and what was `fetched` besides
let leg = 0; // which of them is shown
let controller = new AbortController();
let waiting = 0;
let working = 0; // requests that are not answered

const open = (id) => at(`#${id}`).open;

// Asks for the sentence that has the focus, if it is another one and somebody wants to know.
export function lookInside() {
  clearTimeout(waiting);
  if (Object.keys(PANELS).some(open)) waiting = setTimeout(lookNow, PAUSE);
}

async function lookNow() {
  sentence = focusedSentence();
  const given = at("#inside-given").checked;
  const wanted = JSON.stringify([sentence, given]);
  if (wanted === asked) return drawInside();
  asked = wanted;
  controller.abort();
  controller = new AbortController();
  if (!sentence) {
    legs = [];
    say(t("inside.none"));
    return drawInside();
  }
  const { source, target } = sentence.wish;
  const wish = { text: sentence.text, source, target, ...(given ? { translation: sentence.translation } : {}) };
  await attempt(async (signal) => {
    const { inspections } = await ask("api/v1/inspect", { body: { ...wish, tree: false }, signal });
    legs = inspections.map(({ inspection: { tree, ...inspection }, kinds, links, ...service }, number) => ({
      data: { ...inspection, links, kinds: kinds.map((kind) => ({ ...kind, weights: null, rollout: null })) },
      wish: inspections.length > 1 ? legWish(inspections, number, wish.text) : wish,
      service,
      fetched: new Set(),
    }));
    leg = Math.min(leg, legs.length - 1);
    drawLegs();
  });
}

const legWish = (inspections, number, text) => ({
  text: number ? inspections[number - 1].translation : text,
  source: inspections[number].source,
  target: inspections[number].target,
});

// Does what asks the server, and draws; says so where that fails.
async function attempt(work) {
  const { signal } = controller;
  working += 1;
  say(t("inside.working"));
  let trouble = null;
  try {
    await work(signal);
  } catch (error) {
    trouble = error.name === "AbortError" ? null : error;
  }
  working -= 1;
  if (signal.aborted) return;
  if (trouble) return fail(trouble);
  if (!working) say("");
  drawInside();
}

function fail(trouble) {
  asked = "";
  legs = [];
  controller.abort();
  if (trouble.kind === "key") showTrouble(trouble, lookNow);
  say(trouble.message || t(trouble.kind), trouble.kind === "refused" ? "" : againButton(lookNow));
  drawInside();
}

const say = (...words) => at("#inside-status").replaceChildren(...words.flatMap((word) => [word, " "]));

// Draws what is known in the panels that are open.
export function drawInside() {
  const shown = legs[leg];
  at("#inside").classList.toggle("known", Boolean(shown));
  for (const id of ["inside-sentence", "save-inside"]) at(`#${id}`).hidden = !shown;
  drawDifference(shown);
  if (!shown) return;
  at("#inside-sentence").textContent = t("inside.sentence", shown.data.source.text, shown.data.target.text);
  for (const [id, draw] of Object.entries(PANELS)) if (open(id)) draw(shown.data);
}

// Where the server translates otherwise than the search that is shown.
function drawDifference(shown) {
  const above = shown && (legs.length > 1 ? shown.service.translation : sentence.translation);
  const given = at("#inside-given").checked;
  const differs = shown && !given && above !== shown.data.target.text;
  at("#inside-differs").hidden = !differs;
  at("#inside-given-label").hidden = !(differs || given) || legs.length > 1;
  if (!differs) return;
  const { engine, compute_type: type } = shown.service;
  at("#inside-differs").textContent = t("inside.differs", shown.data.target.text, above, `${engine}, ${type}`);
}

function drawLegs() {
  at("#inside-legs").hidden = legs.length < 2;
  at("#inside-legs").replaceChildren(
    ...legs.map(({ wish: { source, target } }, number) => {
      const radio = make("input", { type: "radio", name: "leg", value: number, onchange: () => chooseLeg(number) });
      radio.checked = number === leg;
      return make("label", {}, radio, ` ${nameOf(source)} → ${nameOf(target)}`);
    }),
  );
}

function chooseLeg(number) {
  leg = number;
  drawInside();
}

// Asks once for something besides the inspection, and puts what `taken` makes of the answer into the data.
function fetchOnce(name, ask, taken) {
  const asking = legs[leg];
  if (asking.fetched.has(name)) return;
  asking.fetched.add(name);
  attempt(async (signal) => {
    const answer = await ask({ body: asking.wish, signal });
    asking.data = { ...asking.data, ...taken(answer, asking.data) };
  });
}

function fetchWeights(name) {
  const send = async ({ body, signal }) => {
    const response = await fetchFrom("api/v1/attention", { body: { ...body, kind: name }, signal });
    return new Uint8Array(await response.arrayBuffer());
  };
  const taken = (bytes, data) => ({
    kinds: data.kinds.map((kind) => (kind.name === name ? withWeights(kind, bytes, data) : kind)),
  });
  fetchOnce(name, send, taken);
}

// The weights of all heads come first, then the rollouts, if there are any.
function withWeights(kind, bytes, data) {
  const size = kind.layers * kind.heads * data[kind.rows].tokens.length * data[kind.columns].tokens.length;
  return { ...kind, weights: bytes.subarray(0, size), rollout: bytes.length > size ? bytes.subarray(size) : null };
}

// What a panel shows besides the inspection: where it is in the data, and how it is asked for.
const BESIDES = {
  occlusion: { path: "occlusion", key: "occlusion", body: (wish) => wish },
  positions: { path: "positions", key: "positional_encoding", body: ({ source, target }, rows) => ({ source, target, rows }) },
  tree: { path: "inspect", key: "tree", body: (wish) => ({ ...wish, tree: true }) },
};

function drawFetched(name, data, show, part) {
  const { path, key, body } = BESIDES[name];
  if (key in data) return show(data);
  const rows = Math.max(SHOWN_POSITIONS, data.source.tokens.length);
  const send = ({ body: wish, signal }) => ask(`api/v1/${path}`, { body: body(wish, rows), signal });
  fetchOnce(name, send, (answer) => ({ [key]: part(answer) }));
}

async function savePage() {
  const { wish } = legs[leg];
  await attempt(async (signal) => {
    const response = await fetchFrom("api/v1/page", { body: wish, signal });
    download("inspection.html", "text/html", await response.blob());
  });
}

for (const id of Object.keys(PANELS)) at(`#${id}`).addEventListener("toggle", () => open(id) && lookNow());
at("#inside-given").addEventListener("change", lookNow);
at("#save-inside").addEventListener("click", savePage);
themed.addEventListener("change", drawInside);
lookNow();
