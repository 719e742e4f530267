// Figures as files: SVG, PNG, JSON and HTML.

import { language, make, shortened, t } from "./elements.js";

export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export const xml = (text) =>
  String(text)
    .toWellFormed()
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

// An SVG on a white ground, with its caption below, '' for none.
export function drawing(width, height, content, caption) {
  const lines = caption ? [""] : [];
  const most = Math.max(30, Math.floor(width / 8));
  for (const word of caption.split(/(?<=\s)/)) {
    if ((lines.at(-1) + word).length > most && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += word;
  }
  const y = (line) => height + 18 + 16 * line;
  const written = lines.map((line, i) => `<text x="6" y="${y(i)}" font-size="12">${xml(line)}</text>`);
  const tall = height + 16 * lines.length + 14;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${tall}" viewBox="0 0 ${width} ${tall}" ` +
    `font-family="system-ui, sans-serif"><rect width="${width}" height="${tall}" fill="#ffffff"/>` +
    `${content}${written.join("")}</svg>`
  );
}

// A drawing as an element of the page, with a name for those who do not see it; without one it is an ornament.
export function picture(width, height, content, name = "") {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${content}</svg>`;
  const element = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  for (const [key, value] of name ? [["role", "img"], ["aria-label", name]] : [["aria-hidden", "true"]]) element.setAttribute(key, value);
  return element;
}

function savePng(name, svg) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", {});
    const scale = Math.min(2, 8000 / Math.max(image.width, image.height));
    canvas.width = Math.ceil(image.width * scale);
    canvas.height = Math.ceil(image.height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(`${name}.png`, "image/png", blob), "image/png");
    URL.revokeObjectURL(url);
  };
  image.src = url;
}

// A table as a drawing: rows of texts, of which the first has the headings.
export function tableDrawing(rows, caption) {
  const pen = make("canvas", {}).getContext("2d");
  pen.font = "bold 12px system-ui, sans-serif";
  const widths = rows[0].map((_, column) => 12 + Math.max(...rows.map((row) => pen.measureText(row[column]).width)));
  const starts = widths.map((_, column) => widths.slice(0, column).reduce((sum, width) => sum + width, 6));
  const content = rows.flatMap((row, y) =>
    row.map((text, column) => {
      const weight = y && column ? "normal" : "bold";
      return `<text x="${starts[column].toFixed(1)}" y="${18 * y + 18}" font-size="12" font-weight="${weight}">${xml(text)}</text>`;
    }),
  );
  return drawing(Math.ceil(starts.at(-1) + widths.at(-1)), 18 * rows.length + 10, content.join(""), caption);
}

// A page with a figure, its caption and its table, and with nothing that could run.
function figurePage({ caption, svg, rows }) {
  const cells = (row, tag) => row.map((text) => `<${tag}>${xml(text)}</${tag}>`).join("");
  const lines = rows().map((row, number) => `<tr>${cells(row, number ? "td" : "th")}</tr>`);
  return (
    `<!doctype html>\n<html lang="${language}"><head><meta charset="utf-8">` +
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><title>${xml(caption())}</title></head>` +
    `<body><figure>${svg("")}<figcaption>${xml(caption())}</figcaption></figure><table>${lines.join("\n")}</table></body></html>`
  );
}

// figure: functions that return its `name` as a file, its `caption`, an `svg` with the caption that is given, `json`,
// and the `rows` of its table.
export function saveButtons(root, figure) {
  const { name, caption, svg, json } = figure;
  const formats = {
    SVG: () => download(`${name()}.svg`, "image/svg+xml", svg(caption())),
    PNG: () => savePng(name(), svg(caption())),
    JSON: () => download(`${name()}.json`, "application/json", JSON.stringify(json(), null, 1)),
    HTML: () => download(`${name()}.html`, "text/html", figurePage(figure)),
  };
  const button = ([format, onclick]) => make("button", { type: "button", onclick }, t("save", format));
  root.replaceChildren(...Object.entries(formats).map(button));
}

const MAX_TEXT = 200; // letters of a sentence in a caption

// What a caption says of the sentence that is inspected.
export function sentence(data) {
  const [source, target] = [data.source, data.target].map(({ text }) => shortened(text, MAX_TEXT));
  return t("caption", data.model, source, target, data.version);
}
