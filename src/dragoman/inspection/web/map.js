// A map of numbers on a canvas.

import { at, fixed, make, palette, readable, shortened, t, textTable, variable, writeTexts } from "./elements.js";
import { drawing, saveButtons, xml } from "./files.js";

const FONT = "13px system-ui, 'Noto Sans KR', sans-serif";
export const MAX_LABEL = 22; // letters
const NUMBERS_UP_TO = 14; // rows and columns for which each cell shows its number
const MAX_SIDE = 6000; // pixels

const maps = []; // all there are

// Paints numbers on a canvas, one pixel each, row by row. share: of a number between the lowest and the highest.
export function paintPixels(canvas, values, columns, colours, share) {
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, values.length / columns);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < values.length; i++) {
    const colour = colours(share(values[i]));
    image.data[4 * i] = colour[0];
    image.data[4 * i + 1] = colour[1];
    image.data[4 * i + 2] = colour[2];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// The pixels that the longest of some labels needs.
export function widest(labels) {
  const context = make("canvas", {}).getContext("2d");
  context.font = FONT;
  return Math.max(8, ...labels.map((label) => context.measureText(shortened(label, MAX_LABEL)).width));
}

export class HeatMap {
  // keys: what a key does beside moving about, by name; name: of a file that is saved.
  constructor(root, name, keys = () => false) {
    root.append(at("#map-template").content.cloneNode(true));
    writeTexts(root);
    this.root = root;
    this.name = name;
    this.keys = keys;
    this.canvas = at(".map", root);
    this.box = at(".box", root);
    this.cursor = at(".cursor", root);
    this.readout = at(".readout", root);
    this.details = at("details", root);
    this.row = this.column = 0;
    this.pinned = false;
    this.canvas.addEventListener("mousemove", (event) => this.pinned || this.goTo(...this.under(event)));
    this.canvas.addEventListener("click", (event) => {
      const [row, column] = this.under(event);
      const same = row === this.row && column === this.column;
      this.pinned = !(this.pinned && same);
      this.goTo(row, column);
    });
    this.canvas.addEventListener("focus", () => this.goTo(this.row, this.column));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.details.addEventListener("toggle", () => this.fill());
    maps.push(this);
  }

  // shown: rows, columns (labels), values (row by row), low, high, signed, caption, label, describe(row, column),
  // least (pixels of a cell), mark (a row or a column to put a frame around, -1 for none), numbered (write all numbers,
  // -Infinity too).
  show(shown) {
    this.shown = shown;
    this.row = Math.max(0, Math.min(this.row, shown.rows.length - 1));
    this.column = Math.max(0, Math.min(this.column, shown.columns.length - 1));
    at("figcaption", this.root).textContent = shown.caption;
    this.canvas.setAttribute("aria-label", shown.label);
    this.draw();
    this.fill();
    const { name } = this;
    const caption = () => `${shown.caption}; ${fixed(shown.low)}–${fixed(shown.high)}: ${shown.scale}`;
    const [svg, json, rows] = [(below) => this.svg(below), () => this.json(), () => this.texts()];
    saveButtons(at(".save", this.root), { name, caption, svg, json, rows });
    if (this.cursor.style.display === "block") this.goTo(this.row, this.column);
  }

  measure() {
    const { rows, columns, least = 12 } = this.shown;
    const left = Math.ceil(widest(rows)) + 12;
    const room = this.box.clientWidth - left - 4;
    const most = MAX_SIDE / Math.max(rows.length, columns.length, 1);
    const cell = Math.max(1, Math.min(most, Math.max(least, Math.min(44, Math.floor(room / columns.length)))));
    const upright = cell < 26;
    const long = widest(columns);
    const top = Math.ceil(upright ? long + 12 : long * 0.71 + 16);
    const right = Math.ceil(upright ? 4 : Math.max(4, long * 0.71 - cell / 2 + 8));
    const size = { width: left + cell * columns.length + right, height: top + cell * rows.length + 4 };
    return { left, top, cell, upright, every: Math.ceil(15 / cell), ...size };
  }

  share(value) {
    const { low, high } = this.shown;
    return high > low ? (value - low) / (high - low) : 0;
  }

  // The map as calls of `box`, `number` and `label`, for the screen and for files.
  paint(colours, box, number, label) {
    const { rows, columns, values, numbered } = this.shown;
    const { left, top, cell, upright, every } = this.layout;
    const few = Math.max(rows.length, columns.length) <= NUMBERS_UP_TO && cell >= 30;
    for (let row = 0; row < rows.length; row++) {
      for (let column = 0; column < columns.length; column++) {
        const value = values[row * columns.length + column];
        const colour = colours(this.share(value));
        const [x, y] = [left + column * cell, top + row * cell];
        box(x, y, cell, colour.css);
        if (numbered || (few && Math.abs(value) >= 0.005)) {
          number(x + cell / 2, y + cell / 2, fixed(value).replace(/^(−?)0\./, "$1."), readable(colour));
        }
      }
    }
    rows.forEach((text, row) => {
      if (row % every === 0) label(left - 6, top + (row + 0.5) * cell, shortened(text, MAX_LABEL), 0, "end");
    });
    columns.forEach((text, column) => {
      const x = left + (column + 0.5) * cell;
      if (column % every === 0) label(x, top - 6, shortened(text, MAX_LABEL), upright ? -90 : -45, "start");
    });
  }

  draw() {
    const layout = (this.layout = this.measure());
    const { shown, canvas } = this;
    const scale = layout.width * layout.height > 8e6 ? 1 : Math.min(2, devicePixelRatio || 1);
    canvas.width = layout.width * scale;
    canvas.height = layout.height * scale;
    canvas.style.width = `${layout.width}px`;
    canvas.style.height = `${layout.height}px`;
    Object.assign(canvas.dataset, { left: layout.left, top: layout.top, cell: layout.cell });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.textBaseline = "middle";
    const gap = layout.cell >= 8 ? 1 : 0;
    const text = variable("--text");
    const colours = palette(shown.signed ? "--signed" : "--map");
    const [wide, high] = [shown.columns.length * layout.cell, shown.rows.length * layout.cell];
    const pixels = make("canvas", {});
    paintPixels(pixels, shown.values, shown.columns.length, colours, (value) => this.share(value));
    context.imageSmoothingEnabled = false;
    if (wide && high) context.drawImage(pixels, layout.left, layout.top, wide, high);
    context.fillStyle = variable("--back"); // between the cells
    if (gap) {
      shown.columns.forEach((_, x) => context.fillRect(layout.left + (x + 1) * layout.cell - gap, layout.top, gap, high));
      shown.rows.forEach((_, y) => context.fillRect(layout.left, layout.top + (y + 1) * layout.cell - gap, wide, gap));
    }
    this.paint(
      colours,
      () => {},
      (x, y, written, colour) => {
        context.font = "11px system-ui, sans-serif";
        context.textAlign = "center";
        context.fillStyle = colour;
        context.fillText(written, x, y);
      },
      (x, y, written, turned, align) => {
        context.save();
        context.translate(x, y);
        context.rotate((turned * Math.PI) / 180);
        context.font = FONT;
        context.textAlign = align;
        context.fillStyle = text;
        context.fillText(written, 0, 0);
        context.restore();
      },
    );
    context.strokeStyle = variable("--line");
    context.strokeRect(layout.left - 0.5, layout.top - 0.5, wide + 1, high + 1);
    const { row = -1, column = -1 } = shown.mark ?? {};
    context.strokeStyle = variable("--accent");
    context.lineWidth = 2;
    if (row >= 0) context.strokeRect(layout.left, layout.top + row * layout.cell, wide, layout.cell);
    if (column >= 0) context.strokeRect(layout.left + column * layout.cell, layout.top, layout.cell, high);
    this.drawBar(colours);
  }

  drawBar(colours) {
    const bar = at(".colours", this.root);
    const context = bar.getContext("2d");
    for (let x = 0; x < bar.width; x++) {
      context.fillStyle = colours(x / (bar.width - 1)).css;
      context.fillRect(x, 0, 1, bar.height);
    }
    at(".low", this.root).textContent = fixed(this.shown.low);
    at(".high", this.root).textContent = fixed(this.shown.high);
    at(".scale", this.root).textContent = this.shown.scale;
  }

  svg(caption) {
    const parts = [];
    const { width, height, cell } = this.layout;
    const colours = palette(this.shown.signed ? "--light-signed" : "--light-map");
    this.paint(
      colours,
      (x, y, side, colour) =>
        parts.push(`<rect x="${x}" y="${y}" width="${side}" height="${side}" fill="${colour}"/>`),
      (x, y, written, colour) =>
        parts.push(
          `<text x="${x}" y="${y + 4}" font-size="11" text-anchor="middle" fill="${colour}">${written}</text>`,
        ),
      (x, y, written, turned, align) =>
        parts.push(
          `<text transform="translate(${x} ${y}) rotate(${turned})" y="4" font-size="13" ` +
            `text-anchor="${align}">${xml(written)}</text>`,
        ),
    );
    return drawing(Math.max(width, 360), height, parts.join(""), caption);
  }

  json() {
    const { rows, columns, values, caption } = this.shown;
    const rounded = Array.from(values, (value) => Number(value.toFixed(4)));
    const byRow = rows.map((_, row) => rounded.slice(row * columns.length, (row + 1) * columns.length));
    return { caption, rows, columns, values: byRow };
  }

  texts() {
    const { rows, columns, values } = this.shown;
    const inRow = (row) => columns.map((_, column) => fixed(values[row * columns.length + column]));
    return [["", ...columns], ...rows.map((label, row) => [label, ...inRow(row)])];
  }

  fill() {
    const box = at(".scroll", this.details);
    box.replaceChildren();
    if (this.details.open && this.shown) box.append(textTable(this.texts()));
  }

  under(event) {
    const { left, top, cell } = this.layout;
    const { rows, columns } = this.shown;
    const within = (pixels, count) => Math.max(0, Math.min(count - 1, Math.floor(pixels / cell)));
    return [within(event.offsetY - top, rows.length), within(event.offsetX - left, columns.length)];
  }

  goTo(row, column) {
    const { rows, columns } = this.shown ?? { rows: [] };
    if (!rows.length || !columns.length) return;
    this.row = Math.max(0, Math.min(rows.length - 1, row));
    this.column = Math.max(0, Math.min(columns.length - 1, column));
    const { left, top, cell } = this.layout;
    Object.assign(this.cursor.style, {
      display: "block",
      left: `${left + this.column * cell - 2}px`,
      top: `${top + this.row * cell - 2}px`,
      width: `${cell + 3}px`,
      height: `${cell + 3}px`,
    });
    this.cursor.classList.toggle("pinned", this.pinned);
    const text = this.shown.describe(this.row, this.column) + (this.pinned ? ` · ${t("pinned")}` : "");
    if (this.readout.textContent !== text) this.readout.textContent = text;
    if (this.shown.moved) this.shown.moved(this.row, this.column);
  }

  press(event) {
    if (event.altKey || event.metaKey) return;
    const { rows, columns } = this.shown;
    const [row, column] = [this.row, this.column];
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? rows.length - 1 : row, columns.length - 1],
    };
    if (event.key in moves) this.goTo(...moves[event.key]);
    else if (event.key === "Enter") (this.pinned = !this.pinned), this.goTo(row, column);
    else if (event.key === "Escape") (this.pinned = false), this.goTo(row, column);
    else if (event.ctrlKey || !this.keys(event.key)) return;
    event.preventDefault();
    if (event.key in moves) this.reveal();
  }

  // Scrolls the cell into its box.
  reveal() {
    const { left, top, cell } = this.layout;
    const [x, y] = [left + this.column * cell, top + this.row * cell];
    const { box } = this;
    if (x + cell > box.scrollLeft + box.clientWidth) box.scrollLeft = x + cell - box.clientWidth + 4;
    if (x - left < box.scrollLeft) box.scrollLeft = x - left;
    if (y + cell > box.scrollTop + box.clientHeight) box.scrollTop = y + cell - box.clientHeight + 4;
    if (y - top < box.scrollTop) box.scrollTop = y - top;
  }
}

let widthBefore = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === widthBefore) return;
  widthBefore = innerWidth;
  for (const map of maps) if (map.shown) map.draw();
});
