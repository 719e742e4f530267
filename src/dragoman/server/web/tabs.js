// The tabs of the page: a text, and documents.

import { at } from "./elements.js";

const tabs = [...document.querySelectorAll("#tabs [role=tab]")];

export function openTab(id) {
  for (const tab of tabs) {
    const chosen = tab.id === id;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    at(`#${tab.getAttribute("aria-controls")}`).hidden = !chosen;
  }
}

at("#tabs").addEventListener("click", ({ target }) => tabs.includes(target) && openTab(target.id));
at("#tabs").addEventListener("keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  event.preventDefault();
  const other = tabs.find((tab) => tab !== event.target); // there are two
  openTab(other.id);
  other.focus();
});
