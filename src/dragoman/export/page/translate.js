// Translate in the browser: the model runs here, and nothing is sent anywhere.

const MODULES = new URL("node_modules/", import.meta.url);
const MORE_TOKENS = 50; // that a translation may have more than its source
const LONGEST = 512; // tokens of a source, where the positions of the model have no end

const TEXTS = {
  en: {
    title: "Translate",
    language: "Language of this page",
    source: "Text",
    hint: "Each line is translated by itself. Ctrl+Enter translates.",
    tag: "Tag",
    none: "none",
    translate: "Translate",
    stop: "Stop",
    copy: "Copy",
    output: "Translation",
    private: "The model runs in this browser. Your text does not leave it.",
    loading: "Loading the model …",
    ready: "Ready.",
    working: "Translating …",
    done: "Done in {seconds} s.",
    stopped: "Stopped.",
    copied: "Copied.",
    notCopied: "The browser did not allow copying. Select the text instead.",
    long: "Line {line} is too long: {tokens} tokens, at most {most}. Divide it.",
    modules: "Two packages are missing. Run “npm install” in the folder of this page, then reload it.",
    broken: "The model could not be loaded: {reason}",
    failed: "The translation failed: {reason}",
  },
  ko: {
    title: "번역",
    language: "이 페이지의 언어",
    source: "원문",
    hint: "줄마다 따로 번역합니다. Ctrl+Enter를 눌러도 번역됩니다.",
    tag: "태그",
    none: "없음",
    translate: "번역하기",
    stop: "멈추기",
    copy: "복사",
    output: "번역문",
    private: "모델은 이 브라우저 안에서 실행됩니다. 입력한 글은 밖으로 나가지 않습니다.",
    loading: "모델을 불러오는 중입니다…",
    ready: "준비되었습니다.",
    working: "번역하는 중입니다…",
    done: "{seconds}초 만에 번역했습니다.",
    stopped: "멈추었습니다.",
    copied: "복사했습니다.",
    notCopied: "브라우저가 복사를 허용하지 않았습니다. 글을 직접 선택해 복사해 주세요.",
    long: "{line}번째 줄이 너무 길어 번역할 수 없습니다(토큰 {tokens}개, 최대 {most}개). 줄을 나누어 주세요.",
    modules: "패키지 두 개가 없습니다. 이 페이지의 폴더에서 “npm install”을 실행한 뒤 새로 고쳐 주세요.",
    broken: "모델을 불러오지 못했습니다: {reason}",
    failed: "번역하지 못했습니다: {reason}",
  },
};

const $ = (id) => document.getElementById(id);
let language = navigator.language.toLowerCase().startsWith("ko") ? "ko" : "en";
let shown = ["loading", {}]; // what the status says
let model = null;
let running = null; // the translation in progress: {stopped}

// Text on the page

function text(name, values = {}) {
  return TEXTS[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
}

function say(name, values = {}, wrong = false) {
  shown = [name, values, wrong];
  $("status").textContent = text(name, values);
  $("status").classList.toggle("wrong", wrong);
}

function speak(chosen) {
  language = chosen;
  document.documentElement.lang = chosen;
  document.title = text("title");
  $("language").value = chosen;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = text(element.dataset.text);
  say(...shown);
}

// The model

class Problem extends Error {
  constructor(name, values = {}) {
    super(name);
    this.values = values;
  }
}

async function fetched(path) {
  const answer = await fetch(new URL(path, import.meta.url));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

async function load() {
  let ort, tokenizers;
  try {
    [ort, tokenizers] = await Promise.all([
      import(new URL("onnxruntime-web/dist/ort.wasm.min.mjs", MODULES)),
      import(new URL("@huggingface/tokenizers/dist/tokenizers.min.mjs", MODULES)),
    ]);
  } catch {
    throw new Problem("modules");
  }
  ort.env.wasm.wasmPaths = new URL("onnxruntime-web/dist/", MODULES).href;
  ort.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
  const files = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tags.json"];
  const [config, generation, tokenizer, tokenizerConfig, defaults] = await Promise.all(
    files.map(async (file) => (await fetched(file)).json()),
  );
  const suffix = { fp32: "", int8: "_int8" }[config["transformers.js_config"].dtype];
  const [encoder, decoder] = await Promise.all(
    ["encoder_model", "decoder_model_merged"].map(async (name) => {
      const bytes = await (await fetched(`onnx/${name}${suffix}.onnx`)).arrayBuffer();
      return ort.InferenceSession.create(new Uint8Array(bytes), { executionProviders: ["wasm"] });
    }),
  );
  const tags = tokenizer.added_tokens.map((entry) => /^<tag:(.+)>$/.exec(entry.content)?.[1]).filter(Boolean);
  return {
    ...{ ort, encoder, decoder, config, generation, tags, tag: defaults.source },
    longest: tokenizerConfig.model_max_length ?? LONGEST,
    tokenizer: new tokenizers.Tokenizer(tokenizer, tokenizerConfig),
  };
}

/** Return the ids of a text, with its tag in front and the end behind it. */
function encode(line, tag) {
  const { ids } = model.tokenizer.encode(line.toWellFormed());
  return tag ? [model.tokenizer.token_to_id(`<tag:${tag}>`), ...ids] : ids;
}

/** Yield the ids of a translation, longer by one each time: at each step the most probable token. */
async function* greedy(ids) {
  const { ort, encoder, decoder, config, generation } = model;
  const whole = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const mask = whole(ids.map(() => 1));
  const { last_hidden_state: memory } = await encoder.run({ input_ids: whole(ids), attention_mask: mask });
  let feeds = { encoder_hidden_states: memory, encoder_attention_mask: mask };
  for (const { name, shape } of decoder.inputMetadata) {
    if (!name.startsWith("past_key_values.")) continue;
    const empty = shape.map((size) => (size === "batch_size" ? 1 : typeof size === "number" ? size : 0));
    feeds[name] = new ort.Tensor("float32", new Float32Array(0), empty);
  }
  const found = [];
  const most = Math.min(ids.length - 1 + MORE_TOKENS, generation.max_length);
  let token = config.decoder_start_token_id;
  while (found.length < most) {
    const { logits, ...present } = await decoder.run({ ...feeds, input_ids: whole([token]) });
    for (const [name, value] of Object.entries(present)) feeds[name.replace("present", "past_key_values")] = value;
    token = largest(logits.data);
    if (token === config.eos_token_id) break;
    found.push(token);
    yield found;
  }
  yield found;
}

function largest(values) {
  let best = 0;
  for (let index = 1; index < values.length; index++) if (values[index] > values[best]) best = index;
  return best;
}

// What people do

async function translate() {
  if (!model) return;
  if (running) running.stopped = true;
  const own = (running = { stopped: false });
  const started = performance.now();
  const lines = $("source").value.split("\n").map((line) => line.trim());
  const longest = model.longest;
  $("output").replaceChildren(...lines.map(() => document.createElement("p")));
  $("output").setAttribute("aria-busy", "true");
  $("stop").hidden = false;
  $("copy").hidden = true;
  say("working");
  try {
    for (const [number, line] of lines.entries()) {
      if (!line) continue;
      const ids = encode(line, $("tag").value);
      if (ids.length > longest) throw new Problem("long", { line: number + 1, tokens: ids.length, most: longest });
      for await (const found of greedy(ids)) {
        if (own.stopped) break;
        $("output").children[number].textContent = model.tokenizer.decode(found, { skip_special_tokens: true });
        await new Promise((resolve) => setTimeout(resolve)); // let the browser draw, and react to Stop
      }
      if (own.stopped) break;
    }
    if (own !== running) return; // a newer translation has taken over
    if (own.stopped) say("stopped");
    else say("done", { seconds: ((performance.now() - started) / 1000).toFixed(1) });
  } catch (error) {
    if (own === running) complain(error, "failed");
  } finally {
    if (own === running) {
      running = null;
      $("stop").hidden = true;
      $("copy").hidden = !$("output").textContent;
      $("output").setAttribute("aria-busy", "false");
    }
  }
}

function complain(error, name) {
  if (error instanceof Problem) say(error.message, error.values, true);
  else say(name, { reason: error.message }, true);
}

async function copy() {
  const lines = [...$("output").children].map((line) => line.textContent);
  try {
    await navigator.clipboard.writeText(lines.join("\n"));
    say("copied");
  } catch {
    say("notCopied", {}, true);
  }
}

$("language").addEventListener("change", (event) => speak(event.target.value));
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
$("stop").addEventListener("click", () => {
  if (running) running.stopped = true;
  $("source").focus(); // the button goes away
});
$("copy").addEventListener("click", copy);

speak(language);
try {
  model = await load();
  for (const tag of model.tags) $("tag").append(new Option(tag, tag));
  $("tag").value = model.tag;
  $("tags").hidden = !model.tags.length;
  $("translate").disabled = false;
  say("ready");
} catch (error) {
  complain(error, "broken");
}
