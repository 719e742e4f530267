// The Transformer of model/transformer.py for searches on CPUs: the encoder, and a decoder that takes one token for each
// hypothesis. A plain C interface, which native.py calls.
//
// Shapes: B sources with S tokens, of which N are real, R hypotheses, H heads, M d_model, T target tokens with the new
// one, W words of the target vocabulary. There are no masks: of a batch only the N real tokens are stored, and a
// hypothesis has the keys of its own past tokens.
#include "kernels.h"

struct Layer {
  const Linear *query_key_value, *out;
  const Linear *query_across, *key_value_across, *out_across;  // the decoder's alone
  const Linear *hidden, *out_feed_forward;
  Norm norm, norm_across, norm_feed_forward;
};

struct Model {
  int32_t d_model, heads, d_k, d_v, d_ff, encoder_layers, decoder_layers, source_words, target_words;
  int32_t norm_first, activation;
  float embedding_scale;
  const float *source_embedding, *target_embedding;  // words, M
  const Layer *encoder, *decoder;
  Norm encoder_norm, decoder_norm;  // without weights: there is none
  const Linear* output;
};

struct Positions {           // of the tokens that are computed; each may be null
  const float* added;        // tokens, M: is added to the embeddings
  const float* turn;         // tokens, 2 * d_k padded: turns the queries and keys of self-attention; see `split_heads`
  const float* turn_across;  // and those of attention over the source
  const float* bias;         // H, queries, keys: is added to the scores of self-attention
};

enum Status { DONE, UNKNOWN_WORD, PADDED_INSIDE, NO_SUCH_ROW };

struct State {
  long sources, stride, rows, length, tokens, capacity;  // stride: of a row of source keys; tokens: in target memory
  Buffer lengths, source_of_row;                         // B, R
  Buffer keys, values;                                   // decoder layers, B, H: the source's, see `Memory`
  Buffer* target;                                        // decoder layers: (tokens, H * (d_k + d_v) padded)
  Buffer places, spare;                                  // R, capacity: where in target memory each token is
  Buffer x, normalised, projected, context, hidden, query, scores, head_keys, head_values, bytes;
};

static long padded_key(const Model* m) { return rounded_up(m->d_k, LANES); }
static long padded_value(const Model* m) { return rounded_up(m->d_v, LANES); }

// Section 3.1: LayerNorm(x + sublayer(x)), or with the norm first x + sublayer(LayerNorm(x)). `sublayer` adds to x what
// it computes of its argument, which it reads as a whole before that: it may be x itself.
template <class Sublayer>
INLINE void residual(const Model* m, State* s, const Norm* norm, float* x, long rows, Sublayer sublayer) {
  if (m->norm_first) {
    float* normalised = s->normalised.of<float>(rows * m->d_model);
    normalise(norm, x, rows, m->d_model, normalised);
    sublayer(normalised);
  } else {
    sublayer(x);
    normalise(norm, x, rows, m->d_model, x);
  }
}

static float* apply(const Linear* l, const float* x, long rows, Buffer* y, State* s, bool relu = false) {
  float* out = y->of<float>(rows * l->outputs);
  linear(l, x, rows, {out, 0, relu}, &s->bytes);
  return out;
}

static void add(const Linear* l, const float* x, long rows, float* sum, State* s) {
  linear(l, x, rows, {sum, sum, false}, &s->bytes);
}

static void embed(const Model* m, const float* word, const float* added, float* x) {
  for (int i = 0; i < m->d_model; i++) x[i] = word[i] * m->embedding_scale + (added ? added[i] : 0);
}

// Equation 2.
static void feed_forward(const Model* m, State* s, const Layer* layer, float* x, long rows) {
  residual(m, s, &layer->norm_feed_forward, x, rows, [&](const float* y) {
    float* hidden = apply(layer->hidden, y, rows, &s->hidden, s, m->activation == RELU);
    activate(hidden, (size_t)rows * m->d_ff, m->activation);
    add(layer->out_feed_forward, hidden, rows, x, s);
  });
}

// The keys and values of one head, x (tokens, step) each, for `attend`.
static Memory remember(const Model* m, State* s, const float* key, const float* value, long step, long tokens,
                       const float* turn, float* keys, float* values) {
  long d_k = padded_key(m), d_v = padded_value(m);
  float* turned = s->head_keys.of<float>(d_k);
  for (long t = 0; t < tokens; t++) {
    split_heads(key + t * step, 1, m->d_k, turn ? turn + t * 2 * d_k : 0, turned);
    for (long i = 0; i < m->d_k; i++) keys[i * s->stride + t] = turned[i];
    split_heads(value + t * step, 1, m->d_v, 0, values + t * d_v);
  }
  return {keys, values, tokens, s->stride, m->d_k, m->d_v};
}

static void encode(const Model* m, State* s, const Positions* positions, float* x, long all) {
  const int32_t* lengths = (const int32_t*)s->lengths.data;
  long d_k = padded_key(m), H = m->heads, values = H * m->d_v, step = H * (2 * m->d_k + m->d_v);
  long longest = positions->bias ? (long)s->rows : 0;  // queries and keys of the bias
  for (int l = 0; l < m->encoder_layers; l++) {
    const Layer* layer = m->encoder + l;
    residual(m, s, &layer->norm, x, all, [&](const float* y) {
      float* projected = apply(layer->query_key_value, y, all, &s->projected, s);
      float* context = s->context.of<float>(all * values);
      float* scores = s->scores.of<float>(QUERIES * scores_width(s->stride));
      float* query = s->query.of<float>(s->stride * d_k);
      float* keys = s->keys.of<float>(d_k * s->stride);
      float* head_values = s->head_values.of<float>(s->stride * padded_value(m));
      for (long b = 0, first = 0; b < s->sources; first += lengths[b++])
        for (long h = 0; h < H; h++) {
          const float* q = projected + first * step + h * m->d_k;
          const float *k = q + H * m->d_k, *v = projected + first * step + 2 * H * m->d_k + h * m->d_v;
          Memory memory = remember(m, s, k, v, step, lengths[b], positions->turn, keys, head_values);
          for (long t = 0; t < lengths[b]; t++)
            split_heads(q + t * step, 1, m->d_k, positions->turn ? positions->turn + t * 2 * d_k : 0, query + t * d_k);
          const float* bias = positions->bias ? positions->bias + h * longest * longest : 0;
          for (long t = 0; t < lengths[b]; t += QUERIES) {
            long queries = lengths[b] - t < QUERIES ? lengths[b] - t : (long)QUERIES;
            attend_queries(queries, memory, query + t * d_k, d_k, bias ? bias + t * longest : 0, longest, scores,
                           context + (first + t) * values + h * m->d_v, values);
          }
        }
      add(layer->out, context, all, x, s);
    });
    feed_forward(m, s, layer, x, all);
  }
  if (m->encoder_norm.weight) normalise(&m->encoder_norm, x, all, m->d_model, x);
}

static void attend_to_target(const Model* m, State* s, int l, const Positions* positions, const float* y, float* x) {
  const Layer* layer = m->decoder + l;
  long d_k = padded_key(m), d_v = padded_value(m), H = m->heads, per_token = H * (d_k + d_v), T = s->length + 1;
  float* projected = apply(layer->query_key_value, y, s->rows, &s->projected, s);
  float* target = s->target[l].of<float>((s->tokens + s->rows) * per_token, s->tokens * per_token);
  float* query = s->query.of<float>(H * d_k);
  float* context = s->context.of<float>(s->rows * H * m->d_v);
  float* scores = s->scores.of<float>(scores_width(T));
  for (long r = 0; r < s->rows; r++) {
    const float* of_row = projected + r * H * (2 * m->d_k + m->d_v);
    float* token = target + (s->tokens + r) * per_token;
    split_heads(of_row, H, m->d_k, positions->turn, query);
    split_heads(of_row + H * m->d_k, H, m->d_k, positions->turn, token);
    split_heads(of_row + 2 * H * m->d_k, H, m->d_v, 0, token + H * d_k);
    const int32_t* places = (const int32_t*)s->places.data + r * s->capacity;
    for (long h = 0; h < H; h++)
      attend_to_places(query + h * d_k, target + h * d_k, target + H * d_k + h * d_v, per_token, places, T, m->d_k,
                       m->d_v, positions->bias ? positions->bias + h * T : 0, scores, context + (r * H + h) * m->d_v);
  }
  add(layer->out, context, s->rows, x, s);
}

static void attend_to_source(const Model* m, State* s, int l, const Positions* positions, const float* y, float* x) {
  const Layer* layer = m->decoder + l;
  long d_k = padded_key(m), d_v = padded_value(m), H = m->heads, R = s->rows;
  const int32_t *lengths = (const int32_t*)s->lengths.data, *source = (const int32_t*)s->source_of_row.data;
  float* projected = apply(layer->query_across, y, R, &s->projected, s);
  float* query = s->query.of<float>(R * H * d_k);
  float* context = s->context.of<float>(R * H * m->d_v);
  float* scores = s->scores.of<float>(QUERIES * scores_width(s->stride));
  for (long r = 0; r < R; r++)
    split_heads(projected + r * H * m->d_k, H, m->d_k, positions->turn_across, query + r * H * d_k);
  for (long r = 0, next; r < R; r = next) {
    long b = source[r];
    for (next = r + 1; next < R && next < r + QUERIES && source[next] == b;) next++;  // they see the same tokens
    for (long h = 0; h < H; h++) {
      long head = (l * s->sources + b) * H + h;
      Memory memory = {(float*)s->keys.data + head * m->d_k * s->stride, (float*)s->values.data + head * s->stride * d_v,
                       lengths[b], s->stride, m->d_k, m->d_v};
      attend_queries(next - r, memory, query + (r * H + h) * d_k, H * d_k, 0, 0, scores,
                     context + (r * H + h) * m->d_v, H * m->d_v);
    }
  }
  add(layer->out_across, context, R, x, s);
}

static Status encode_sources(const Model* m, State* s, const int64_t* ids, long S, int64_t pad, const Positions* positions) {
  long B = s->sources, all = 0, H = m->heads;
  int32_t* lengths = s->lengths.of<int32_t>(B);
  for (long b = 0; b < B; b++) {
    lengths[b] = 0;
    for (long t = 0; t < S; t++) {
      if (ids[b * S + t] == pad) continue;
      if (ids[b * S + t] < 0 || ids[b * S + t] >= m->source_words) return UNKNOWN_WORD;
      if (lengths[b]++ != t) return PADDED_INSIDE;
    }
    all += lengths[b];
  }
  s->stride = rounded_up(S, LANES);
  s->rows = S;
  float* x = s->x.of<float>(all * m->d_model);
  for (long b = 0, n = 0; b < B; b++)
    for (long t = 0; t < lengths[b]; t++, n++)
      embed(m, m->source_embedding + ids[b * S + t] * m->d_model, positions->added ? positions->added + t * m->d_model : 0,
            x + n * m->d_model);
  encode(m, s, positions, x, all);
  long step = H * (m->d_k + m->d_v), heads = m->decoder_layers * B * H;
  float* keys = s->keys.of<float>(heads * m->d_k * s->stride);
  float* values = s->values.of<float>(heads * s->stride * padded_value(m));
  for (int l = 0; l < m->decoder_layers; l++) {
    float* projected = apply(m->decoder[l].key_value_across, x, all, &s->projected, s);
    for (long b = 0, first = 0; b < B; first += lengths[b++])
      for (long h = 0; h < H; h++, keys += m->d_k * s->stride, values += s->stride * padded_value(m)) {
        const float* key = projected + first * step + h * m->d_k;
        const float* value = projected + first * step + H * m->d_k + h * m->d_v;
        remember(m, s, key, value, step, lengths[b], positions->turn_across, keys, values);
      }
  }
  s->rows = B;
  int32_t* source_of_row = s->source_of_row.of<int32_t>(B);
  for (long b = 0; b < B; b++) source_of_row[b] = b;
  return DONE;
}

extern "C" {

#ifndef STAMP
#define STAMP ""
#endif
const char* dragoman_stamp() { return STAMP; }  // of the sources: see setup.py
int dragoman_lanes() { return LANES; }
int dragoman_multiplies_int8() { return INT8; }
Linear* dragoman_new_linear(const float* weight, const float* bias, int outputs, int inputs, int int8) {
  return new_linear(weight, bias, outputs, inputs, int8);
}
void dragoman_free_linear(Linear* l) { free_linear(l); }

void dragoman_free_state(const Model* m, State* s) {
  for (int l = 0; l < m->decoder_layers; l++) free(s->target[l].data);
  free(s->target);
  Buffer* const all[] = {&s->lengths, &s->source_of_row, &s->keys,    &s->values,  &s->places, &s->spare,
                         &s->x,       &s->normalised,    &s->projected, &s->context, &s->hidden, &s->query,
                         &s->scores,  &s->head_keys,     &s->head_values, &s->bytes};
  for (Buffer* b : all)
    free(b->data);
  free(s);
}

// Encode the source ids (B, S), padded with `pad`; the state before the first target token goes to `state`.
int dragoman_start(const Model* m, const int64_t* ids, long B, long S, int64_t pad, const Positions* positions, State** state) {
  State* s = zeros<State>(1);
  s->target = zeros<Buffer>(m->decoder_layers);
  s->sources = B;
  Status status = encode_sources(m, s, ids, S, pad, positions);
  if (status == DONE) *state = s;
  else dragoman_free_state(m, s);
  return status;
}

// Write the logits (R, W) after the tokens (R,), which are then part of the state.
int dragoman_step(const Model* m, State* s, const int64_t* tokens, const Positions* positions, float* logits, float* vectors) {
  long R = s->rows, M = m->d_model;
  for (long r = 0; r < R; r++)
    if (tokens[r] < 0 || tokens[r] >= m->target_words) return UNKNOWN_WORD;
  if (s->length == s->capacity) {
    long capacity = s->capacity ? 2 * s->capacity : 64;
    int32_t* wider = s->spare.of<int32_t>(R * capacity);
    for (long r = 0; r < R && s->length; r++) memcpy(wider + r * capacity, (int32_t*)s->places.data + r * s->capacity, s->length * 4);
    Buffer places = s->places;
    s->places = s->spare, s->spare = places, s->capacity = capacity;
  }
  float* x = s->x.of<float>(R * M);
  for (long r = 0; r < R; r++) {
    embed(m, m->target_embedding + tokens[r] * M, positions->added, x + r * M);
    ((int32_t*)s->places.data)[r * s->capacity + s->length] = (int32_t)(s->tokens + r);
  }
  for (int l = 0; l < m->decoder_layers; l++) {
    const Layer* layer = m->decoder + l;
    residual(m, s, &layer->norm, x, R, [&](const float* y) { attend_to_target(m, s, l, positions, y, x); });
    residual(m, s, &layer->norm_across, x, R, [&](const float* y) { attend_to_source(m, s, l, positions, y, x); });
    feed_forward(m, s, layer, x, R);
  }
  if (m->decoder_norm.weight) normalise(&m->decoder_norm, x, R, M, x);
  if (vectors) memcpy(vectors, x, R * M * sizeof(float));
  linear(m->output, x, R, {logits, 0, false}, &s->bytes);
  s->tokens += R;
  s->length++;
  return DONE;
}

void dragoman_log_softmax(float* logits, long R, long W) { log_softmax(logits, R, W); }

// Write the k <= W largest log-probabilities of each row of logits (R, W) and their words, both (R, k).
void dragoman_likeliest(const float* logits, long R, long W, long k, float* log_p, int64_t* words) {
  likeliest(logits, R, W, k, log_p, words);
}

// Keep the hypotheses `rows` (n,), in that order; one may be chosen several times or not at all. Keys and values stay
// where they are: only the places are copied.
int dragoman_select(State* s, const int64_t* rows, long n) {
  for (long i = 0; i < n; i++)
    if (rows[i] < 0 || rows[i] >= s->rows) return NO_SUCH_ROW;
  const int32_t *before = (const int32_t*)s->places.data, *sources = (const int32_t*)s->source_of_row.data;
  int32_t* places = s->spare.of<int32_t>(n * (s->capacity + 1));
  for (long i = 0; i < n; i++) {
    if (s->length) memcpy(places + i * s->capacity, before + rows[i] * s->capacity, s->length * sizeof(int32_t));
    places[n * s->capacity + i] = sources[rows[i]];
  }
  memcpy(s->source_of_row.of<int32_t>(n), places + n * s->capacity, n * sizeof(int32_t));
  Buffer spare = s->places;
  s->places = s->spare, s->spare = spare, s->rows = n;
  return DONE;
}
}
