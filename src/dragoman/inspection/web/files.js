// Figures as files: SVG, PNG and JSON.

import { make, shortened, t } from "./elements.js";

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

// An SVG on a white ground, with its caption below.
export function drawing(width, height, content, caption) {
  const lines = [""];
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

export function saveButtons(root, name, svg, json) {
  const button = (format, onclick) => make("button", { type: "button", onclick }, `${t("save")} ${format}`);
  root.replaceChildren();
  if (svg) {
    root.append(button("SVG", () => download(`${name()}.svg`, "image/svg+xml", svg())));
    root.append(button("PNG", () => savePng(name(), svg())));
  }
  root.append(button("JSON", () => download(`${name()}.json`, "application/json", JSON.stringify(json(), null, 1))));
}

const MAX_TEXT = 200; // letters of a sentence in a caption

// What a caption says of the sentence that is inspected.
export function sentence(data) {
  const [source, target] = [data.source, data.target].map(({ text }) => shortened(text, MAX_TEXT));
  return t("caption", data.model, source, target, data.version);
}
