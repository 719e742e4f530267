// What went wrong, where it happened, and what to do about it.

import { giveKey, hasKey } from "./api.js";
import { at, make, t } from "./elements.js";

let timer = 0;

export const againButton = (again) => make("button", { type: "button", onclick: again }, t("again"));

export function clearTrouble() {
  clearInterval(timer);
  at("#trouble").replaceChildren();
  at("#trouble").hidden = true;
}

// again: what to do once more, by itself after the seconds of the trouble; null where a button stands there already.
export function showTrouble(trouble, again) {
  clearTrouble();
  const box = at("#trouble");
  box.hidden = false;
  if (trouble.kind === "key") return askForKey(box, again);
  const text = { offline: t("offline"), busy: t("busy"), late: t("late"), failed: t("failed") }[trouble.kind];
  const message = make("p", {}, text ?? trouble.message ?? String(trouble));
  box.append(message);
  if (!again || trouble.kind === "refused" || trouble.kind === "length") return;
  const retry = () => {
    clearTrouble();
    again();
  };
  box.append(againButton(retry));
  if (!trouble.seconds) return;
  let left = trouble.seconds;
  const count = make("span", { "aria-hidden": "true" }, t("again-in", left));
  box.append(" ", count);
  timer = setInterval(() => {
    left -= 1;
    if (left <= 0) retry();
    else count.textContent = t("again-in", left);
  }, 1000);
}

function askForKey(box, again) {
  const field = make("input", { type: "password", id: "key", autocomplete: "off", required: "" });
  const send = (event) => {
    event.preventDefault();
    giveKey(field.value.trim());
    clearTrouble();
    again?.();
  };
  const label = make("label", { for: "key" }, hasKey() ? t("key-wrong") : t("key-needed"));
  box.append(make("form", { onsubmit: send }, label, " ", field, " ", make("button", {}, t("key-give"))));
}
