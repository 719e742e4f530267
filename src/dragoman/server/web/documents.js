// Documents: chosen or dropped, translated, downloaded, and then deleted on the server.

import { ask, fetchFrom, Trouble } from "./api.js";
import { at, make, t } from "./elements.js";
import { inWords } from "./notes.js";
import { openTab } from "./tabs.js";

const MOST_FAULTS = 50; // that are listed
const PAUSE = 700; // milliseconds between two questions how far it is
const AT_ONCE = 1000; // terms in a value of a form, which has few and short ones
const BLANK = 1000; // bytes up to which a file may be blank: longer ones are not read here

const waiting = new Set(); // what is sent, and not yet saved
let wishOf = () => ({});
let formats = [];

// wish: returns the languages and the lines of the glossary.
export function setUpDocuments(known, wish) {
  [formats, wishOf] = [known, wish];
  const takesSome = Boolean(formats.length);
  for (const part of document.querySelectorAll("#documents > *")) part.hidden = (part.id === "documents-off") === takesSome;
  const choose = at("#document");
  choose.accept = formats.join(",");
  choose.addEventListener("change", () => {
    for (const file of choose.files) translateFile(file);
    choose.value = "";
  });
  addEventListener("beforeunload", (event) => waiting.size && event.preventDefault()); // the browser asks
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    openTab("tab-documents");
    if (!takesSome) return;
    for (const file of event.dataTransfer.files) translateFile(file);
  });
}

// What depends on the language of the page.
export function drawDocuments() {
  at("#formats").textContent = t("formats", formats.join(" "));
  for (const item of at("#document-list").children) item.draw();
}

// What needs a look, with the lines of the document.
function drawFaults(list, faults) {
  const shown = faults.slice(0, MOST_FAULTS).map(({ line, flag }) => make("li", {}, line ? `${t("line", line)}: ` : "", inWords(flag)));
  const more = faults.length - shown.length;
  list.replaceChildren(...shown, ...(more ? [make("li", {}, t("document.more", more))] : []));
}

async function translateFile(file) {
  const name = make("b", { dir: "auto" }, file.name);
  const state = make("span", { role: "status" });
  const bar = make("progress", { "aria-label": file.name });
  const buttons = make("span", {});
  const faults = make("ul", { class: "warning" });
  const item = make("li", {}, name, " ", bar, " ", state, " ", buttons, faults);
  let found = {};
  let saying;
  item.draw = (said = saying) => {
    saying = said;
    state.textContent = said();
    drawFaults(faults, found.faults ?? []);
  };
  item.draw(() => t("document.sending"));
  at("#document-list").append(item);
  const stop = new AbortController();
  let identity = "";
  const path = () => `api/v1/documents/${encodeURIComponent(identity)}`;
  const button = (key, onclick) => make("button", { type: "button", onclick, "data-t": key }, t(key));
  const forget = async () => identity && (await fetchFrom(path(), { method: "DELETE" }));
  const away = (error) => item.draw(() => (error.kind === "offline" ? t("document.away") : error.message));
  const leave = async () => {
    stop.abort();
    try {
      await forget();
    } catch (error) {
      if (error.kind === "offline") return away(error); // the server still has it
    }
    waiting.delete(item);
    item.remove();
    at("#document").focus();
  };
  buttons.append(button("cancel", leave));
  try {
    if (file.size <= BLANK && !(await file.text()).trim()) throw new Trouble("unfit", t("document.empty"));
    if (!formats.some((format) => file.name.toLowerCase().endsWith(format))) {
      throw new Trouble("unfit", `${t("document.unfit")} ${t("formats", formats.join(" "))}`);
    }
    waiting.add(item); // until it is saved
    const form = new FormData();
    const { glossary, ...languages } = wishOf();
    for (const [field, value] of Object.entries(languages)) form.append(field, value);
    for (let done = 0; done < glossary.length; done += AT_ONCE) {
      form.append("glossary", glossary.slice(done, done + AT_ONCE).join("\n"));
    }
    form.append("file", file);
    while (found.status !== "done") {
      let trouble = null; // that passes
      try {
        const next = identity ? ask(path(), { method: "GET", signal: stop.signal }) : ask("api/v1/documents", { body: form, signal: stop.signal });
        found = await next;
        identity ||= found.id;
      } catch (error) {
        if (!error.seconds || (error.kind === "offline" && !identity)) throw error;
        trouble = error;
      }
      if (found.error) throw new Trouble("refused", found.error);
      if (found.status === "done") break;
      Object.assign(bar, { max: found.texts || 1, value: found.translated ?? 0 });
      const wait = () => t(trouble.kind === "offline" ? "document.away" : "busy");
      item.draw(() => (trouble ? wait() : t("document.progress", found.translated, found.texts)));
      await new Promise((resolve) => setTimeout(resolve, trouble ? 1000 * trouble.seconds : PAUSE));
      if (stop.signal.aborted) return;
    }
    bar.remove();
    item.draw(() => t(found.texts ? "document.done" : "document.none", found.texts));
    const save = async () => {
      let content;
      try {
        content = await (await fetchFrom(`${path()}/content`, { method: "GET" })).blob();
      } catch (error) {
        return away(error);
      }
      const url = URL.createObjectURL(content);
      make("a", { href: url, download: found.name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
      forget().catch(() => {}); // after an hour it is deleted anyway
      identity = "";
      waiting.delete(item);
      item.draw(() => t("document.saved"));
      buttons.replaceChildren(button("document.remove", leave));
      at("#document").focus();
    };
    buttons.replaceChildren(button("document.save", save), " ", button("document.delete", leave));
  } catch (error) {
    if (error.name === "AbortError") return;
    bar.remove();
    waiting.delete(item);
    const known = { offline: "document.away", busy: "busy", key: "key-needed", failed: "failed" }[error.kind];
    item.draw(() => (known ? t(known) : error.kind === "unfit" ? error.message : t("document.refused", error.message)));
    item.classList.add("warning");
    const again = () => {
      item.remove();
      translateFile(file);
    };
    const passing = ["offline", "busy", "failed"].includes(error.kind);
    buttons.replaceChildren(...(passing ? [button("again", again), " "] : []), button("document.remove", leave));
  }
}
