// Writing along: what the reader writes of a sentence is its beginning, and the model writes the rest.

import { ask } from "./api.js";
import { at, make, t } from "./elements.js";
import { goToWord, placeAtCaret, say, shown } from "./paper.js";
import { replaceSentence, sentenceAt } from "./steering.js";

const QUIET = 1200; // milliseconds without a key before the rest is read out

let place = { line: 0, sentence: 0 }; // the word or sentence that had the focus last
let open = null; // what is being written
let pressed = false; // until the click

function begin() {
  const sentence = sentenceAt(place) ?? sentenceAt((place = { line: shown().findIndex((one) => one.translation), sentence: 0 }));
  if (!sentence || open?.box.isConnected) return;
  const { wish } = sentence.translation;
  const rest = make("span", { class: "rest" });
  const typed = make("span", {});
  const box = make("textarea", {
    rows: 1, dir: "auto", lang: wish.target, spellcheck: "false", autocomplete: "off",
    "aria-label": t("write.label", sentence.source), "aria-describedby": "write-help",
  });
  const help = make("p", { class: "note", id: "write-help" }, t("write.help"));
  const accept = (key, taken) => make("button", { type: "button", onmousedown: keepFocus, onclick: () => take(taken()) }, t(key));
  const buttons = make("p", { class: "bar" }, accept("write.word", nextWord), accept("write.rest", remainder));
  const said = make("span", { class: "unseen", role: "status" });
  const editor = make("div", { class: "along" }, make("div", { class: "ghost", "aria-hidden": "true", dir: "auto" }, typed, rest), box, buttons, help, said);
  const { sentences } = shown()[place.line];
  const original = sentences[place.sentence];
  original.hidden = true;
  original.after(editor);
  const letters = [...sentence.target];
  open = { sentence, original, editor, box, buttons, typed, rest, said, text: sentence.target, known: null, controller: new AbortController(), asked: null, speaking: 0 };
  box.value = letters.slice(0, sentence.fixed).join("");
  draw();
  box.addEventListener("input", (event) => !event.isComposing && follow());
  box.addEventListener("compositionend", follow);
  box.addEventListener("keydown", press);
  editor.addEventListener("focusout", (event) => pressed || editor.contains(event.relatedTarget) || leave());
  drawWriting();
  box.focus();
  box.setSelectionRange(box.value.length, box.value.length);
}

// What follows from what stands in the box.
const remainder = ({ text, box } = open) => (text.startsWith(box.value) ? text.slice(box.value.length) : "");
const nextWord = () => remainder().match(/^\s*\S+/)?.[0] ?? remainder();
const keepFocus = (event) => event.preventDefault(); // so that the keyboard of a phone stays open

function draw() {
  open.typed.textContent = open.box.value;
  open.rest.textContent = remainder() || "\u200b";
  for (const button of open.buttons.children) button.disabled = !remainder();
  clearTimeout(open.speaking);
  open.speaking = setTimeout(() => open && (open.said.textContent = remainder()), QUIET);
}

function follow() {
  const { box } = open;
  if (box.value.includes("\n")) box.value = box.value.replaceAll("\n", " "); // of a text that was pasted
  const longer = box.value.length > open.typed.textContent.length;
  const expected = longer && remainder();
  draw();
  open.controller.abort();
  if (longer && (expected || box.value === open.text)) return; // as the model has it
  open.controller = new AbortController();
  if (!longer) open.text = box.value;
  draw();
  open.asked = complete(open, box.value, open.controller.signal);
}

// Asks what follows from the beginning that stands in a box.
async function complete(writing, before, signal) {
  const { source, translation } = writing.sentence;
  try {
    const body = { text: source, ...translation.wish, prefix: before.normalize(), count: 1 };
    const { words } = await ask("api/v1/alternatives", { body, signal });
    if (writing.box.value !== before) return;
    writing.known = words[0] ?? null;
    const text = writing.known?.text;
    writing.text = text?.startsWith(before.normalize()) ? before + text.slice(before.normalize().length) : before;
    if (open === writing) draw();
  } catch (error) {
    if (error.name === "AbortError") return;
    writing.known = { flags: ["unfinished"], terms_met: [], terms_missed: [] };
    say(() => error.message || t(error.kind));
  }
}

function take(text) {
  open.box.focus();
  open.box.setSelectionRange(open.box.value.length, open.box.value.length);
  document.execCommand("insertText", false, text); // which the browser can undo
}

function press(event) {
  const rest = remainder();
  const atEnd = open.box.selectionStart === open.box.value.length;
  if (event.key === "Escape" || (event.key === "Enter" && !event.isComposing)) {
    event.preventDefault();
    event.stopPropagation();
    const { line } = place;
    const word = place.word ?? at(".word", open.original)?.place.word ?? 0;
    return leave().then(() => goToWord(line, word));
  }
  if (!rest || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Tab") {
    event.preventDefault();
    take(nextWord());
  } else if (event.key === "End" && atEnd) {
    event.preventDefault();
    take(rest);
  }
}

// Leaves the box; what stands there, written and not yet written, becomes the translation. The rest may be on its way.
async function leave() {
  if (!open) return;
  const [writing, where] = [open, place];
  const { sentence, original, editor, box } = writing;
  clearTimeout(writing.speaking);
  open = null;
  editor.remove();
  original.hidden = false;
  drawWriting();
  await writing.asked;
  const [written, rest] = [box.value.trim() ? box.value : "", remainder(writing)];
  const changed = written + rest !== sentence.target || [...written].length !== sentence.fixed;
  if (!written || !changed || sentenceAt(where)?.translation !== sentence.translation) return;
  const { flags, terms_met, terms_missed } = writing.known ?? sentence.translation;
  const words = written.trim().split(/\s+/).slice(-3).join(" ");
  const chosen = { text: written + rest, kept: [...written].length, flags, terms_met, terms_missed };
  replaceSentence(where, chosen, () => t("steps.written", words));
}

export function drawWriting() {
  const writing = Boolean(open?.box.isConnected);
  at("#write").disabled = !writing && !shown().some(({ translation }) => translation?.segments?.length);
  at("#write").textContent = t(writing ? "write.done" : "write");
}

export function setUpWriting() {
  const output = at("#output");
  for (const moved of ["focusin", "click"]) {
    output.addEventListener(moved, (event) => {
      const word = event.target.closest(".word, .sentence");
      if (word && !open?.box.isConnected) ({ place } = word);
    });
  }
  const source = at("#source");
  const followCaret = () => {
    const caret = placeAtCaret(source);
    if (caret && !open?.box.isConnected) place = { line: caret.line, sentence: caret.sentence };
  };
  source.addEventListener("blur", followCaret);
  addEventListener("keydown", (event) => {
    if (event.key !== "F2" || open?.box.isConnected || at("dialog[open]")) return;
    event.preventDefault();
    if (document.activeElement === source) followCaret();
    begin();
  });
  at("#write").addEventListener("click", () => (open?.box.isConnected ? leave() : begin()));
  // Were the box left when a press takes the focus, what is pressed would move away before its click.
  addEventListener("mousedown", (event) => (pressed = !event.button), true);
  addEventListener("click", (event) => {
    pressed = false;
    if (open && event.target !== at("#write") && !open.editor.contains(document.activeElement)) leave();
  }, true);
}
