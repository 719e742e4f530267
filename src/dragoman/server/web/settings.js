// The reader's language and colours: the choice that stands in the header of every page, and is kept by the browser.

import { at, language } from "./elements.js";

// speakIn: writes the page in a language; repaint: draws what has colours of its own.
export function setUpSettings(speakIn, repaint) {
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      localStorage.setItem("language", button.dataset.language);
      speakIn(button.dataset.language);
    });
  }
  at("#theme").value = localStorage.getItem("theme") ?? "system";
  at("#theme").addEventListener("change", (event) => {
    const theme = event.target.value;
    if (theme === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", theme);
    at("#dark").media = { light: "not all", dark: "all" }[theme] ?? "(prefers-color-scheme: dark)";
    repaint();
  });
  speakIn(localStorage.getItem("language") ?? language);
}
