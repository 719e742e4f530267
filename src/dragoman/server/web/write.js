// Writing along: what the reader writes of a sentence is its beginning, and the model writes the rest.

import { ask } from "./api.js";
import { at, make, t } from "./elements.js";
import { goToWord, say, shown } from "./paper.js";
import { replaceSentence, sentenceAt } from "./steering.js";

const QUIET = 1200; // milliseconds without a key before the rest is read out

let place = { line: 0, sentence: 0 }; // the sentence that had the focus last
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
  const said = make("span", { class: "unseen", role: "status" });
  const editor = make("div", { class: "along" }, make("div", { class: "ghost", "aria-hidden": "true", dir: "auto" }, typed, rest), box, help, said);
  const { sentences } = shown()[place.line];
  const original = sentences[place.sentence];
  original.hidden = true;
  original.after(editor);
  const letters = [...sentence.target];
  open = { sentence, original, editor, box, typed, rest, said, text: sentence.target, known: null, controller: new AbortController(), speaking: 0 };
  box.value = letters.slice(0, sentence.fixed).join("");
  draw();
  box.addEventListener("input", (event) => !event.isComposing && follow());
  box.addEventListener("compositionend", follow);
  box.addEventListener("keydown", press);
  box.addEventListener("blur", () => pressed || leave());
  box.focus();
  box.setSelectionRange(box.value.length, box.value.length);
}

// What follows from what stands in the box.
const remainder = () => (open.text.startsWith(open.box.value) ? open.text.slice(open.box.value.length) : "");

function draw() {
  open.typed.textContent = open.box.value;
  open.rest.textContent = remainder() || "\u200b";
  clearTimeout(open.speaking);
  open.speaking = setTimeout(() => open && (open.said.textContent = remainder()), QUIET);
}

async function follow() {
  const { box, sentence } = open;
  const longer = box.value.length > open.typed.textContent.length;
  const before = box.value;
  const expected = longer && remainder();
  draw();
  open.controller.abort();
  if (longer && (expected || before === open.text)) return; // as the model has it
  const mine = (open.controller = new AbortController());
  if (!longer) open.text = before;
  draw();
  try {
    const body = { text: sentence.source, ...sentence.translation.wish, prefix: before.normalize(), count: 1 };
    const { words } = await ask("api/v1/alternatives", { body, signal: mine.signal });
    if (open?.box !== box || box.value !== before) return;
    open.known = words[0] ?? null;
    open.text = open.known?.text.startsWith(before.normalize()) ? before + open.known.text.slice(before.normalize().length) : before;
    draw();
  } catch (error) {
    if (error.name !== "AbortError" && open?.box === box) say(() => error.message || t(error.kind));
  }
}

function take(text) {
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
    const word = at(".word", open.original)?.place.word ?? 0;
    leave();
    return goToWord(line, word);
  }
  if (!rest || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Tab") {
    event.preventDefault();
    take(rest.match(/^\s*\S+/)?.[0] ?? rest);
  } else if (event.key === "End" && atEnd) {
    event.preventDefault();
    take(rest);
  }
}

// Leaves the box; what stands there, written and not yet written, becomes the translation.
function leave() {
  if (!open) return;
  const { sentence, original, editor, box, known } = open;
  const rest = remainder();
  const written = box.value.trim() ? box.value : "";
  open.controller.abort();
  clearTimeout(open.speaking);
  open = null;
  editor.remove();
  original.hidden = false;
  const changed = written + rest !== sentence.target || [...written].length !== sentence.fixed;
  if (!written || !changed || sentenceAt(place)?.translation !== sentence.translation) return;
  const { flags, terms_met, terms_missed } = known ?? sentence.translation;
  const words = written.trim().split(/\s+/).slice(-3).join(" ");
  replaceSentence(place, { text: written + rest, kept: [...written].length, flags, terms_met, terms_missed }, () => t("steps.written", words));
}

export function drawWriting() {
  at("#write").disabled = !shown().some(({ translation }) => translation?.segments?.length);
}

export function setUpWriting() {
  const output = at("#output");
  for (const moved of ["focusin", "click"]) {
    output.addEventListener(moved, (event) => {
      const word = event.target.closest(".word, .sentence");
      if (word && !open?.box.isConnected) place = { line: word.place.line, sentence: word.place.sentence };
    });
  }
  output.addEventListener("keydown", (event) => {
    if (event.key !== "F2" || open?.box.isConnected) return;
    event.preventDefault();
    begin();
  });
  at("#write").addEventListener("click", begin);
  // Were the box left when a press takes the focus, what is pressed would move away before its click.
  addEventListener("mousedown", (event) => (pressed = !event.button), true);
  addEventListener("click", (event) => {
    pressed = false;
    if (open && !open.editor.contains(document.activeElement)) leave();
  }, true);
}
