// Figures that are drawn as SVG, in the elements that the macro `drawn` of figures.html makes for them.

import { at, textTable } from "./elements.js";
import { drawing, picture, saveButtons } from "./files.js";

// draw: makes the content, width and height of the figure with a colour for its ink; json: its numbers; rows: the texts
// of its table; name: of its files.
export function showDrawn(id, { name, caption, draw, json, rows }) {
  const { content, width, height } = draw("currentColor");
  at(`#${id}-picture`).replaceChildren(picture(width, height, content, caption));
  at(`#${id}-caption`).textContent = caption;
  const svg = (below) => {
    const { content, width, height } = draw("#000000");
    return drawing(width, height, content, below);
  };
  const files = { name: () => name, caption: () => caption, svg, json: () => ({ caption, ...json() }), rows };
  saveButtons(at(`#${id}-save`), files);
  const details = at(`#${id}-details`);
  const fill = () => at(".scroll", details).replaceChildren(...(details.open ? [textTable(rows())] : []));
  details.ontoggle = fill;
  fill();
}
