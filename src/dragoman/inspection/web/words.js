// Words: those of one language shade those of the other.

import { at, fixed, make, t } from "./elements.js";

let shownWords = null; // the data that they were made from
let links = null; // weights, row by row, of target words and source words without EOS; null: none
let pinnedWord = null;

export function showWords(data) {
  if (data !== shownWords) {
    shownWords = data;
    links = data.links;
    pinnedWord = null;
    makeWords(data);
  }
  const how = data.alignment;
  let from = t("no-links");
  if (links) {
    const head = how.head === null ? t("mean-of-heads") : `${t("head")} ${how.head}`;
    const sure = how.agreement === null ? t("not-measured") : t("measured", fixed(100 * how.agreement, 1), how.links.toLocaleString("en"));
    from = t("links", how.layer, head, sure);
  }
  at("#words-from").textContent = from;
  at("#words-readout").textContent = "";
}

function makeWords(data) {
  for (const name of ["source", "target"]) {
    const paragraph = at(`#${name}-words`);
    paragraph.onmouseleave = () => pinnedWord || lookFrom(null);
    paragraph.onkeydown = (event) => moveAmongWords(event, paragraph);
    if (links) paragraph.replaceChildren(...links[name].map((label, number) => wordButton(name, label, number)));
    else paragraph.replaceChildren(data[name].text);
  }
}

function wordButton(name, label, number) {
  const look = () => pinnedWord || lookFrom(name, number);
  const pin = () => {
    const same = pinnedWord && pinnedWord[0] === name && pinnedWord[1] === number;
    pinnedWord = same ? null : [name, number];
    lookFrom(name, number);
  };
  const attributes = { type: "button", class: "word", dir: "auto", tabindex: number ? -1 : 0 };
  return make("button", { ...attributes, onmouseenter: look, onfocus: look, onclick: pin }, label);
}

function moveAmongWords(event, paragraph) {
  moveWithin(event, paragraph);
  if (event.key !== "Escape") return;
  pinnedWord = null;
  lookFrom(null);
}

// Moves the focus among the children of an element, of which one is reached by Tab.
export function moveWithin(event, parent) {
  const all = [...parent.children];
  const here = all.indexOf(document.activeElement);
  const there = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: all.length - 1 }[event.key];
  if (!all[there]) return;
  all[here].tabIndex = -1;
  all[there].tabIndex = 0;
  all[there].focus();
  event.preventDefault();
}

// Shades the words of the other side by how much they belong to one; name null: none.
function lookFrom(name, number) {
  const buttons = { source: at("#source-words").children, target: at("#target-words").children };
  for (const button of [...buttons.source, ...buttons.target]) {
    button.style.setProperty("--weight", 0);
    button.classList.remove("looking", "pinned");
  }
  if (name === null) {
    at("#words-readout").textContent = "";
    return;
  }
  const other = name === "source" ? "target" : "source";
  const width = links.source.length;
  const index = (i) => (name === "target" ? number * width + i : i * width + number);
  const weights = links[other].map((_, i) => links.weights[index(i)]);
  weights.forEach((weight, i) => buttons[other][i].style.setProperty("--weight", weight));
  const own = buttons[name][number];
  own.classList.add("looking");
  own.classList.toggle("pinned", pinnedWord !== null);
  const best = weights.map((weight, i) => [weight, links[other][i]]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  const named = best.map(([weight, label]) => `${label} ${fixed(weight)}`).join(", ");
  at("#words-readout").textContent = t(`looked.${name}`, links[name][number], named);
}
