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

// A text as terms are looked for in it: all that the server takes for the same is the same. Upper case comes last, for
// "ß" and "ς" have one of their own.
export const folded = (text) =>
  text.normalize("NFC").toLowerCase().toUpperCase().normalize("NFC").replace(/[\s\x1c-\x1f\x85]+/g, " ");

export class Terms {
  #byStart = new Map(); // each term, folded, with its line
  #known = new Map(); // lists by the text

  // terms: pairs of a term, folded, and its line.
  constructor(terms) {
    for (const term of terms) {
      const start = term[0].slice(0, START);
      if (this.#byStart.has(start)) this.#byStart.get(start).push(term);
      else this.#byStart.set(start, [term]);
    }
  }

  // The lines of the terms that stand in a text, within words, too: the server looks closer.
  within(text) {
    if (!this.#byStart.size) return NONE;
    if (!this.#known.has(text)) {
      if (this.#known.size >= MOST) this.#known.clear();
      this.#known.set(text, shared([...this.#search(folded(text))]));
    }
    return this.#known.get(text);
  }

  #search(text) {
    const lines = new Set();
    for (let place = 0; place < text.length; place++) {
      for (let length = 1; length <= START; length++) {
        for (const [term, line] of this.#byStart.get(text.slice(place, place + length)) ?? []) {
          if (text.startsWith(term, place)) lines.add(line);
        }
      }
    }
    return lines;
  }
}
