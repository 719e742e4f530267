// Ask the server.

import { keep, read } from "./storage.js";

const KEY = "key";
let key = read(KEY, "session") ?? read(KEY) ?? "";
let answered = false;

// Takes a key: for this tab, or remembered by this browser.
export function giveKey(given, remembered) {
  key = given;
  keep(KEY, remembered ? given : "");
  keep(KEY, remembered ? "" : given, "session");
}

export const forgetKey = () => giveKey("", false);
export const hasKey = () => Boolean(key);
export const hasAnswered = () => answered; // whether something was not refused

// What went wrong: offline, busy, late, key, refused or failed; with seconds after which to try again, where that helps.
export class Trouble extends Error {
  constructor(kind, message, seconds = 0) {
    super(message);
    Object.assign(this, { kind, seconds });
  }
}

const OFFLINE_SECONDS = 5;
const WRONG_KEY = /key is not valid|Invalid API key/; // not each 403 is about the key

// Returns the answer as a Response. body: an object to send as JSON, or a form.
export async function fetchFrom(path, { method = "POST", body, signal } = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const form = body instanceof FormData;
  if (body && !form) headers["Content-Type"] = "application/json";
  const sent = form ? body : body && JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, { method, headers, body: sent, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("offline", "", OFFLINE_SECONDS);
  }
  if (!response.ok) throw await troubleOf(response);
  answered = true;
  return response;
}

export async function ask(path, options) {
  const response = await fetchFrom(path, options);
  return response.json();
}

async function troubleOf(response) {
  const { status } = response;
  let message = "";
  try {
    const { error } = await response.json();
    message = (error.message ?? error).replace("Invalid request: ", "");
  } catch {
    message = `HTTP ${status}`;
  }
  const seconds = Math.max(1, Math.ceil(Number(response.headers.get("Retry-After")) || 1));
  if (status === 503 && message.includes("longer than")) return new Trouble("late", message);
  if (status === 503 || status === 429) return new Trouble("busy", message, seconds);
  if (status === 401 || (status === 403 && WRONG_KEY.test(message))) return new Trouble("key", message);
  return new Trouble(status < 500 ? "refused" : "failed", message);
}
