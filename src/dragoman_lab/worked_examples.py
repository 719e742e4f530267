"""Worked examples of attention, stage by stage: matmul, scale, mask, softmax, matmul (section 3.2.1, Figure 2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dragoman.model.attention import causal_mask, fused_attention, masked_softmax
from dragoman_lab.drawing import Draw, HeatMap, heat_maps
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

STAGES = ("1 matmul: Q Kᵀ", "2 scale", "3 mask", "4 softmax", "5 matmul: weights V")
MAX_COLUMNS = 6  # of an output that are shown

DOG_SCORES = torch.tensor([[56.8, 12.1, 43.5], [30.4, 100.8, 24.2], [11.11, 7.34, 20.23]], dtype=torch.float64)
DOG_PRINTED = torch.tensor([[0.90, 0.07, 0.03], [0.025, 0.95, 0.025], [0.21, 0.03, 0.76]], dtype=torch.float64)
DOG_VALUES = torch.tensor([[67.85, 90, 91], [62, 40, 50], [37, 41, 20]], dtype=torch.float64)


@dataclass(frozen=True)
class Trace:
    """List the five stages of equation 1."""

    scores: Tensor  # T S
    scaled: Tensor  # T S
    masked: Tensor  # T S, -inf where a query may not look
    weights: Tensor  # T S
    output: Tensor  # T V

    @classmethod
    def compute(
        cls, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
    ) -> "Trace":
        """Compute the stages for query (T, K), key (S, K), value (S, V) and mask (T, S), True = may attend. scale: what
        scores are multiplied by; default 1 / sqrt(K).
        """
        scores = query @ key.T
        scaled = scores * (query.size(-1) ** -0.5 if scale is None else scale)
        masked = scaled if mask is None else scaled.masked_fill(~mask, -math.inf)
        weights = masked_softmax(scaled, mask)
        return cls(scores, scaled, masked, weights, weights @ value)

    @property
    def stages(self) -> tuple[Tensor, ...]:
        """Return the five stages in their order."""
        return self.scores, self.scaled, self.masked, self.weights, self.output


@dataclass(frozen=True)
class Example:
    """Describe an example of attention: names of its queries and keys, and all numbers that go in."""

    name: str
    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    scale: float | None = None
    printed: tuple[float, ...] = ()  # the first query's weights as the example is told

    @property
    def trace(self) -> Trace:
        """Return the five stages of the example."""
        return Trace.compute(self.query, self.key, self.value, self.mask, self.scale)

    @property
    def of_the_model(self) -> Tensor:
        """Return the output of the model's kernel, which always divides by sqrt(K), on queries lengthened to make up
        for `scale`.
        """
        usual_scale = self.query.size(-1) ** -0.5
        return fused_attention(
            self.query * ((self.scale or usual_scale) / usual_scale), self.key, self.value, self.mask
        )


def go_home_example() -> Example:
    """Return "I go home", where each word is query, key and value at once; x_1 . x_j differ by the logarithms of the
    weights 0.2, 0.1 and 0.7.
    """
    words, weights = ("I", "go", "home"), (0.2, 0.1, 0.7)
    rows = [[(4 + math.log(w / weights[0])) / 2, y] for w, y in zip(weights, (0, 1, -1), strict=True)]
    x = torch.tensor(rows, dtype=torch.float64)
    title = '"I go home": the words themselves, no matrices, no scale'
    return Example("i-go-home", title, words, words, x, x, x, scale=1.0, printed=weights)


def two_keys_example() -> Example:
    """Return an example of one query and two keys with the weights 0.2 and 0.8, and values of size 3."""
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    key = torch.tensor([[math.log(0.2), 1.0], [math.log(0.8), -1.0]], dtype=torch.float64)
    value = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    names = ("q",), ("k1", "k2")
    return Example("two-keys", "One query, two keys", *names, query, key, value, scale=1.0, printed=(0.2, 0.8))


def three_queries_example() -> Example:
    """Return an example of three queries, four keys and values of size 5, random (seed 0) but for the first query,
    whose weights are 0.2, 0.1, 0.4 and 0.3.
    """
    weights, random = (0.2, 0.1, 0.4, 0.3), torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=random).double() for shape in ((3, 4), (4, 4), (4, 5)))
    query[0] = torch.tensor([2.0, 0.0, 0.0, 0.0])  # 2 = sqrt(4), so that the scaled scores are the logarithms
    key[:, 0] = torch.tensor(weights, dtype=torch.float64).log()
    names = tuple(f"q{i}" for i in range(1, 4)), tuple(f"k{i}" for i in range(1, 5))
    return Example(
        "three-queries-four-keys", "Three queries, four keys", *names, query, key, value, None, None, weights
    )


@dataclass(frozen=True)
class Projected:
    """Give two words as rows, and the matrices that make queries, keys and values of them."""

    x: Tensor  # 2 4
    query: Tensor  # 4 3
    key: Tensor  # 4 3
    value: Tensor  # 4 V


def random_thinking_machines(d_v: int) -> Projected:
    """Return random vectors of two words and random projections (seed 0), values of size `d_v`; W^K is scaled so that
    "Thinking" gives "Machines" the weight 0.9.
    """
    random = torch.Generator().manual_seed(0)
    x, query, key = (torch.randn(shape, generator=random).double() for shape in ((2, 4), (4, 3), (4, 3)))
    scores = (x @ query)[0] @ (x @ key).T
    key *= math.log(9) * math.sqrt(3) / (scores[1] - scores[0])
    return Projected(x, query, key, torch.randn(4, d_v, generator=random).double())


def thinking_example(d_v: int) -> Example:
    """Return "Thinking Machines" with values of size `d_v`."""
    made, words = random_thinking_machines(d_v), ("Thinking", "Machines")
    query, key, value = (made.x @ matrix for matrix in (made.query, made.key, made.value))
    title = f'"Thinking Machines": X 2 x 4, W^Q and W^K 4 x 3, W^V 4 x {d_v}'
    return Example(f"thinking-machines-{d_v}", title, words, words, query, key, value, printed=(0.1, 0.9))


def dog_example(masked: bool) -> Example:
    """Return "I am dog", with or without a look-ahead mask: queries and keys of size 64 whose inner products are
    exactly the scores of the example.
    """
    query, words = torch.zeros(3, 64, dtype=torch.float64), ("I", "am", "dog")
    query[:, :3] = DOG_SCORES
    name, more = ("i-am-dog-masked", ", each word up to itself") if masked else ("i-am-dog", "")
    key = torch.eye(3, 64, dtype=torch.float64)
    return Example(name, f'"I am dog"{more}', words, words, query, key, DOG_VALUES, causal_mask(3) if masked else None)


def student_example() -> Example:
    """Return "i am a student": one head of eight on random words of size 512 with random matrices 512 x 64 (seed 0)."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(4, 512, generator=random).double()
    query, key, value = (x @ torch.randn(512, 64, generator=random).double() / math.sqrt(512) for _ in range(3))
    words, title = ("i", "am", "a", "student"), '"i am a student": one head of eight, X 4 x 512, matrices 512 x 64'
    return Example("i-am-a-student", title, words, words, query, key, value)


def examples() -> tuple[Example, ...]:
    """Return all examples, in the order of the page."""
    return (
        go_home_example(),
        two_keys_example(),
        three_queries_example(),
        *map(thinking_example, (3, 5)),
        *map(dog_example, (False, True)),
        student_example(),
    )


def off_in_columns(example: Example) -> float:
    """Return the largest absolute difference between V softmax(K^T Q), for vectors that are columns, and the transpose
    of the example's output.
    """
    query, key, value = example.query.T, example.key.T, example.value.T
    masked = example.trace.masked - example.trace.scaled  # 0 or -inf
    weights = (key.T @ query * (example.scale or query.size(0) ** -0.5) + masked.T).softmax(0)
    return float((value @ weights - example.trace.output.T).abs().max())


def double_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return z_n as it is sometimes written, with the sum over the row of V, too: one number (T,) for each word, of
    weights (T, S) and values (S, V).
    """
    return (weights[:, :, None] * values).sum((1, 2))


def claims(
    kernel: float,  # largest difference from the model's kernel
    columns: float,  # and from attention with vectors as columns
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],  # weights as told and as computed
    printed: Tensor,  # the weights of "I am dog" as printed
    true: Tensor,  # and as the softmax gives them
    sums: Tensor,  # its output by the note's formula with two sums
    z: Tensor,  # and by the right one, both with the printed weights
) -> Claims:
    """Return each claim and whether it holds."""
    looks_at_itself = [bool((weights.argmax(-1) == torch.arange(3)).all()) for weights in (printed, true)]
    weights = max(abs(a - b) for given, computed in pairs for a, b in zip(given, computed, strict=True))
    dog = float((printed - true).abs().max())
    softmax = "; ".join(" ".join(f"{w:.4f}" for w in row) for row in true.tolist())
    places = {(True, False): "the printed weights only", (False, True): "the softmax only"}
    where = places.get((looks_at_itself[0], looks_at_itself[1]), "neither the printed weights nor the softmax")
    one_number = sums.shape != z.shape
    vector = ", ".join(f"{x:g}" for x in z[0].tolist())
    return {
        "In all examples the last stage [is|is not] what the model's kernel gives (off by at most "
        f"{kernel:.1e}).": kernel < 1e-10,
        "With vectors as columns attention is V softmax(Kᵀ Q), with a softmax down the columns, and [is|is not] the "
        f"transpose of what is shown here (off by at most {columns:.1e}).": columns < 1e-10,
        "The weights given for the first query of each example [come|do not come] out of the softmax and sum to 1 (off "
        f"by at most {weights:.1e}).": weights < 1e-6,
        'The weights printed for "I am dog" [are the softmax of its scores|do not follow from its scores: they are an '
        f"illustration, up to {dog:.3f} away from the softmax] ({softmax}).": dog < 0.005,
        'In "I am dog" each word gives most weight to itself in [both the printed weights and the softmax of the '
        f"scores|{where}]. This is an example and no rule: in 'I go home' the first word gives itself 0.2 of its "
        "weight and the last word 0.7.": all(looks_at_itself),
        'A formula printed with "I am dog" sums over the row of V, too, to get z_n. It gives [the output|one number '
        f"for each word, {sums.flatten()[0]:g} for the first]; the output is a vector for each word, ({vector}) for "
        "the first.": not one_number,
    }


@experiment(
    "The worked examples in five stages",
    "section 3.2.1",
    "Attention is five steps: multiply queries by keys, scale, mask, apply the softmax, multiply by values. Well-known "
    'examples are "I go home", "Thinking Machines", "I am dog" and "i am a student".',
)
def run(effort: Effort) -> Findings:
    """Compute the five stages of each example. `effort` is not used: the examples are fixed."""
    shown = examples()
    traces = [example.trace for example in shown]
    true, z = dog_example(False).trace, DOG_PRINTED @ DOG_VALUES
    variances = [stage.var(-1, correction=0).tolist() for stage in (true.scores, true.scaled)]
    return Findings(
        "Where an example gives no vectors, ours are used: drawn at random, or chosen so that the weights come out as "
        "given. Numbers are computed in 64 bits and rounded in figures and tables.",
        claims(
            max(float((e.of_the_model - t.output).abs().max()) for e, t in zip(shown, traces, strict=True)),
            max(map(off_in_columns, shown)),
            [(e.printed, t.weights[0].tolist()) for e, t in zip(shown, traces, strict=True) if e.printed],
            DOG_PRINTED,
            true.weights,
            double_sum(DOG_PRINTED, DOG_VALUES),
            z,
        ),
        {
            "Weights of the first query": Table(
                "example | key | as told | softmax",
                [
                    (e.title, *row)
                    for e, t in zip(shown, traces, strict=True)
                    if e.printed
                    for row in zip(e.keys, e.printed, t.weights[0].tolist(), strict=True)
                ],
            ),
            '"I am dog": the weights as told and what follows from its scores; the first 3 columns of V and '
            "Z": dog_table(true),
            '"I am dog": variance within a row of scores, before and after the division by 8': Table(
                "query | Q Kᵀ | Q Kᵀ / 8", [*zip(("I", "am", "dog"), *variances, strict=True)]
            ),
            'Shapes of "Thinking Machines"': shapes_table(),
            **{f"{e.title}: five stages{shortened(e)}": stages_table(e) for e in shown},
        },
        {
            e.name: Figure(
                f"{e.title}. Five stages of attention; rows are queries, columns keys, and in the last stage the "
                f"numbers of the output{shortened(e)}.",
                draw_trace(e),
                (2.0 + 0.62 * (4 * len(e.keys) + min(e.value.size(1), MAX_COLUMNS)), 1.4 + 0.5 * len(e.queries)),
            )
            for e in shown
        },
    )


def dog_table(true: Trace) -> Table:
    """Return the table of the weights of "I am dog" as printed, beside the softmax of its scores, and the outputs that
    follow from each. true: the stages of the example.
    """
    z, sums, words = DOG_PRINTED @ DOG_VALUES, double_sum(DOG_PRINTED, DOG_VALUES), ("I", "am", "dog")
    rows = zip(words, DOG_PRINTED, true.weights, z, true.output, sums[:, None], strict=True)
    return Table(
        "query | told, I | told, am | told, dog | softmax, I | softmax, am | softmax, dog | Z as told, 1 | Z as told, "
        "2 | Z as told, 3 | Z from the softmax, 1 | Z from the softmax, 2 | Z from the softmax, 3 | z_n with two sums",
        [(word, *torch.cat(parts).tolist()) for word, *parts in rows],
    )


def shapes_table() -> Table:
    """Return the table of the shapes of every matrix of "Thinking Machines", with values of size 3 and of size 5."""
    rows = []
    for d_v in (3, 5):
        made, trace = random_thinking_machines(d_v), thinking_example(d_v).trace
        products = {"Q": made.x @ made.query, "K": made.x @ made.key, "V": made.x @ made.value}
        named = {"X": made.x, "W^Q": made.query, "W^K": made.key, "W^V": made.value, **products}
        named |= {"Q Kᵀ": trace.scores, "weights": trace.weights, "output": trace.output}
        rows += [(f"4 x {d_v}", name, *tensor.shape) for name, tensor in named.items()]
    return Table("W^V | matrix | rows | columns", rows)


def stages_table(example: Example) -> Table:
    """Return the table of the numbers of an example, a row for each stage and query; of the output at most MAX_COLUMNS
    columns.
    """
    width = max(min(stage.size(1), MAX_COLUMNS) for stage in example.trace.stages)
    rows = [
        (name, query, *row[:width], *[""] * (width - len(row)))
        for name, stage in zip(STAGES, example.trace.stages, strict=True)
        for query, row in zip(example.queries, stage.tolist(), strict=True)
    ]
    return Table(" | ".join(["stage", "query", *map(str, range(1, width + 1))]), rows)


def shortened(example: Example) -> str:
    """Return a note in brackets that only MAX_COLUMNS numbers of the output are shown; empty if all are."""
    size = example.value.size(1)
    return f" (the first {MAX_COLUMNS} of {size})" if size > MAX_COLUMNS else ""


def draw_trace(example: Example) -> Draw:
    """Return a function that draws the five stages of an example as heat maps on a figure, at most MAX_COLUMNS columns
    each.
    """
    stages = [stage[:, :MAX_COLUMNS] for stage in example.trace.stages]
    columns = [example.keys] * 4 + [tuple(str(i + 1) for i in range(stages[-1].size(1)))]
    maps = [
        HeatMap(stage, title, (), across, ".4g", signed=True)
        for title, stage, across in zip(STAGES, stages, columns, strict=True)
    ]
    maps[0] = replace(maps[0], rows=example.queries)
    maps[3] = replace(maps[3], numbers=".4f", most=1, signed=False)
    return heat_maps(*maps, widths=[stage.size(1) for stage in stages])
