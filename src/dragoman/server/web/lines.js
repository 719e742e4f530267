// Translations of lines, of which each is asked for once.

import { ask } from "./api.js";

const known = new Map(); // translations by wish and line, the oldest first
const MOST = 5000;
const MOST_AT_ONCE = 2000; // characters of a request: long texts appear bit by bit, and none waits beyond its deadline

const nameOf = (line, wish) => `${JSON.stringify(wish)}\n${line}`; // neither part has a line break

// The translation of a line, if it is known. wish: source, target and the lines of a glossary.
export const find = (line, wish) => known.get(nameOf(line, wish));

function remember(line, wish, translation) {
  known.set(nameOf(line, wish), { ...translation, line, wish });
  if (known.size > MOST) known.delete(known.keys().next().value);
}

// Asks for the lines that are not known, in several requests if there are many; `arrived` is called after each.
export async function translateLines(lines, wish, mostTexts, signal, arrived) {
  const missing = [...new Set(lines)].filter((line) => line.trim() && !find(line, wish));
  while (missing.length) {
    const texts = [];
    let characters = 0;
    while (missing.length && texts.length < mostTexts && (!texts.length || characters + missing[0].length < MOST_AT_ONCE)) {
      characters += missing[0].length;
      texts.push(missing.shift());
    }
    const { translations } = await ask("api/v1/translate", { body: { texts, ...wish }, signal });
    texts.forEach((line, index) => remember(line, wish, translations[index]));
    if (missing.length) arrived();
  }
}

// What the model says of the words of a translation: `alignment` and `words`. Asked for when somebody looks.
export function examine(translation, pair) {
  if (!pair?.alignment && !pair?.word_scores) return Promise.resolve({ alignment: [], words: [] });
  const body = {
    texts: [translation.line],
    ...translation.wish,
    alignment: pair.alignment,
    word_scores: pair.word_scores,
  };
  translation.examined ??= ask("api/v1/translate", { body }).then(
    ({ translations: [one] }) => ({ alignment: one.alignment ?? [], words: one.words ?? [] }),
    () => {
      translation.examined = undefined; // the next look asks again
      return { alignment: [], words: [] };
    },
  );
  return translation.examined;
}
