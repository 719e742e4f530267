// The page of `dragoman inspect`: everything that it shows is in the document.

import { showAttention } from "./attention.js";
import { showLines } from "./attention_lines.js";
import { at, language, read, speak, t, themed } from "./elements.js";
import { showEmbeddings } from "./embeddings.js";
import { showEncoding, showOcclusion } from "./signed.js";
import { showMemory } from "./memory.js";
import { showStages } from "./stages.js";
import { showHeads, showPositions } from "./tables.js";
import { showTree } from "./tree.js";
import { showWords } from "./words.js";

const data = read("data");

function render() {
  at("#about").textContent = t(data.tree ? "searched" : "given");
  for (const show of [showWords, showAttention, showLines, showStages, showHeads, showPositions]) show(data);
  for (const show of [showTree, showOcclusion, showMemory, showEmbeddings, showEncoding]) show(data);
}

function renderIn(chosen) {
  speak(chosen);
  render();
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => renderIn(button.dataset.language));
}
renderIn(language);
themed.addEventListener("change", render);
