// Terms that are to be translated in a certain way, for each pair of languages. They stay in this page, unless the
// reader asks the browser to remember them.

import { at, language, make, t } from "./elements.js";
import { download } from "./files.js";
import { focusedLinks, translated } from "./paper.js";
import { bare } from "./steering.js";
import { keep, read } from "./storage.js";
import { folded, Terms } from "./terms.js";

const RULES = ["match", "exact", "any"];
const KEPT = "glossary";
const LONGEST = 200; // characters of a term
const MOST_FAULTS = 50; // that are listed
const MOST_TERMS = 50_000; // of two languages: the server takes no more
const MOST_ROWS = 200; // that are drawn
const PAUSE = 300; // milliseconds after the last key
const SHORT = 4; // letters of a word in a script with cases: shorter ones are mostly about grammar

let terms = {}; // by pair: lists of [source, targets, rule]
let pairName = "";
let drawnFor = ""; // languages
let possible = false;
let changed = () => {};
let offered = null; // the word of which a term can be made
let common = []; // words that are mostly about grammar
let waiting = 0;
const selected = { source: "", target: "" }; // what was last selected on each side

const rows = () => (terms[pairName] ??= []);
const normal = (text) => text.normalize("NFC").trim().replace(/\s+/g, " "); // as the server names a term
const formsOf = (targets) => targets.split("|").map((form) => form.trim()).filter(Boolean); // the last may not be written yet
const lineOf = ([source, targets, rule]) => [source.trim(), formsOf(targets).join("|"), ...(rule === "match" ? [] : [rule])].join("\t");

const entries = new WeakMap(); // what is known of each row as it was written last

// Of a row the `name` of its term, as it is looked for in texts `folded`, and its `line`, if it is complete.
function entryOf(row) {
  const written = row.join("\t");
  if (entries.get(row)?.written !== written) {
    const name = normal(row[0]);
    const line = name && formsOf(row[1]).length ? lineOf(row) : "";
    entries.set(row, { written, name, line, folded: line && folded(name) });
  }
  return entries.get(row);
}

const completeOf = (list) => list.map(entryOf).filter(({ line }) => line);
const finders = {}; // by pair: what finds the terms of a text

// What finds the terms of a text.
export function termsFor(source, target) {
  const name = `${source}-${target}`;
  finders[name] ??= new Terms(completeOf(terms[name] ?? []).map(({ folded, line }) => [folded, line]));
  return finders[name];
}

// The lines that go with a document.
export const glossaryLines = (source, target) => completeOf(terms[`${source}-${target}`] ?? []).map(({ line }) => line);

export function setUpGlossary(whenChanged) {
  changed = whenChanged;
  const kept = read(KEPT);
  if (kept) {
    try {
      terms = JSON.parse(kept);
      at("#remember").checked = true;
    } catch {
      keep(KEPT, "");
    }
  }
  at("#add-term").addEventListener("click", addTerm);
  at("#remember").addEventListener("change", settle);
  at("#find-term").addEventListener("input", drawTerms);
  at("#open-terms").addEventListener("change", openTerms);
  at("#glossary").addEventListener("paste", pasteTerms);
  at("#save-terms").addEventListener("click", () => {
    download(`glossary-${pairName}.tsv`, "text/tab-separated-values", completeOf(rows()).map(({ line }) => `${line}\n`).join(""));
  });
  document.addEventListener("selectionchange", noteSelection);
  at("#source").addEventListener("input", hideOffer); // the caret has left the word
}

// takesTerms: whether there can be terms; ofGrammar: words of the source of which no term is offered.
export function drawGlossary(source, target, takesTerms, ofGrammar) {
  [possible, common] = [takesTerms, ofGrammar];
  drawAddition();
  if (offered && !offered.isConnected) hideOffer();
  const name = [source, target, possible, language].join();
  if (name === drawnFor) return;
  drawnFor = name;
  at("#glossary").hidden = false; // before its languages are known, terms would have no place
  offerTerm();
  at("#terms-faults").replaceChildren();
  at("#terms-impossible").hidden = possible;
  pairName = `${source}-${target}`;
  at("#find-term").value = "";
  drawTerms();
}

// Puts the focus on the translation of a term.
export function goToTerm(term) {
  at("#glossary").open = true;
  const row = rows().find((one) => entryOf(one).name === term);
  if (row && !shownRows().includes(row)) {
    at("#find-term").value = term;
    drawTerms();
  }
  const number = shownRows().indexOf(row);
  const input = at("#terms tbody").children[number]?.querySelectorAll("input")[1] ?? at("#add-term");
  input.focus();
  input.select?.();
}

// Offers to make a term of the word that has the focus: of one of the text, its translation is still to be written.
export async function offerTerm() {
  hideOffer();
  const words = possible && (await focusedLinks());
  if (!words?.source) return;
  const [source, target] = [bare(words.source), words.element.place.side === "target" ? bare(words.target) : ""];
  if (isGrammar(source)) return;
  offered = words.element;
  const text = target ? t("term-always", source, target) : t("term-begin", source);
  showOffer(text, () => makeTerm(source, target));
}

function hideOffer() {
  offered = null;
  at("#always").hidden = true;
}

function showOffer(text, onclick) {
  Object.assign(at("#always"), { textContent: text, onclick, hidden: false });
}

// Whether a term of a word would be wrong in many places: "to", "could".
const isGrammar = (word) => common.includes(word.toLowerCase()) || (word.length < SHORT && /\p{Cased}/u.test(word));

// What was done with one click is taken back with another one, in the same place.
function makeTerm(source, target) {
  const name = normal(source);
  const before = rows().find((row) => entryOf(row).name === name);
  const made = [source, target, "match"];
  if (target || !before) put(made);
  offered = null; // the translation is drawn anew
  redraw();
  if (!target) {
    hideOffer();
    return goToTerm(name);
  }
  showOffer(t("term-undo", source, target), () => {
    const place = rows().indexOf(made);
    if (place >= 0) rows().splice(place, 1, ...(before ? [before] : []));
    hideOffer();
    redraw();
  });
}

// The rows that are drawn: the last ones of those that are looked for.
function shownRows() {
  const wanted = at("#find-term").value.trim().toLowerCase();
  const has = (row) => entryOf(row).written.toLowerCase().includes(wanted);
  return (wanted ? rows().filter(has) : rows()).slice(-MOST_ROWS);
}

function drawTerms() {
  const places = new Map(rows().map((row, number) => [row, number]));
  const shown = shownRows();
  const fields = shown.map((row) => [row, places.get(row)]).map(([row, number]) => [
    make("td", { "data-name": t("glossary.source") }, field(row, 0, number)),
    make("td", { "data-name": t("glossary.targets") }, field(row, 1, number)),
    make("td", { "data-name": t("glossary.rule") }, ruleOf(row, number)),
    make("td", {}, make("button", { type: "button", onclick: () => remove(row), "aria-label": t("term-remove", number + 1) }, "×")),
  ]);
  at("#terms tbody").replaceChildren(...fields.map((cells) => make("tr", {}, ...cells)));
  at("#terms").hidden = !fields.length;
  at("#find-terms").hidden = rows().length <= MOST_ROWS;
  at("#terms-shown").textContent = t("terms-shown", shown.length, rows().length.toLocaleString(language));
  drawCount();
}

function drawCount() {
  const count = completeOf(rows()).length;
  at("#terms-count").textContent = count ? `(${count.toLocaleString(language)})` : "";
  at("#save-terms").disabled = !count;
  const said = sayTwice().join(" ");
  if (at("#terms-twice").textContent !== said) at("#terms-twice").textContent = said;
}

// Of two entries for a term the first counts.
function sayTwice() {
  const first = new Map(); // the lines of the terms
  return rows().map(entryOf).flatMap(({ name, line }, index) => {
    if (!line) return [];
    if (!first.has(name)) first.set(name, index + 1);
    return first.get(name) <= index ? [`${t("line", index + 1)}: ${t("term-fault.twice", name, first.get(name))}.`] : [];
  });
}

function field(row, column, number) {
  const label = t(column ? "term-target" : "term-source", number + 1);
  const input = make("input", { type: "text", "aria-label": label, dir: "auto", maxlength: LONGEST });
  input.value = row[column];
  input.addEventListener("input", () => {
    row[column] = input.value.replace(/\s/g, " ");
    clearTimeout(waiting);
    waiting = setTimeout(settle, PAUSE);
  });
  return input;
}

function ruleOf(row, number) {
  const options = RULES.map((rule) => make("option", { value: rule }, t(`rule.${rule}`)));
  const select = make("select", { "aria-label": t("term-rule", number + 1) }, ...options);
  select.value = row[2];
  select.addEventListener("change", () => {
    row[2] = select.value;
    settle();
  });
  return select;
}

function redraw() {
  drawTerms();
  settle();
}

function remove(row) {
  rows().splice(rows().indexOf(row), 1);
  redraw();
  at("#add-term").focus();
}

// The first row of each term, by its name.
function rowsByTerm() {
  const found = new Map();
  rows().map(entryOf).forEach(({ name }, index) => name && !found.has(name) && found.set(name, index));
  return found;
}

// Adds a term, or gives it another translation where there is one.
function put(row, known = rowsByTerm()) {
  rows()[known.get(entryOf(row).name) ?? rows().length] = row;
}

function addTerm() {
  const { source, target } = standing();
  put([source, target, "match"]);
  at("#find-term").value = "";
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
  const before = [...rows()];
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
  const count = completeOf(rows()).length;
  if (count > MOST_TERMS) {
    terms[pairName] = before;
    const [all, most] = [count, MOST_TERMS].map((number) => number.toLocaleString(language));
    return at("#terms-faults").replaceChildren(make("p", {}, t("terms-many", all, most)));
  }
  if (first.size) terms[pairName] = rows().filter(([source, targets]) => source.trim() || targets.trim());
  const said = faults.map((fault, index) => fault && make("li", {}, `${t("line", index + 1)}: ${fault}`)).filter(Boolean);
  said.push(...replaced.map((text) => make("li", {}, text)));
  const shown = said.slice(0, MOST_FAULTS);
  if (said.length > shown.length) shown.push(make("li", {}, t("document.more", said.length - shown.length)));
  redraw();
  const summary = make("p", {}, t("term-faults", first.size, said.length - replaced.length));
  at("#terms-faults").replaceChildren(...(said.length || !first.size ? [summary, make("ul", {}, ...shown)] : []));
}

// What follows from a change: the terms are kept if that is asked for and there is room, and texts have others.
function settle() {
  clearTimeout(waiting);
  delete finders[pairName];
  const kept = Object.fromEntries(Object.entries(terms).filter(([, list]) => list.length));
  const asked = at("#remember").checked;
  const done = keep(KEPT, asked ? JSON.stringify(kept) : "");
  at("#remember-fault").textContent = asked && !done ? t("glossary.unkept") : "";
  at("#remember").checked = asked && done;
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
