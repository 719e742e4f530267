// The effect of each source word, and the positional encoding.

const signedMap = (element, name) => new HeatMap(at(element), () => name);
const occlusionMap = data.occlusion && signedMap("#occlusion-map", "occlusion");
const encodingMap = data.positional_encoding && signedMap("#encoding-map", "positional-encoding");

function showSigned() {
  if (data.occlusion) {
    const { rows, columns, drops, probabilities } = data.occlusion;
    const values = Float32Array.from(drops.flat());
    const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0.001);
    occlusionMap.show({
      rows, columns, values, low: -most, high: most, signed: true,
      scale: t("occlusion.scale"),
      caption: `${t("occlusion.caption")}; ${sentence()}`,
      label: `${t("occlusion.title")}. ${t("keys-plain")}`,
      describe: (row, column) => {
        const drop = values[row * columns.length + column];
        const [before, after] = [probabilities[row], probabilities[row] - drop];
        return t("occlusion.cell", rows[row], columns[column], fixed(before), fixed(after));
      },
    });
  }
  if (data.positional_encoding) {
    const { rows, columns, largest, scheme } = data.positional_encoding;
    const steps = decoded(data.positional_encoding.table);
    const values = Float32Array.from(steps, (step) => ((step - 127) / 127) * largest);
    encodingMap.show({
      rows: Array.from({ length: rows }, (_, i) => String(i)),
      columns: Array.from({ length: columns }, (_, i) => String(i)),
      values, low: -largest, high: largest, signed: true, least: 3,
      scale: t("encoding.scale"),
      caption: `${t("encoding.caption", scheme)}; ${t("model")} ${data.model}`,
      label: `${t("encoding.title")}. ${t("keys-plain")}`,
      describe: (row, column) => {
        const text = t("encoding.cell", row, column, fixed(values[row * columns + column]));
        if (scheme !== "sinusoidal") return text;
        const length = 2 * Math.PI * 10000 ** ((2 * Math.floor(column / 2)) / columns);
        return text + t("encoding.wave", fixed(length, 1));
      },
    });
  }
}

// Everything.

function render() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", t(element.dataset.label));
  }
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", button.dataset.language === language);
  }
  at("#about").textContent = t(data.tree ? "searched" : "given");
  showWords();
  if (kinds.length) showAttention();
  showHeads();
  showPositions();
  showTree();
  showSigned();
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    language = button.dataset.language;
    render();
  });
}
at("#attention").hidden = !kinds.length;
at("#heads").hidden = !data.heads.length;
at("#tree").hidden = !data.tree;
at("#not-occluded").hidden = Boolean(data.occlusion);
at("#encoding").hidden = !data.positional_encoding;
setUpWords();
setUpAttention();
render();
themed.addEventListener("change", render);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  if (kinds.length) map.draw();
  if (occlusionMap) occlusionMap.draw();
  if (encodingMap) encodingMap.draw();
});
