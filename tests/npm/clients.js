// Asks a server with clients from npm, and prints what they got as JSON: node clients.js URL KEY TEXT FOLDER
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [url, key, text, folder] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const deepl = require("deepl-node");
const libretranslate = require("libretranslate");
const { default: translate } = await import(pathToFileURL(join(folder, "node_modules/translate/index.min.js")));

const found = {};
const client = new deepl.DeepLClient(key, { serverUrl: url, maxRetries: 0 });
found.texts = (await client.translateText([text, "7"], "en", "ko", { splitSentences: "nonewlines" })).map((one) => [
  one.text,
  one.detectedSourceLang,
  one.billedCharacters,
]);
found.detected = (await client.translateText(text, null, "ko")).detectedSourceLang;
found.html = (await client.translateText(`<p>${text}</p>`, "en", "ko", { tagHandling: "html" })).text;
found.xml = (
  await client.translateText(`<s>${text}</s><k>dog</k>`, "en", "ko", {
    tagHandling: "xml",
    ignoreTags: ["code", "k"],
    splittingTags: ["s"],
    outlineDetection: false,
  })
).text;
found.fast = (await client.translateText(text, "en", "ko", { modelType: "latency_optimized" })).modelTypeUsed;
found.sources = (await client.getSourceLanguages()).map((one) => one.code);
found.targets = (await client.getTargetLanguages()).map((one) => [one.code, one.supportsFormality]);
found.pairs = (await client.getGlossaryLanguagePairs()).map((one) => [one.sourceLang, one.targetLang]);
const used = async () => (await client.getUsage()).character.count;
const before = await used();
await client.translateText("Eight ch", "en", "ko");
found.used = (await used()) - before;

const entries = new deepl.GlossaryEntries({ entries: { dog: "개들" } });
const glossary = await client.createGlossary("one", "en", "ko", entries);
found.glossary = [glossary.name, glossary.entryCount, (await client.getGlossaryEntries(glossary)).entries()];
found.bound = (await client.translateText(text, "en", "ko", { glossary })).text;
await client.deleteGlossary(glossary);
const many = await client.createMultilingualGlossary("many", [
  { sourceLangCode: "en", targetLangCode: "ko", entries },
  { sourceLangCode: "ko", targetLangCode: "en", entries: new deepl.GlossaryEntries({ entries: { 말: "horse" } }) },
]);
found.dictionaries = many.dictionaries.map((one) => [one.sourceLangCode, one.targetLangCode, one.entryCount]);
await client.deleteMultilingualGlossary(many);
found.glossaries = (await client.listMultilingualGlossaries()).length;

const document = Buffer.from(`${text}\n\n7\n`);
const handle = await client.uploadDocument(document, "en", "ko", { filename: "a.txt" });
const { status } = await client.isDocumentTranslationComplete(handle);
const chunks = [];
found.document = [status.status, status.billedCharacters];
try {
  await client.translateText(text, "en", "zz");
} catch (error) {
  found.error = error.message;
}

const wrong = new deepl.Translator("wrong", { serverUrl: url, maxRetries: 0 });
found.refused = await wrong.getUsage().then(
  () => "",
  (error) => error.constructor.name,
);
found.libretranslate = await libretranslate.translate({ query: text, source: "en", target: "ko", apiurl: url, apiKey: key });
translate.engine = "libre";
translate.url = `${url}/translate`;
translate.key = key;
found.translate = await translate(text, { from: "en", to: "ko" });
console.log(JSON.stringify(found));
