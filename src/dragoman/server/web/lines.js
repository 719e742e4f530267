// Translations of lines, of which each is asked for once.

import { ask } from "./api.js";
import { NONE, numberOf } from "./terms.js";

const known = new Map(); // translations by wish and line, the oldest first
const MOST = 5000;
const MOST_AT_ONCE = 2000; // characters of a request: long texts appear bit by bit, and none waits beyond its deadline

const steered = new Map(); // those that the reader has changed, likewise

// A wish is for some text: its source, its target, and as `terms` what finds the terms of a glossary; or it is for a
// line, and has as `glossary` the lines of those that are there.
export const wishFor = (text, { source, target, terms, glossary = terms.within(text) }) => ({ source, target, glossary });

export function nameOf(line, wish) {
  const { source, target, glossary } = wishFor(line, wish);
  return `${source} ${target} ${numberOf(glossary)}\n${line}`;
}

// The translation of a line, if it is known.
export function find(line, wish) {
  const name = nameOf(line, wish);
  return steered.get(name) ?? known.get(name);
}

// Puts another translation in the place of one; null: the one that the server found.
export function steer({ line, wish }, translation) {
  const name = nameOf(line, wish);
  if (translation) steered.set(name, translation);
  else steered.delete(name);
}

// Puts the reader's own translation of a line in the place of what is known.
export function correct(line, wish, text) {
  const before = find(line, wish);
  const whole = { source: [0, [...line].length], target: [0, [...text].length] };
  const nothing = { flags: [], memory: [], terms_met: [], terms_missed: [], fixed: {}, parts: undefined, examined: undefined };
  steer(before, { ...before, ...nothing, text, segments: [whole], steered: true, corrected: true });
}

// The translation of a line without the glossary, if it is known.
export const withoutTerms = ({ line, wish }) => known.get(nameOf(line, withoutGlossary(wish)));
export const withoutGlossary = ({ source, target }) => ({ source, target, glossary: NONE });

// What the server has learned since may change any line.
export const forgetAll = () => known.clear();

const MEMORY = "memory:"; // nothing is wrong with it: `memory` says what there is

function remember(line, wish, translation) {
  const flags = translation.flags.filter((flag) => !flag.startsWith(MEMORY));
  known.set(nameOf(line, wish), { ...translation, flags, line, wish: wishFor(line, wish) });
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
    const { translations } = await ask("api/v1/translate", { body: { texts, ...wishFor(texts.join("\n"), wish) }, signal });
    texts.forEach((line, index) => remember(line, wish, translations[index]));
    if (missing.length) arrived();
  }
}

// A part of a text, as the server counts letters.
export const cut = (text, [start, end]) => [...text].slice(start, end).join("");

const NOTHING = { alignment: [], words: [], others: [], origins: [] };

// What the model says of the words of a translation: `alignment`, `words`, `others` and `origins`. Asked for when somebody looks.
export function examine(translation, pair) {
  if (!pair?.alignment && !pair?.word_scores) return Promise.resolve(NOTHING);
  translation.examined ??= (translation.steered ? examineSentences(translation) : examineLine(translation, pair)).then(
    (found) => ({ ...NOTHING, ...found }),
    () => {
      translation.examined = undefined; // the next look asks again
      return NOTHING;
    },
  );
  return translation.examined;
}

async function examineLine({ line, wish }, { alignment, word_scores, memory }) {
  const body = { texts: [line], ...wish, alignment, word_scores, others: word_scores, origins: memory === "all" };
  const { translations } = await ask("api/v1/translate", { body });
  return translations[0];
}

// Of a translation that the server has not found: sentence by sentence, and put together.
async function examineSentences({ line, text, segments, wish: { source, target } }) {
  const texts = segments.map((segment) => cut(line, segment.source));
  const translations = segments.map((segment) => cut(text, segment.target));
  const found = await ask("api/v1/words", { body: { texts, translations, source, target } });
  const joined = { alignment: [], words: [], others: [] };
  let before = 0; // words of the sentences before, in the text
  found.translations.forEach(({ alignment, words, others }, number) => {
    const own = words.filter(([word]) => word);
    joined.alignment.push(...alignment.map(([one, other]) => [one + before, other + joined.words.length]));
    joined.words.push(...own);
    joined.others.push(...others);
    before += texts[number].split(/\s+/).filter(Boolean).length;
  });
  return joined;
}
