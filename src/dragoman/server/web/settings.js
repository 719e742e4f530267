// The reader's language and colours, and their key: the menu at the end of the header of every page.

import { forgetKey, hasKey } from "./api.js";
import { at, language } from "./elements.js";
import { keep, read } from "./storage.js";

const LANGUAGES = ["en", "ko"];

// speakIn: writes the page in a language; repaint: draws what has colours of its own.
export function setUpSettings(speakIn, repaint) {
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      keep("language", button.dataset.language);
      speakIn(button.dataset.language);
    });
  }
  at("#theme").value = read("theme") ?? "system";
  at("#theme").addEventListener("change", (event) => {
    const theme = event.target.value;
    keep("theme", theme === "system" ? "" : theme);
    at("#dark").media = { light: "not all", dark: "all" }[theme] ?? "(prefers-color-scheme: dark)";
    repaint();
  });
  at("#settings").addEventListener("beforetoggle", () => (at("#forget-key").hidden = !hasKey()));
  at("#forget-key").addEventListener("click", () => {
    forgetKey();
    location.reload();
  });
  const kept = read("language");
  speakIn(LANGUAGES.includes(kept) ? kept : language);
}
