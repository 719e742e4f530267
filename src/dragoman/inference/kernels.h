// Products, sums and softmax of rows of numbers, in the widest instructions that this file is compiled for.
//
// The bits of a row never depend on the rows beside it: each sum runs over its terms in one order, whatever is computed
// with it. So products are fused with sums where `fused` says so, and compilers must not (-ffp-contract=off).
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

// LANES: floats of a register. PANEL: outputs that are computed together, for up to ROWS inputs: all sums of such a
// block, a piece of the matrix and an input must fit the registers.
#if defined(__AVX512F__)
enum { LANES = 16, VECTORS = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, VECTORS = 2 };
#elif defined(__ARM_NEON)
enum { LANES = 4, VECTORS = 4 };
#else
enum { LANES = 4, VECTORS = 2 };
#endif
enum { PANEL = LANES * VECTORS, ROWS = 6, QUERIES = 4, BLOCK_BYTES = 128 << 10 };

typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE long rounded_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }
INLINE Floats load(const float* p) { return *(const Floats*)p; }
INLINE void store(float* p, Floats v) { *(Floats*)p = v; }
INLINE void store_first(float* p, Floats v, long n) {
  if (n >= LANES) store(p, v);
  else for (long i = 0; i < n; i++) p[i] = v[i];
}
INLINE Floats load_first(const float* p, long n) {
  if (n >= LANES) return load(p);
  Floats v = {};
  for (long i = 0; i < n; i++) v[i] = p[i];
  return v;
}
INLINE Floats splat(float x) { return x - (Floats){}; }
INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

INLINE Floats fused(Floats a, Floats b, Floats c) {  // a * b + c
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

template <int N>
INLINE Floats exchanged(Floats v) {  // lane i has what lane i ^ N had
  Floats result = v;
  UNROLL
  for (int i = 0; i < LANES; i++) result[i] = v[i ^ N];
  return result;
}
template <int N = LANES / 2, class Join>
INLINE float fold(Floats v, Join join) {  // halves onto halves
  v = join(v, exchanged<N>(v));
  if constexpr (N > 1) return fold<N / 2>(v, join);
  else return v[0];
}
INLINE float sum_of(Floats v) { return fold(v, [](Floats a, Floats b) { return a + b; }); }
INLINE float largest_of(Floats v) { return fold(v, larger); }

INLINE Floats exponential(Floats x) {  // relative error below 3e-7
  x = x < splat(-87.0f) ? splat(-87.0f) : x;  // what is no number stays so, here and below
  x = x > splat(88.0f) ? splat(88.0f) : x;
  const Floats shift = splat(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to a whole number
  Floats n = fused(x, splat(1.44269504f), shift) - shift;
  Floats r = fused(n, splat(-0.693359375f), x);
  r = fused(n, splat(2.12194440e-4f), r);
  // The Taylor polynomial of exp on [-ln 2 / 2, ln 2 / 2].
  const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1, 1};
  Floats p = splat(1.0f / 5040);
  UNROLL
  for (int i = 0; i < 7; i++) p = fused(p, r, splat(terms[i]));
  Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  return p * (Floats)exponent;
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
INLINE Four sums_of(const Floats v[4]) {
  Four quarter[4];
  UNROLL
  for (int j = 0; j < 4; j++) {
    Floats folded = v[j];
    if constexpr (LANES > 8) folded += exchanged<8 % LANES>(folded);
    if constexpr (LANES > 4) folded += exchanged<4 % LANES>(folded);
    quarter[j] = Four{folded[0], folded[1], folded[2], folded[3]};
  }
  Four halves[2];
  UNROLL
  for (int j = 0; j < 2; j++) {
    Four a = quarter[2 * j], b = quarter[2 * j + 1];
    halves[j] = Four{a[0], b[0], a[2], b[2]} + Four{a[1], b[1], a[3], b[3]};
  }
  return Four{halves[0][0], halves[0][1], halves[1][0], halves[1][1]} +
         Four{halves[0][2], halves[0][3], halves[1][2], halves[1][3]};
}

// ---- memory that grows

struct Buffer {
  char* data;
  size_t size;
  template <class T>
  T* of(size_t n, size_t kept = 0) {  // room for n numbers, of which the first `kept` stay
    size_t bytes = n * sizeof(T) + 4 * PANEL * sizeof(float);  // kernels may read past the end
    if (bytes > size) {
      if (kept && bytes < 2 * size) bytes = 2 * size;  // what grows will grow again
      void* longer = 0;
      if (posix_memalign(&longer, 64, bytes)) abort();
      if (kept) memcpy(longer, data, kept * sizeof(T));
      free(data);
      data = (char*)longer;
      size = bytes;
    }
    return (T*)data;
  }
};

// ---- y = x W^T + b

// int8: numbers of an input are 1 to 255 with 128 for zero where the processor multiplies unsigned by signed; products
// are added by fours. Without VNNI, two products must fit 16 bits, so weights have 7 bits.
#if defined(__AVX512VNNI__)
typedef uint8_t Byte;
enum { INT8 = 1, ZERO = 128, LARGEST_WEIGHT = 127 };
INLINE Ints add_products(Ints sum, int32_t x, const int8_t* w) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(x), _mm512_loadu_si512(w));
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
typedef uint8_t Byte;
enum { INT8 = 1, ZERO = 128, LARGEST_WEIGHT = 63 };
INLINE Ints add_products(Ints sum, int32_t x, const int8_t* w) {
  __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(x), _mm256_loadu_si256((const __m256i*)w));
  return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int8_t Byte;
enum { INT8 = 1, ZERO = 0, LARGEST_WEIGHT = 127 };
INLINE Ints add_products(Ints sum, int32_t x, const int8_t* w) {
  return (Ints)vdotq_s32((int32x4_t)sum, vld1q_s8(w), vreinterpretq_s8_s32(vdupq_n_s32(x)));
}
#else
typedef int8_t Byte;
enum { INT8 = 0, ZERO = 0, LARGEST_WEIGHT = 127 };
INLINE Ints add_products(Ints sum, int32_t, const int8_t*) { return sum; }
#endif

struct Linear {
  int inputs, outputs, panels, groups;  // groups: of four inputs
  float* weight;                        // panels, inputs, PANEL; null in int8
  int8_t* quantised;                    // panels, groups, PANEL, 4; null in float32
  float *bias, *scale;                  // panels * PANEL
  int32_t* zero;                        // panels * PANEL: what ZERO adds to each sum
};

enum Activation { NONE, RELU, GELU, SILU };

struct Output {
  float* y;               // rows, outputs
  const float* residual;  // rows, outputs, or null: is added; it may be y
  bool relu;
};

template <class T>
INLINE T* zeros(size_t n) {
  Buffer memory = {};
  T* data = memory.of<T>(n);
  memset(data, 0, memory.size);
  return data;
}

static Linear* new_linear(const float* w, const float* bias, int outputs, int inputs, bool int8) {
  Linear* l = zeros<Linear>(1);
  l->inputs = inputs, l->outputs = outputs;
  l->panels = (outputs + PANEL - 1) / PANEL, l->groups = (inputs + 3) / 4;
  size_t padded = (size_t)l->panels * PANEL;
  l->bias = zeros<float>(padded);
  if (bias) memcpy(l->bias, bias, outputs * sizeof(float));
  if (int8) {
    l->quantised = zeros<int8_t>(padded * l->groups * 4);
    l->scale = zeros<float>(padded);
    l->zero = zeros<int32_t>(padded);
  } else
    l->weight = zeros<float>(padded * inputs);
  for (int n = 0; n < outputs; n++, w += inputs) {
    size_t panel = n / PANEL, column = n % PANEL;
    if (!int8) {
      for (int k = 0; k < inputs; k++) l->weight[(panel * inputs + k) * PANEL + column] = w[k];
      continue;
    }
    float most = 1.17549435e-38f * LARGEST_WEIGHT, nothing = 0;
    for (int k = 0; k < inputs; k++) {
      most = fabsf(w[k]) > most ? fabsf(w[k]) : most;
      nothing += w[k] * 0;  // 0, but not for what is no number: the scale keeps it
    }
    l->scale[n] = most / LARGEST_WEIGHT + nothing;
    for (int k = 0; k < inputs && nothing == 0; k++) {
      int q = (int)nearbyintf(w[k] / l->scale[n]);
      l->zero[n] += ZERO * q;
      l->quantised[((panel * l->groups + k / 4) * PANEL + column) * 4 + k % 4] = (int8_t)q;
    }
  }
  return l;
}

static void free_linear(Linear* l) {
  if (!l) return;
  free(l->weight), free(l->quantised), free(l->bias), free(l->scale), free(l->zero), free(l);
}

// How many panels are computed at once: a few rows need more than one, or each sum would wait for the one before.
constexpr int panels_for(int rows) { return rows * VECTORS >= 8 ? 1 : 8 / (rows * VECTORS); }

template <int R, int P>
INLINE void finish(const Linear* l, int panel, long row, Floats sum[R][P * VECTORS], Output out) {
  UNROLL
  for (int v = 0; v < P * VECTORS; v++) {
    long column = (long)panel * PANEL + v * LANES, left = l->outputs - column;
    if (left <= 0) return;
    UNROLL
    for (int r = 0; r < R; r++) {
      long at = (row + r) * l->outputs + column;
      Floats y = sum[r][v] + load(l->bias + column);
      if (out.relu) y = y < Floats{} ? Floats{} : y;
      if (out.residual && left >= LANES) y += load(out.residual + at);
      else if (out.residual) for (int i = 0; i < left; i++) y[i] += out.residual[at + i];
      store_first(out.y + at, y, left);
    }
  }
}

template <int R, int P>
static void multiply_floats(const Linear* l, int panel, const float* x, long row, Output out) {
  Floats sum[R][P * VECTORS] = {};
  const float* w = l->weight + (size_t)panel * l->inputs * PANEL;
  const size_t next = (size_t)l->inputs * PANEL;  // to the next panel, which is fetched meanwhile
  x += row * l->inputs;
  for (int k = 0; k < l->inputs; k++, w += PANEL) {
    Floats column[P * VECTORS];
    __builtin_prefetch(w + next);
    UNROLL
    for (int v = 0; v < P * VECTORS; v++) column[v] = load(w + v / VECTORS * next + v % VECTORS * LANES);
    UNROLL
    for (int r = 0; r < R; r++) {
      Floats input = splat(x[(long)r * l->inputs + k]);
      UNROLL
      for (int v = 0; v < P * VECTORS; v++) sum[r][v] = fused(input, column[v], sum[r][v]);
    }
  }
  finish<R, P>(l, panel, row, sum, out);
}

struct Quantised {
  const Byte* numbers;  // rows, groups * 4
  const float* scale;   // rows
};

template <int R, int P>
static void multiply_bytes(const Linear* l, int panel, Quantised x, long row, Output out) {
  Ints sum[R][P * VECTORS] = {};
  const int8_t* w = l->quantised + (size_t)panel * l->groups * PANEL * 4;
  const size_t next = (size_t)l->groups * PANEL * 4;
  const Byte* numbers = x.numbers + row * l->groups * 4;
  for (int k = 0; k < l->groups; k++, w += PANEL * 4) {
    __builtin_prefetch(w + next);
    UNROLL
    for (int r = 0; r < R; r++) {
      int32_t four;
      memcpy(&four, numbers + ((long)r * l->groups + k) * 4, 4);
      UNROLL
      for (int v = 0; v < P * VECTORS; v++)
        sum[r][v] = add_products(sum[r][v], four, w + v / VECTORS * next + v % VECTORS * LANES * 4);
    }
  }
  Floats y[R][P * VECTORS];
  UNROLL
  for (int v = 0; v < P * VECTORS; v++) {
    long column = (long)panel * PANEL + v * LANES;
    UNROLL
    for (int r = 0; r < R; r++) {
      Ints exact = sum[r][v] - *(const Ints*)(l->zero + column);
      y[r][v] = __builtin_convertvector(exact, Floats) * load(l->scale + column) * splat(x.scale[row + r]);
    }
  }
  finish<R, P>(l, panel, row, y, out);
}

// x (rows, inputs) in bytes: the largest number of a row becomes 127.
static Quantised quantise(const float* x, long rows, int inputs, Buffer* memory) {
  long stride = rounded_up(inputs, 4);
  float* scale = memory->of<float>(rows + (rows * stride + 3) / 4);
  Byte* numbers = (Byte*)(scale + rows);
  for (long r = 0; r < rows; r++, x += inputs) {
    Byte* q = numbers + r * stride;
    Floats most = {}, none = {};
    int i = 0;
    for (; i + LANES <= inputs; i += LANES) {
      most = larger(most, larger(load(x + i), -load(x + i)));
      none = fused(load(x + i), Floats{}, none);  // 0, but not for what is no number
    }
    float largest = largest_of(most), nothing = sum_of(none);
    for (; i < inputs; i++) {
      largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
      nothing += x[i] * 0;
    }
    scale[r] = largest / 127 + nothing;
    memset(q, ZERO, stride);
    if (largest < 1e-36f || nothing != 0) continue;  // 127 / largest would be infinite
    Floats inverse = splat(127 / largest);
    for (i = 0; i + LANES <= inputs; i += LANES) {
      const Floats shift = splat(12582912.0f);
      Ints rounded = __builtin_convertvector(fused(load(x + i), inverse, shift) - shift, Ints) + (int32_t)ZERO;
      typedef Byte Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
      *(Bytes*)(q + i) = __builtin_convertvector(rounded, Bytes);
    }
    for (; i < inputs; i++) q[i] = (Byte)((int)nearbyintf(x[i] * inverse[0]) + ZERO);
  }
  return {numbers, scale};
}

struct InFloats {
  const float* x;
  template <int R, int P>
  void multiply(const Linear* l, int panel, long row, Output out) const { multiply_floats<R, P>(l, panel, x, row, out); }
};
struct InBytes {
  Quantised x;
  template <int R, int P>
  void multiply(const Linear* l, int panel, long row, Output out) const { multiply_bytes<R, P>(l, panel, x, row, out); }
};

template <int R, class In>
static void multiply_rows(const Linear* l, In in, int panel, int panels, long row, Output out) {
  constexpr int P = panels_for(R);
  if (panels == P) in.template multiply<R, P>(l, panel, row, out);
  else for (int p = panel; p < panel + panels; p++) in.template multiply<R, 1>(l, p, row, out);
}

template <class In>
static void multiply_all(const Linear* l, In in, long rows, Output out) {
  typedef void (*Multiply)(const Linear*, In, int, int, long, Output);
  static const Multiply of_rows[ROWS + 1] = {0, multiply_rows<1, In>, multiply_rows<2, In>, multiply_rows<3, In>,
                                             multiply_rows<4, In>, multiply_rows<5, In>, multiply_rows<6, In>};
  long block = BLOCK_BYTES / (4 * l->inputs);  // rows that stay in the cache while all panels pass
  block = block < 4 * ROWS ? 4 * ROWS : block;
  for (long first = 0; first < rows; first += block) {
    long n = rows - first < block ? rows - first : block, parts = (n + ROWS - 1) / ROWS;
    int together = parts == 1 ? panels_for((int)n) : 1;
    for (int panel = 0; panel < l->panels; panel += together) {
      int panels = l->panels - panel < together ? l->panels - panel : together;
      for (long part = 0; part < parts; part++) {  // parts of nearly equal size
        long begin = n * part / parts, end = n * (part + 1) / parts;
        of_rows[end - begin](l, in, panel, panels, first + begin, out);
      }
    }
  }
}

// y (rows, outputs) of x (rows, inputs)
static void linear(const Linear* l, const float* x, long rows, Output out, Buffer* memory) {
  if (l->quantised) multiply_all(l, InBytes{quantise(x, rows, l->inputs, memory)}, rows, out);
  else multiply_all(l, InFloats{x}, rows, out);
}

static void activate(float* x, size_t n, int activation) {  // what `finish` does not do on the way
  if (activation == SILU) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(x + i, load(x + i) / (exponential(-load(x + i)) + splat(1)));
    for (; i < n; i++) x[i] = x[i] / (1 + exponential(splat(-x[i]))[0]);
  }
  if (activation == GELU)
    for (size_t i = 0; i < n; i++) x[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}

// ---- layer normalisation

struct Norm {
  const float *weight, *bias;
  float epsilon;
};

static void normalise(const Norm* norm, const float* x, long rows, int n, float* y) {  // y may be x
  for (long r = 0; r < rows; r++, x += n, y += n) {
    Floats sum = {};
    int whole = n / LANES * LANES;
    for (int i = 0; i < whole; i += LANES) sum += load(x + i);
    float mean = sum_of(sum);
    for (int i = whole; i < n; i++) mean += x[i];
    mean /= n;
    Floats squares = {};
    for (int i = 0; i < whole; i += LANES) squares = fused(load(x + i) - splat(mean), load(x + i) - splat(mean), squares);
    float variance = sum_of(squares);
    for (int i = whole; i < n; i++) variance += (x[i] - mean) * (x[i] - mean);
    float scale = 1 / sqrtf(variance / n + norm->epsilon);
    for (int i = 0; i < whole; i += LANES)
      store(y + i, fused((load(x + i) - splat(mean)) * splat(scale), load(norm->weight + i), load(norm->bias + i)));
    for (int i = whole; i < n; i++) y[i] = (x[i] - mean) * scale * norm->weight[i] + norm->bias[i];
  }
}

// ---- attention

// Scores in place become exp(score - largest), and 0 up to a multiple of LANES; returns 1 / their sum, 0 for none.
INLINE float exponentials(float* scores, long n) {
  if (!n) return 0;
  long end = rounded_up(n, LANES);
  for (long i = n; i < end; i++) scores[i] = -INFINITY;
  Floats most = load(scores), sum = {};
  for (long i = LANES; i < end; i += LANES) most = larger(most, load(scores + i));
  Floats largest = splat(largest_of(most));
  for (long i = 0; i < end; i += LANES) {
    Floats score = load(scores + i), e = exponential(score - largest);
    e = score == splat(-INFINITY) ? Floats{} : e;
    store(scores + i, e);
    sum += e;
  }
  return 1 / sum_of(sum);
}

// The heads of a token, each padded with zeros to a multiple of LANES and turned by its position: pairs of numbers are
// complex, and each is multiplied by one of `turn`: (cos, cos, ..) and then (-sin, sin, ..), or null.
INLINE void split_heads(const float* x, int heads, int size, const float* turn, float* y) {
  long padded = rounded_up(size, LANES);
  for (int h = 0; h < heads; h++, x += size, y += padded)
    for (long i = 0; i < padded; i += LANES) {
      Floats v = load_first(x + i, size - i);
      store(y + i, turn ? fused(exchanged<1>(v), load(turn + padded + i), v * load(turn + i)) : v);
    }
}

// Scores are computed for so many tokens at a time, and there is room for all of them in their memory.
enum { SCORES = 4 * LANES };

struct Memory {        // the keys and values of one head for the tokens of one source
  const float* key;    // d_k, stride: number by number
  const float* value;  // tokens, d_v padded
  long tokens, stride, d_k, d_v;
};

INLINE long scores_width(long tokens) { return rounded_up(tokens, SCORES); }

// The sum of the values of n tokens by their scores, over the sum of these, for Q queries; V registers at a time.
// places: which row of `value` (.., stride) each token has; null: its number.
template <int Q, int V>
INLINE long weigh(const float* value, long stride, const int32_t* places, long n, long d_v, const float* scores,
                  const float* inverse_sum, long first, float* out, long out_stride) {
  const long width = scores_width(n), end = rounded_up(d_v, LANES);
  for (; first + V * LANES <= end; first += V * LANES) {
    Floats sum[Q][V] = {};
    for (long t = 0; t < n; t++) {
      const float* row = value + (places ? places[t] : t) * stride + first;
      UNROLL
      for (int q = 0; q < Q; q++)
        UNROLL
        for (int v = 0; v < V; v++) sum[q][v] = fused(splat(scores[q * width + t]), load(row + v * LANES), sum[q][v]);
    }
    UNROLL
    for (int q = 0; q < Q; q++)
      UNROLL
      for (int v = 0; v < V; v++)
        store_first(out + q * out_stride + first + v * LANES, sum[q][v] * splat(inverse_sum[q]), d_v - first - v * LANES);
  }
  return first;
}

// softmax(q K^T / sqrt(d_k) + bias) V, equation 1, for one query. The keys and values of token t are in rows places[t] of
// (.., stride), each padded to a multiple of LANES.
static void attend_to_places(const float* query, const float* key, const float* value, long stride,
                             const int32_t* places, long n, long d_k, long d_v, const float* bias, float* scores,
                             float* out) {
  const float scale = 1 / sqrtf((float)d_k);
  const long end = rounded_up(d_k, LANES);
  for (long t = 0; t < n; t += 4) {
    const float* row[4];
    Floats sum[4] = {};
    UNROLL
    for (int j = 0; j < 4; j++) row[j] = key + places[t + j < n ? t + j : n - 1] * stride;
    for (long k = 0; k < end; k += LANES)
      UNROLL
      for (int j = 0; j < 4; j++) sum[j] = fused(load(query + k), load(row[j] + k), sum[j]);
    *(Four*)(scores + t) = sums_of(sum) * scale;
  }
  if (bias)
    for (long t = 0; t < n; t++) scores[t] += bias[t];
  float inverse_sum = exponentials(scores, n);
  long done = weigh<1, 4>(value, stride, places, n, d_v, scores, &inverse_sum, 0, out, 0);
  weigh<1, 1>(value, stride, places, n, d_v, scores, &inverse_sum, done, out, 0);
}

// softmax(Q K^T / sqrt(d_k) + bias) V, equation 1, for Q queries that see the same tokens. V: registers of keys or values
// at a time; few queries need more of them, or each sum would wait for the one before.
template <int Q, int V = (Q > 2 ? 2 : 4)>
static void attend(Memory memory, const float* query, long query_stride, const float* bias, long bias_stride,
                   float* scores, float* out, long out_stride) {
  const float scale = 1 / sqrtf((float)memory.d_k);
  const long width = scores_width(memory.tokens);
  float inverse_sum[Q];
  for (long t = 0; t < memory.tokens; t += V * LANES) {
    Floats sum[Q][V] = {};
    for (long k = 0; k < memory.d_k; k++) {
      const float* key = memory.key + k * memory.stride + t;
      UNROLL
      for (int q = 0; q < Q; q++)
        UNROLL
        for (int v = 0; v < V; v++)
          sum[q][v] = fused(splat(query[q * query_stride + k]), load(key + v * LANES), sum[q][v]);
    }
    UNROLL
    for (int q = 0; q < Q; q++)
      UNROLL
      for (int v = 0; v < V; v++) store(scores + q * width + t + v * LANES, sum[q][v] * splat(scale));
  }
  for (int q = 0; q < Q; q++) {
    float* of_query = scores + q * width;
    if (bias)
      for (long t = 0; t < memory.tokens; t++) of_query[t] += bias[q * bias_stride + t];
    inverse_sum[q] = exponentials(of_query, memory.tokens);
  }
  long padded = rounded_up(memory.d_v, LANES), n = memory.tokens;
  long done = weigh<Q, V>(memory.value, padded, 0, n, memory.d_v, scores, inverse_sum, 0, out, out_stride);
  weigh<Q, 1>(memory.value, padded, 0, n, memory.d_v, scores, inverse_sum, done, out, out_stride);
}

static void attend_queries(long queries, Memory memory, const float* query, long query_stride, const float* bias,
                           long bias_stride, float* scores, float* out, long out_stride) {
  static void (*const of_queries[])(Memory, const float*, long, const float*, long, float*, float*, long) = {
      0, attend<1>, attend<2>, attend<3>, attend<4>};
  of_queries[queries](memory, query, query_stride, bias, bias_stride, scores, out, out_stride);
}

// ---- log-probabilities

INLINE float log_sum(const float* x, long n, float largest) {  // log(sum(exp(x))), about `largest`
  Floats sum = {};
  long i = 0;
  for (; i + LANES <= n; i += LANES) sum += exponential(load(x + i) - splat(largest));
  float rest = 0;
  for (; i < n; i++) rest += exponential(splat(x[i] - largest))[0];
  return largest + logf(sum_of(sum) + rest);
}

INLINE float largest_of_row(const float* x, long n) {
  Floats most = splat(-INFINITY);
  long i = 0;
  for (; i + LANES <= n; i += LANES) most = larger(load(x + i), most);
  float largest = largest_of(most);
  for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

static void log_softmax(float* x, long rows, long n) {  // in place
  for (long r = 0; r < rows; r++, x += n) {
    float of_all = log_sum(x, n, largest_of_row(x, n));
    long i = 0;
    for (; i + LANES <= n; i += LANES) store(x + i, load(x + i) - splat(of_all));
    for (; i < n; i++) x[i] -= of_all;
  }
}

// The k largest log-probabilities of each row of logits and where they are, the largest first, of equal ones the first.
static void likeliest(const float* x, long rows, long n, long k, float* value, int64_t* index) {
  enum { BLOCK = 8 * LANES };
  for (long r = 0; r < rows; r++, x += n, value += k, index += k) {
    long filled = 0;
    for (long first = 0; first < n; first += BLOCK) {
      long end = first + BLOCK < n ? first + BLOCK : n;
      if (filled == k && !(largest_of_row(x + first, end - first) > value[k - 1])) continue;
      for (long i = first; i < end; i++) {
        if (filled == k && !(x[i] > value[k - 1])) continue;
        long at = filled < k ? filled++ : k - 1;
        for (; at > 0 && x[i] > value[at - 1]; at--) value[at] = value[at - 1], index[at] = index[at - 1];
        value[at] = x[i], index[at] = i;
      }
    }
    float of_all = log_sum(x, n, value[0]);
    for (long i = 0; i < k; i++) value[i] -= of_all;
  }
}
