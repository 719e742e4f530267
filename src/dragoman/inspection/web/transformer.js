// A trained Transformer in plain JavaScript: the weights of the page, forward, backward and one step of Adam. Where a
// matrix is named, it is as in the paper; the rows are tokens.

import { decoded } from "./elements.js";
import {
  backward, columnsOf, concatenated, crossEntropy, mapped, matrix, normalised, product, productOfRows, rotated, row, rowsOf, scaledBy,
  softmax, sum,
} from "./tape.js";

export const [PAD, BOS, EOS] = [0, 1, 2];
const ACTIVATIONS = {
  relu: [(x) => Math.max(0, x), (x) => Number(x > 0)],
  silu: [(x) => x / (1 + Math.exp(-x)), (x) => (1 + Math.exp(-x) + x * Math.exp(-x)) / (1 + Math.exp(-x)) ** 2],
};
const ADAM = { first: 0.9, second: 0.98, epsilon: 1e-9 }; // section 5.3

// Nothing is changed: the model as it was trained. without: the heads that are left out, such as "cross.1.0", of layer
// 1; factor: of the scores; places: of the source tokens, where they are not their own.
export const UNCHANGED = { without: new Set(), factor: 1, places: [] };

export class Transformer {
  // config: as in Python; parameters: [name, rows, columns] of each matrix in `weights`, float32 in base64; shared: the
  // names of matrices that are another one.
  constructor({ config, parameters, shared, weights }) {
    this.config = config;
    this.weights = new Float32Array(decoded(weights).buffer);
    this.parameters = new Map(parameters.map(([name, rows, columns]) => [name, matrix(rows, columns)]));
    this.shared = shared;
    this.reset();
  }

  // Makes the weights those of the page, and Adam forget its steps.
  reset() {
    let start = 0;
    for (const parameter of this.parameters.values()) {
      parameter.data.set(this.weights.subarray(start, (start += parameter.data.length)));
    }
    this.moments = new Map();
    this.steps = 0;
  }

  parameter(name) {
    return this.parameters.get(this.shared[name] ?? name);
  }

  linear(name, x) {
    const [weight, bias] = [this.parameter(`${name}.weight`), this.parameter(`${name}.bias`)];
    const result = productOfRows(x, weight);
    return bias ? sum(result, bias) : result;
  }

  norm(name, x) {
    return normalised(x, this.parameter(`${name}.weight`), this.parameter(`${name}.bias`), this.config.norm_epsilon);
  }

  // The angle of each pair of `size` numbers at a position: of the sinusoids, and of rotary positions.
  angles(position, size) {
    return Array.from({ length: Math.ceil(size / 2) }, (_, i) => position / 10000 ** ((2 * i) / size));
  }

  embedded(side, ids, places, trace) {
    const { config } = this;
    const words = rowsOf(this.parameter(`${side === "encoder" ? "source" : "target"}_embedding.weight`), ids);
    const x = config.scale_embedding ? scaledBy(words, Math.sqrt(config.d_model)) : words;
    trace.set(`${side === "encoder" ? "source" : "target"}_embedding`, { words, output: x });
    if (config.positions !== "sinusoidal") return x;
    const table = matrix(ids.length, config.d_model);
    places.forEach((place, i) => {
      const angles = this.angles(place + config.first_position, config.d_model);
      row(table, i).set(Array.from({ length: config.d_model }, (_, j) => (j % 2 ? Math.cos : Math.sin)(angles[j >> 1])));
    });
    const output = sum(x, table);
    trace.set(`${side}_positions`, { x, table, output });
    return output;
  }

  // x: of the queries; memory: of the keys and values; mask(i, j): whether a query may attend to a key; places: of the
  // queries and of the keys, where rotary positions turn them; kind, layer: which one it is.
  attention(name, x, memory, { mask, places, kind, layer }, changes, trace) {
    const { heads, score } = this.config.attention;
    const [q, k, v] = [this.linear(`${name}.query`, x), this.linear(`${name}.key`, memory), this.linear(`${name}.value`, memory)];
    const [d_k, d_v] = [q.columns / heads, v.columns / heads];
    const divisor = score === "unscaled" ? 1 : Math.sqrt(d_k);
    const turned = (of, side) => (places ? rotated(of, places[side].map((place) => this.angles(place, d_k))) : of);
    const parts = Array.from({ length: heads }, (_, head) => {
      const query = turned(columnsOf(q, head * d_k, d_k), 0);
      const key = turned(columnsOf(k, head * d_k, d_k), 1);
      const value = columnsOf(v, head * d_v, d_v);
      const scores = productOfRows(query, key);
      const scaled = scaledBy(scores, changes.factor / divisor);
      const masked = mask ? sum(scaled, hidden(scaled, mask)) : scaled;
      const weights = softmax(masked);
      const output = product(weights, value);
      const left = changes.without.has(`${kind}.${layer}.${head}`) ? scaledBy(output, 0) : output;
      return { query, key, value, scores, scaled, masked, weights, output: left };
    });
    const concat = concatenated(parts.map((part) => part.output));
    const output = this.linear(`${name}.out`, concat);
    trace.set(name, { x, memory, q, k, v, parts, divisor, concat, output });
    return output;
  }

  feedForward(name, x, trace) {
    const hidden = mapped(this.linear(`${name}.hidden`, x), ...ACTIVATIONS[this.config.feed_forward.activation]);
    const output = this.linear(`${name}.out`, hidden);
    trace.set(name, { x, hidden, output });
    return output;
  }

  // x + sublayer(x), normalised after or before.
  residual(name, x, sublayer, trace) {
    if (this.config.norm_first) {
      const normed = this.norm(`${name}.norm`, x);
      trace.set(`${name}.norm`, { x, output: normed });
      const output = sum(x, sublayer(normed));
      trace.set(`${name}.add`, { x, output });
      return output;
    }
    const y = sublayer(x);
    const added = sum(x, y);
    const output = this.norm(`${name}.norm`, added);
    trace.set(`${name}.norm`, { x, y, added, output });
    return output;
  }

  // Runs the model on the ids of a source, with EOS, and of what the decoder reads, with BOS. Returns the logits and the
  // trace: what came out of each module, by its name.
  run(source, target, changes = UNCHANGED) {
    const trace = new Map();
    return this.decode(this.encode(source, changes, trace), target, changes, trace);
  }

  // Returns what the decoder needs of a source: the encoder's output and the places of its tokens.
  encode(source, changes, trace) {
    const { encoder_layers, norm_first, positions } = this.config;
    const places = source.map((_, i) => changes.places[i] ?? i);
    const turned = positions.startsWith("rotary") && [places, places];
    let x = this.embedded("encoder", source, places, trace);
    for (let layer = 0; layer < encoder_layers; layer++) {
      const name = `encoder.${layer}`;
      const self = (y) => this.attention(`${name}.attention`, y, y, { places: turned, kind: "encoder", layer }, changes, trace);
      x = this.residual(`${name}.around_attention`, x, self, trace);
      x = this.residual(`${name}.around_feed_forward`, x, (y) => this.feedForward(`${name}.feed_forward`, y, trace), trace);
    }
    return { memory: norm_first ? this.lastNorm("encoder_norm", x, trace) : x, places };
  }

  decode(encoded, target, changes, trace) {
    const { decoder_layers, norm_first, positions } = this.config;
    const places = target.map((_, i) => i);
    const turned = positions.startsWith("rotary") && [places, places];
    const across = positions === "rotary-across" && [places, encoded.places];
    const causal = (i, j) => j <= i;
    let x = this.embedded("decoder", target, places, trace);
    for (let layer = 0; layer < decoder_layers; layer++) {
      const name = `decoder.${layer}`;
      const self = (y) => this.attention(`${name}.attention`, y, y, { mask: causal, places: turned, kind: "decoder", layer }, changes, trace);
      const cross = (y) => this.attention(`${name}.cross_attention`, y, encoded.memory, { places: across, kind: "cross", layer }, changes, trace);
      x = this.residual(`${name}.around_attention`, x, self, trace);
      x = this.residual(`${name}.around_cross_attention`, x, cross, trace);
      x = this.residual(`${name}.around_feed_forward`, x, (y) => this.feedForward(`${name}.feed_forward`, y, trace), trace);
    }
    if (norm_first) x = this.lastNorm("decoder_norm", x, trace);
    const logits = this.linear("output", x);
    trace.set("output", { x, output: logits });
    trace.set("softmax", { x: logits, output: softmax(logits) });
    return { logits, trace };
  }

  lastNorm(name, x, trace) {
    const output = this.norm(name, x);
    trace.set(name, { x, output });
    return output;
  }

  // Greedy search: the likeliest word again and again. Returns the ids without EOS, and the probability of each and of
  // EOS.
  translate(source, changes = UNCHANGED) {
    const [target, probabilities] = [[BOS], []];
    const encoded = this.encode(source, changes, new Map());
    while (target.length < source.length + 50) {
      const p = row(softmax(this.decode(encoded, target, changes, new Map()).logits), target.length - 1);
      const best = p.indexOf(Math.max(...p.filter((_, id) => id !== PAD && id !== BOS)));
      probabilities.push(p[best]);
      if (best === EOS) break;
      target.push(best);
    }
    return { target: target.slice(1), probabilities };
  }

  // Fills in the gradients for a pair; returns its loss, and what `run` does.
  learn(source, target, changes = UNCHANGED) {
    const ran = this.run(source, [BOS, ...target], changes);
    const loss = crossEntropy(ran.logits, [...target, EOS]);
    backward(loss);
    return { ...ran, loss: loss.data[0] };
  }

  // Moves every weight against its gradient, as Adam does. Returns how far the weights of each parameter moved.
  step(rate) {
    this.steps += 1;
    const corrected = (beta) => 1 - beta ** this.steps;
    const moved = new Map();
    for (const [name, { data, gradient }] of this.parameters) {
      if (!gradient) continue;
      const [m, v] = this.moments.get(name) ?? [data.map(() => 0), data.map(() => 0)];
      this.moments.set(name, [m, v]);
      let squares = 0;
      for (let i = 0; i < data.length; i++) {
        m[i] = ADAM.first * m[i] + (1 - ADAM.first) * gradient[i];
        v[i] = ADAM.second * v[i] + (1 - ADAM.second) * gradient[i] ** 2;
        const change = (rate * m[i]) / corrected(ADAM.first) / (Math.sqrt(v[i] / corrected(ADAM.second)) + ADAM.epsilon);
        data[i] -= change;
        squares += change ** 2;
      }
      moved.set(name, Math.sqrt(squares));
    }
    return moved;
  }
}

// -Infinity where a query may not attend, else 0.
function hidden(scores, mask) {
  const added = matrix(scores.rows, scores.columns);
  return Object.assign(added, { data: added.data.map((_, at) => (mask(Math.floor(at / scores.columns), at % scores.columns) ? 0 : -Infinity)) });
}
