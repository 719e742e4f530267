// Matrices that remember what they were made of, so that the gradient of a loss can flow back: autograd, in the few
// operations that a Transformer needs. Vectors are matrices of one row.

let made = 0;

// from: the matrices that it was made of; back: takes its gradient and adds to theirs.
export const matrix = (rows, columns, data = new Float64Array(rows * columns), from = [], back = null) => {
  return { rows, columns, data, from, back, number: made++, gradient: null };
};

export const row = (of, number) => of.data.subarray(number * of.columns, (number + 1) * of.columns);

// Fills in the gradient of every matrix that a loss (1, 1) was made of.
export function backward(loss) {
  const reached = new Set([loss]);
  for (const each of reached) for (const input of each.from) reached.add(input); // a set is walked while it grows
  for (const each of reached) each.gradient = new Float64Array(each.data.length);
  loss.gradient[0] = 1;
  for (const each of [...reached].sort((a, b) => b.number - a.number)) each.back?.(each.gradient);
}

export function product(a, b) {
  const [n, k, m, x, y] = [a.rows, a.columns, b.columns, a.data, b.data];
  const data = new Float64Array(n * m);
  for (let i = 0; i < n; i++) {
    for (let l = 0; l < k; l++) {
      const factor = x[i * k + l];
      for (let j = 0; j < m; j++) data[i * m + j] += factor * y[l * m + j];
    }
  }
  return matrix(n, m, data, [a, b], (gradient) => {
    const [dx, dy] = [a.gradient, b.gradient];
    for (let i = 0; i < n; i++) {
      for (let l = 0; l < k; l++) {
        let sum = 0;
        for (let j = 0; j < m; j++) {
          sum += gradient[i * m + j] * y[l * m + j];
          dy[l * m + j] += x[i * k + l] * gradient[i * m + j];
        }
        dx[i * k + l] += sum;
      }
    }
  });
}

// a times the transpose of b: the product of each row of a with each row of b.
export function productOfRows(a, b) {
  const [n, k, m, x, y] = [a.rows, a.columns, b.rows, a.data, b.data];
  const data = new Float64Array(n * m);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < m; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) sum += x[i * k + l] * y[j * k + l];
      data[i * m + j] = sum;
    }
  }
  return matrix(n, m, data, [a, b], (gradient) => {
    const [dx, dy] = [a.gradient, b.gradient];
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        const value = gradient[i * m + j];
        for (let l = 0; l < k; l++) {
          dx[i * k + l] += value * y[j * k + l];
          dy[j * k + l] += value * x[i * k + l];
        }
      }
    }
  });
}

// A matrix whose numbers are some of those of `a`: place(i, j) says which.
function picked(a, rows, columns, place) {
  const places = Int32Array.from({ length: rows * columns }, (_, at) => place(Math.floor(at / columns), at % columns));
  const data = Float64Array.from(places, (at) => a.data[at]);
  return matrix(rows, columns, data, [a], (gradient) => places.forEach((at, i) => (a.gradient[at] += gradient[i])));
}

export const columnsOf = (a, start, count) => picked(a, a.rows, count, (i, j) => i * a.columns + start + j);
export const rowsOf = (a, numbers) => picked(a, numbers.length, a.columns, (i, j) => numbers[i] * a.columns + j);

// Matrices side by side.
export function concatenated(parts) {
  const columns = parts.reduce((sum, part) => sum + part.columns, 0);
  const whole = matrix(parts[0].rows, columns);
  const each = (move) => {
    let start = 0;
    for (const part of parts) {
      for (let at = 0; at < part.data.length; at++) {
        move(part, at, Math.floor(at / part.columns) * columns + start + (at % part.columns));
      }
      start += part.columns;
    }
  };
  each((part, at, place) => (whole.data[place] = part.data[at]));
  whole.from = parts;
  whole.back = (gradient) => each((part, at, place) => (part.gradient[at] += gradient[place]));
  return whole;
}

// b: as large as a, or one row that is added to each.
export function sum(a, b) {
  const data = a.data.map((value, at) => value + b.data[at % b.data.length]);
  return matrix(a.rows, a.columns, data, [a, b], (gradient) => {
    gradient.forEach((value, at) => {
      a.gradient[at] += value;
      b.gradient[at % b.data.length] += value;
    });
  });
}

// A function of each number. slope: its derivative.
export function mapped(a, f, slope) {
  return matrix(a.rows, a.columns, a.data.map(f), [a], (gradient) => {
    gradient.forEach((value, at) => (a.gradient[at] += value * slope(a.data[at])));
  });
}

export const scaledBy = (a, factor) => mapped(a, (value) => factor * value, () => factor);

// Each row sums to 1; a row of nothing but -Infinity gets zeros.
export function softmax(a) {
  const result = matrix(a.rows, a.columns);
  for (let i = 0; i < a.rows; i++) {
    const largest = row(a, i).reduce((most, value) => Math.max(most, value), -Infinity);
    if (largest === -Infinity) continue;
    const exponentials = row(a, i).map((value) => Math.exp(value - largest));
    const total = exponentials.reduce((all, value) => all + value, 0);
    row(result, i).set(exponentials.map((value) => value / total));
  }
  result.from = [a];
  result.back = (gradient) => {
    for (let i = 0; i < a.rows; i++) {
      const weights = row(result, i);
      const start = i * a.columns;
      const mean = weights.reduce((all, weight, j) => all + weight * gradient[start + j], 0);
      weights.forEach((weight, j) => (a.gradient[start + j] += weight * (gradient[start + j] - mean)));
    }
  };
  return result;
}

// Layer normalisation: each row with mean 0 and variance 1, then times `weight` plus `bias`.
export function normalised(a, weight, bias, epsilon) {
  const size = a.columns;
  const standard = matrix(a.rows, size);
  const deviations = new Float64Array(a.rows);
  for (let i = 0; i < a.rows; i++) {
    const mean = row(a, i).reduce((all, value) => all + value, 0) / size;
    const variance = row(a, i).reduce((all, value) => all + (value - mean) ** 2, 0) / size;
    deviations[i] = Math.sqrt(variance + epsilon);
    row(standard, i).set(row(a, i).map((value) => (value - mean) / deviations[i]));
  }
  const data = standard.data.map((value, at) => value * weight.data[at % size] + bias.data[at % size]);
  return matrix(a.rows, size, data, [a, weight, bias], (gradient) => {
    for (let i = 0; i < a.rows; i++) {
      let [mean, along] = [0, 0];
      for (let j = 0; j < size; j++) {
        const [at, value] = [i * size + j, gradient[i * size + j]];
        weight.gradient[j] += value * standard.data[at];
        bias.gradient[j] += value;
        mean += (value * weight.data[j]) / size;
        along += (value * weight.data[j] * standard.data[at]) / size;
      }
      for (let j = 0; j < size; j++) {
        const at = i * size + j;
        a.gradient[at] += (gradient[at] * weight.data[j] - mean - along * standard.data[at]) / deviations[i];
      }
    }
  });
}

// Each pair of numbers of a row, rotated by the angle of the row and the pair: [row][pair].
export function rotated(a, angles) {
  const turn = (from, into, sign) => {
    for (let at = 0; at < from.length; at += 2) {
      const angle = sign * angles[Math.floor(at / a.columns)][(at % a.columns) / 2];
      const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
      into[at] += from[at] * cosine - from[at + 1] * sine;
      into[at + 1] += from[at] * sine + from[at + 1] * cosine;
    }
  };
  const result = matrix(a.rows, a.columns, undefined, [a], (gradient) => turn(gradient, a.gradient, -1));
  turn(a.data, result.data, 1);
  return result;
}

// The mean of -log p of the right words, by the logits of each row.
export function crossEntropy(logits, labels) {
  const p = softmax(logits);
  const loss = labels.reduce((all, label, i) => all - Math.log(row(p, i)[label]), 0) / labels.length;
  return matrix(1, 1, Float64Array.of(loss), [logits], ([gradient]) => {
    p.data.forEach((value, at) => (logits.gradient[at] += (gradient * value) / labels.length));
    labels.forEach((label, i) => (logits.gradient[i * p.columns + label] -= gradient / labels.length));
  });
}
