// The terms of a glossary that a text may have. A request takes along these alone, however many others there are.

const START = 4; // letters by which terms are found
const MOST = 5000; // texts whose terms are kept

// Lists of terms, as the lines that have them: equal lists are the same one, and have a number.
export const NONE = [];
const lists = new Map([["", NONE]]);
const numbers = new Map([[NONE, 0]]);

function shared(lines) {
  const name = lines.join("\n");
  if (!lists.has(name)) {
    lists.set(name, lines);
    numbers.set(lines, numbers.size);
  }
  return lists.get(name);
}

export const numberOf = (list) => numbers.get(list);

const composed = (text) => (/^[\x20-\x7e]*$/.test(text) ? text : text.normalize("NFC"));

// A text as terms are looked for in it: all that the server takes for the same is the same. Upper case comes last, for
// "ß" and "ς" have one of their own.
export const folded = (text) => composed(composed(text).toLowerCase().toUpperCase()).replace(/[\s\x1c-\x1f\x85]+/g, " ");

export class Terms {
  #lengths = new Map(); // of terms, by how they begin
  #lines = new Map(); // by term
  #known = new Map(); // lists by the text

  // terms: pairs of a term, folded, and its line.
  constructor(terms) {
    const add = (map, key, value) => (map.has(key) ? map.get(key).add(value) : map.set(key, new Set([value])));
    for (const [term, line] of terms) {
      add(this.#lengths, term.slice(0, START), term.length);
      add(this.#lines, term, line);
    }
  }

  // The lines of the terms that stand in a text, within words, too: the server looks closer.
  within(text) {
    if (!this.#lines.size) return NONE;
    if (!this.#known.has(text)) {
      if (this.#known.size >= MOST) this.#known.clear();
      this.#known.set(text, shared([...this.#search(folded(text))]));
    }
    return this.#known.get(text);
  }

  #search(text) {
    const found = new Set();
    for (let place = 0; place < text.length; place++) {
      for (let start = 1; start <= START; start++) {
        for (const length of this.#lengths.get(text.slice(place, place + start)) ?? []) {
          for (const line of this.#lines.get(text.slice(place, place + length)) ?? []) found.add(line);
        }
      }
    }
    return found;
  }
}
