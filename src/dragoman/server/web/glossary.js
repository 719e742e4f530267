// Terms that are to be translated in a certain way, for each pair of languages. They stay in this page, unless the
// reader asks the browser to remember them.

import { at, language, make, t } from "./elements.js";
import { download } from "./files.js";
import { focusedLinks, translated } from "./paper.js";
import { bare } from "./steering.js";

const RULES = ["match", "exact", "any"];
const KEPT = "glossary";
const LONGEST = 200; // characters of a term
const MOST_FAULTS = 50; // that are listed

let terms = {}; // by pair: lists of [source, targets, rule]
let pairName = "";
let drawnFor = ""; // languages
let possible = false;
let changed = () => {};
let offered = null; // the word of which a term can be made
const selected = { source: "", target: "" }; // what was last selected on each side

const rows = () => (terms[pairName] ??= []);
const normal = (text) => text.normalize("NFC").trim().replace(/\s+/g, " "); // as the server names a term
const formsOf = (targets) => targets.split("|").map((form) => form.trim()).filter(Boolean); // the last may not be written yet
const complete = ([source, targets]) => source.trim() && formsOf(targets).length;
const lineOf = ([source, targets, rule]) => [source.trim(), formsOf(targets).join("|"), ...(rule === "match" ? [] : [rule])].join("\t");
const linesOf = (list) => list.filter(complete).map(lineOf);

// The lines that go with a request.
export const glossaryLines = (source, target) => linesOf(terms[`${source}-${target}`] ?? []);

export function setUpGlossary(whenChanged) {
  changed = whenChanged;
  const kept = localStorage.getItem(KEPT);
  if (kept) {
    try {
      terms = JSON.parse(kept);
      at("#remember").checked = true;
    } catch {
      localStorage.removeItem(KEPT);
    }
  }
  at("#add-term").addEventListener("click", addTerm);
  at("#remember").addEventListener("change", keep);
  at("#open-terms").addEventListener("change", openTerms);
  at("#glossary").addEventListener("paste", pasteTerms);
  at("#save-terms").addEventListener("click", () => {
    download(`glossary-${pairName}.tsv`, "text/tab-separated-values", linesOf(rows()).map((line) => `${line}\n`).join(""));
  });
  document.addEventListener("selectionchange", noteSelection);
  at("#source").addEventListener("input", () => (at("#always").hidden = true)); // the caret has left the word
}

export function drawGlossary(source, target, takesTerms) {
  possible = takesTerms;
  drawAddition();
  if (!offered?.isConnected) at("#always").hidden = true;
  const name = [source, target, possible, language].join();
  if (name === drawnFor) return;
  drawnFor = name;
  at("#glossary").hidden = false; // before its languages are known, terms would have no place
  offerTerm();
  at("#terms-faults").replaceChildren();
  at("#terms-impossible").hidden = possible;
  pairName = `${source}-${target}`;
  drawTerms();
}

// Puts the focus on the translation of a term.
export function goToTerm(term) {
  at("#glossary").open = true;
  const number = rows().findIndex(([source]) => normal(source) === term);
  const input = at("#terms tbody").children[number]?.querySelectorAll("input")[1] ?? at("#add-term");
  input.focus();
  input.select?.();
}

// Offers to make a term of the word that has the focus: of one of the text, its translation is still to be written.
export async function offerTerm() {
  at("#always").hidden = true;
  const words = possible && (await focusedLinks());
  if (!words?.source) return;
  offered = words.element;
  const source = bare(words.source);
  const target = offered.place.side === "target" ? bare(words.target) : "";
  at("#always").textContent = target ? t("term-always", source, target) : t("term-begin", source);
  at("#always").onclick = () => makeTerm(source, target);
  at("#always").hidden = false;
}

function makeTerm(source, target) {
  if (target || !rows().some(([known]) => normal(known) === normal(source))) put([source, target, "match"]);
  redraw();
  goToTerm(normal(source));
}

function drawTerms() {
  const fields = rows().map((row, number) => [
    make("td", { "data-name": t("glossary.source") }, field(row, 0, number)),
    make("td", { "data-name": t("glossary.targets") }, field(row, 1, number)),
    make("td", { "data-name": t("glossary.rule") }, ruleOf(row, number)),
    make("td", {}, make("button", { type: "button", onclick: () => remove(number), "aria-label": t("term-remove", number + 1) }, "×")),
  ]);
  at("#terms tbody").replaceChildren(...fields.map((cells) => make("tr", {}, ...cells)));
  at("#terms").hidden = !fields.length;
  drawCount();
}

function drawCount() {
  const count = linesOf(rows()).length;
  at("#terms-count").textContent = count ? `(${count})` : "";
  at("#save-terms").disabled = !count;
  const said = sayTwice().join(" ");
  if (at("#terms-twice").textContent !== said) at("#terms-twice").textContent = said;
}

// Of two entries for a term the first counts.
function sayTwice() {
  const first = new Map(); // the lines of the terms
  return rows().flatMap((row, index) => {
    if (!complete(row)) return [];
    const [source, number] = [normal(row[0]), index + 1];
    if (!first.has(source)) first.set(source, number);
    return first.get(source) < number ? [`${t("line", number)}: ${t("term-fault.twice", source, first.get(source))}.`] : [];
  });
}

function field(row, column, number) {
  const label = t(column ? "term-target" : "term-source", number + 1);
  const input = make("input", { type: "text", "aria-label": label, dir: "auto", maxlength: LONGEST });
  input.value = row[column];
  input.addEventListener("input", () => {
    row[column] = input.value.replace(/\s/g, " ");
    keep();
  });
  return input;
}

function ruleOf(row, number) {
  const options = RULES.map((rule) => make("option", { value: rule }, t(`rule.${rule}`)));
  const select = make("select", { "aria-label": t("term-rule", number + 1) }, ...options);
  select.value = row[2];
  select.addEventListener("change", () => {
    row[2] = select.value;
    keep();
  });
  return select;
}

function redraw() {
  drawTerms();
  keep();
}

function remove(number) {
  rows().splice(number, 1);
  redraw();
  at("#add-term").focus();
}

// The first row of each term, by its name.
function rowsByTerm() {
  const found = new Map();
  rows().forEach(([source], index) => source.trim() && !found.has(normal(source)) && found.set(normal(source), index));
  return found;
}

// Adds a term, or gives it another translation where there is one.
function put(row, known = rowsByTerm()) {
  rows()[known.get(normal(row[0])) ?? rows().length] = row;
}

function addTerm() {
  const { source, target } = standing();
  put([source, target, "match"]);
  Object.assign(selected, { source: "", target: "" });
  redraw();
  drawAddition();
  const inputs = at("#terms tbody").lastChild.querySelectorAll("input");
  if (!source || !target) inputs[inputs[0].value ? 1 : 0].focus();
}

async function openTerms(event) {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) takeLines(await file.text());
}

// Lines into a field are a glossary, too.
function pasteTerms(event) {
  const text = event.clipboardData.getData("text/plain");
  if (!/[\t\n]/.test(text.trim())) return;
  event.preventDefault();
  takeLines(text);
  at("#add-term").focus(); // the field is another one now
}

// Adds the terms of a file as `--glossary` takes them, and says which lines are left out, and why, and which terms had
// another translation.
function takeLines(text) {
  const first = new Map(); // the lines of the terms
  const known = rowsByTerm();
  const replaced = [];
  const faults = text.replace(/^\ufeff/, "").split(/\r?\n/).map((line, index) => {
    if (!line.trim() || line.startsWith("#")) return "";
    const [source, targets = "", rule, ...more] = line.split("\t").map(normal);
    const every = targets.split("|").map((target) => target.trim());
    if (!line.includes("\t")) return t("term-fault.tab");
    if (more.length) return t("term-fault.columns");
    if (!source || !every.every(Boolean)) return t("term-fault.empty");
    if (rule && !RULES.includes(rule)) return t("term-fault.rule", rule, RULES.join(", "));
    if ([source, ...every].some((term) => [...term].length > LONGEST)) return t("term-fault.long", LONGEST);
    if (first.has(source)) return t("term-fault.twice", source, first.get(source));
    first.set(source, index + 1);
    const [, old = ""] = rows()[known.get(source)] ?? [];
    const [was, is] = [formsOf(old).join(" | "), every.join(" | ")];
    if (was && was !== is) replaced.push(t("term-replaced", source, was, is));
    put([source, targets, rule || "match"], known);
    return "";
  });
  if (first.size) terms[pairName] = rows().filter(([source, targets]) => source.trim() || targets.trim());
  const said = faults.map((fault, index) => fault && make("li", {}, `${t("line", index + 1)}: ${fault}`)).filter(Boolean);
  said.push(...replaced.map((text) => make("li", {}, text)));
  const shown = said.slice(0, MOST_FAULTS);
  if (said.length > shown.length) shown.push(make("li", {}, t("document.more", said.length - shown.length)));
  redraw();
  const summary = make("p", {}, t("term-faults", first.size, said.length - replaced.length));
  at("#terms-faults").replaceChildren(...(said.length || !first.size ? [summary, make("ul", {}, ...shown)] : []));
}

function keep() {
  const kept = Object.fromEntries(Object.entries(terms).filter(([, list]) => list.length));
  if (at("#remember").checked) localStorage.setItem(KEPT, JSON.stringify(kept));
  else localStorage.removeItem(KEPT);
  drawCount();
  changed();
}

function noteSelection() {
  const source = at("#source");
  const selection = getSelection();
  let [side, text] = ["", ""];
  if (document.activeElement === source) {
    [side, text] = ["source", source.value.slice(source.selectionStart, source.selectionEnd)];
  } else if (at("#output").contains(selection.anchorNode)) {
    [side, text] = ["target", selection.toString()];
  }
  text = text.trim();
  if (!side) return;
  selected[side] = text.length > LONGEST || /[\n\t]/.test(text) ? "" : text;
  drawAddition();
}

// What was selected, where it still stands.
function standing() {
  const { source, target } = selected;
  return { source: at("#source").value.includes(source) ? source : "", target: translated().includes(target) ? target : "" };
}

// The button names the words that were selected.
function drawAddition() {
  const { source, target } = standing();
  at("#add-term").textContent = source && target ? t("term-always", source, target) : t("term-add");
}
