// What to read first: the sentences that the model is least sure of.

import { at, make } from "./elements.js";
import { cut } from "./lines.js";
import { goToWord, percent, shown } from "./paper.js";

const MOST = 10;

export function drawReading() {
  const sure = shown().flatMap(({ translation, sentences }, line) =>
    (translation?.segments ?? []).flatMap(({ target, confidence = null }, number) => {
      const go = () => goToWord(line, at(".word", sentences[number])?.place.word);
      const text = make("span", { lang: translation.wish.target, dir: "auto" }, cut(translation.text, target));
      return confidence === null ? [] : [{ confidence, text, go }];
    }),
  );
  at("#reading").hidden = sure.length < 2;
  const rows = sure.sort((one, other) => one.confidence - other.confidence).slice(0, MOST);
  at("#reading-list").replaceChildren(
    ...rows.map(({ confidence, text, go }) =>
      make("li", {}, make("button", { type: "button", class: "link", onclick: go }, percent(confidence), " ", text)),
    ),
  );
}
