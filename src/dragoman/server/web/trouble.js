// What went wrong, where it happened, and what to do about it.

import { giveKey, hasAnswered, hasKey } from "./api.js";
import { at, make, t } from "./elements.js";

let timer = 0;

export const againButton = (again) => make("button", { type: "button", onclick: again }, t("again"));

export function clearTrouble() {
  clearInterval(timer);
  at("#trouble").replaceChildren();
  at("#trouble").hidden = true;
  at("#sign-in").hidden = true;
  at("main").classList.remove("locked");
}

// again: what to do once more, by itself after the seconds of the trouble; null where a button stands there already.
export function showTrouble(trouble, again) {
  clearTrouble();
  if (trouble.kind === "key") return askForKey(again);
  const box = at("#trouble");
  box.hidden = false;
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

// Asks for a key above everything else, which is of no use before it is given.
function askForKey(again) {
  const form = at("#sign-in");
  const label = at("#key-label");
  label.dataset.t = hasKey() ? "key-wrong" : "key-needed";
  label.textContent = t(label.dataset.t);
  form.hidden = false;
  at("main").classList.toggle("locked", !hasAnswered());
  form.onsubmit = (event) => {
    event.preventDefault();
    giveKey(at("#key").value.trim(), at("#key-remember").checked);
    clearTrouble();
    again?.();
  };
  if (!hasAnswered()) at("#key").focus();
}
