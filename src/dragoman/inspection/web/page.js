// The page of `dragoman inspect`: everything that it shows is in the document.

import { showAttention } from "./attention.js";
import { at, language, read, speak, t, themed } from "./elements.js";
import { showEncoding, showOcclusion } from "./signed.js";
import { showHeads, showPositions } from "./tables.js";
import { showTree } from "./tree.js";
import { showWords } from "./words.js";

const data = read("data");

function render() {
  at("#about").textContent = t(data.tree ? "searched" : "given");
  for (const show of [showWords, showAttention, showHeads, showPositions, showTree, showOcclusion, showEncoding]) {
    show(data);
  }
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
