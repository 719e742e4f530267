// Translates texts with transformers.js, and prints them as JSON: node transformers.js PACKAGES FOLDER TEXT ...
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";

const [packages, folder, ...texts] = process.argv.slice(2);
const { env, pipeline } = createRequire(join(packages, "package.json"))("@huggingface/transformers");
env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const translator = await pipeline("translation", basename(folder));
const found = [];
// One at a time: in a batch, it goes on behind the end of a sentence until all sentences have ended.
for (const text of texts) found.push((await translator(text))[0].translation_text);
console.log(JSON.stringify(found));
