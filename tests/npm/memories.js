// Uses the memory of a server with DeepL's client, and prints what it got as JSON: node memories.js URL KEY TEXT FOLDER FILE
import { createRequire } from "node:module";
import { join } from "node:path";

const [url, key, text, folder, file] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const deepl = require("deepl-node");

const found = {};
const client = new deepl.DeepLClient(key, { serverUrl: url, maxRetries: 0 });
const [memory] = await client.listTranslationMemories();
found.memory = [memory.name, memory.sourceLanguage, memory.targetLanguages, memory.segmentCount];
const job = await client.importTranslationMemoryFromFilepath(file);
found.imported = [job.results[0].status, job.results[0].translationMemoryId === memory.translationMemoryId];
found.count = (await client.getTranslationMemory(memory)).segmentCount;
const { segments } = await client.listTranslationMemorySegments(memory);
found.segments = segments.map((one) => [one.sourceText, one.targets[0].targetText]);
const options = { translationMemory: memory, translationMemoryThreshold: 80 };
found.text = (await client.translateText(text, "en", "ko", options)).text;
await client.exportTranslationMemoryToFilepath(memory, `${file}.exported`);
await client.deleteTranslationMemory(memory);
found.left = (await client.getTranslationMemory(memory)).segmentCount;
console.log(JSON.stringify(found));
