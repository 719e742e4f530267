"""Table 3: its rows as settings of our model, and their sizes beside the paper's. No weights are allocated."""

from dataclasses import dataclass, replace
from typing import Any

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import BASE, BIG
from dragoman.inspection.cost import cost
from dragoman.inspection.plots.training import COLOURS, MARKS
from dragoman.model import outline
from dragoman_lab.drawing import draw_bars
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

VOCABULARY = BASE.vocabulary  # "about 37000": the paper gives no exact size
AGREES = 0.08  # the share by which a count may differ from the paper's rounded sizes


@dataclass(frozen=True)
class Row:
    """Describe a row of Table 3: a setting, and what the paper reports of it (newstest2013, perplexity per
    word piece).
    """

    group: str
    change: str
    model: TransformerConfig
    perplexity: float
    bleu: float
    millions: int | None = None  # parameters, where the paper gives them
    label_smoothing: float = 0.1

    def __str__(self) -> str:
        return f"{self.group} {self.change}".strip()


BASIC = BASE.model


def with_layers(count: int) -> TransformerConfig:
    """Return the base model with so many layers on each side."""
    return replace(BASIC, encoder_layers=count, decoder_layers=count)


def with_heads(count: int, d_k: int | None = None) -> TransformerConfig:
    """Return the base model with so many heads; d_k is d_model / heads unless it is given, d_v always."""
    return replace(BASIC, attention=AttentionConfig(heads=count, d_k=d_k))


def with_hidden_size(size: int) -> TransformerConfig:
    """Return the base model with feed-forward networks of this inner size (d_ff)."""
    return replace(BASIC, feed_forward=FeedForwardConfig(d_ff=size))


ROWS = (
    Row("base", "", BASIC, 4.92, 25.8, 65),
    Row("A", "1 head, d_k 512", with_heads(1), 5.29, 24.9),
    Row("A", "4 heads, d_k 128", with_heads(4), 5.00, 25.5),
    Row("A", "16 heads, d_k 32", with_heads(16), 4.91, 25.8),
    Row("A", "32 heads, d_k 16", with_heads(32), 5.01, 25.4),
    Row("B", "d_k 16", with_heads(8, 16), 5.16, 25.1, 58),
    Row("B", "d_k 32", with_heads(8, 32), 5.01, 25.4, 60),
    Row("C", "2 layers", with_layers(2), 6.11, 23.7, 36),
    Row("C", "4 layers", with_layers(4), 5.19, 25.3, 50),
    Row("C", "8 layers", with_layers(8), 4.88, 25.5, 80),
    Row("C", "d_model 256, d_k 32", replace(BASIC, d_model=256), 5.75, 24.5, 28),
    Row("C", "d_model 1024, d_k 128", replace(BASIC, d_model=1024), 4.66, 26.0, 168),
    Row("C", "d_ff 1024", with_hidden_size(1024), 5.12, 25.4, 53),
    Row("C", "d_ff 4096", with_hidden_size(4096), 4.75, 26.2, 90),
    Row("D", "dropout 0", replace(BASIC, dropout=0.0), 5.77, 24.6),
    Row("D", "dropout 0.2", replace(BASIC, dropout=0.2), 4.95, 25.5),
    Row("D", "label smoothing 0", BASIC, 4.67, 25.3, label_smoothing=0.0),
    Row("D", "label smoothing 0.2", BASIC, 5.47, 25.7, label_smoothing=0.2),
    Row("E", "learned positions", replace(BASIC, positions="learned"), 4.92, 25.7),
    Row("big", "d_model 1024, d_ff 4096, 16 heads", BIG.model, 4.33, 26.4, 213),
)


def count_parameters(row: Row) -> int:
    """Return the number of parameters of the row's model. No memory is allocated for them."""
    return cost(outline(row.model, VOCABULARY)).parameters


def size_gap(row: Row, count: int) -> float:
    """Return by which share of the paper's size, rounded to millions, `count` is larger. The row must have a size."""
    return count / ((row.millions or 0) * 1e6) - 1


def with_small_values(row: Row) -> Row:
    """Return the row with d_v set to its d_k."""
    attention = replace(row.model.attention, d_v=row.model.attention.d_k)
    return replace(row, model=replace(row.model, attention=attention))


def claims(counts: dict[Row, int]) -> Claims:
    """Return each claim and whether it holds. counts: parameters of each row's model."""
    known = {row: size_gap(row, count) for row, count in counts.items() if row.millions}
    worst = max(known, key=lambda row: abs(known[row]))
    by_heads = [count for row, count in counts.items() if row.group in ("base", "A")]
    smaller = {row: count_parameters(with_small_values(row)) for row in counts if row.group == "B"}
    kept = max(abs(known[row]) for row in smaller)
    changed = max(abs(size_gap(row, count)) for row, count in smaller.items())
    return {
        "With a vocabulary of 37,000, our sizes [are within 8%|are not within 8%] of those in the paper: they differ "
        f"by at most {abs(known[worst]):.1%} ({worst}: {counts[worst]:,}, in the paper {worst.millions} "
        "million).": abs(known[worst]) <= AGREES,
        "Models with 1, 4, 8, 16 and 32 heads and d_k = d_v = 512 / heads have [exactly the same number of "
        f"parameters|different numbers of parameters]: {min(by_heads):,} to "
        f"{max(by_heads):,}.": min(by_heads) == max(by_heads),
        "In rows B the paper [changed d_k alone|changed both], which its table does not say: ours differ from its "
        f"sizes by at most {kept:.1%} with d_v = 64, by {changed:.1%} with d_v = d_k.": kept < changed,
    }


@experiment(
    "The variants of Table 3",
    "section 6.2 and Table 3",
    "The base model has 65 million parameters and the big one 213 million; rows A change the number of heads at the "
    "same cost, rows B the size of the keys, rows C the size of the model, rows D the regularisation, row E the "
    "positions.",
)
def run(effort: Effort) -> Findings:
    """Count the parameters of each row of Table 3 beside the paper's. `effort` is not used: nothing is trained."""
    counts = {row: count_parameters(row) for row in ROWS}
    return Findings(
        f"All {len(ROWS)} rows of Table 3 as settings, with one matrix of {VOCABULARY:,} words for both embeddings and "
        "the output, post-norm, no bias in attention; parameters are counted in the models. Nothing is trained: "
        "perplexities and BLEU are the paper's.",
        claims(counts),
        {
            "Table 3": Table(
                "row | change | layers | d_model | d_ff | heads | d_k | d_v | dropout | label smoothing | parameters | "
                "paper: millions | difference (%) | paper: perplexity | paper: BLEU",
                [row_cells(row, count) for row, count in counts.items()],
            )
        },
        {
            "sizes": Figure(
                "Parameters of our models next to the paper's rounded numbers.",
                lambda figure: draw_sizes(figure, {row: count for row, count in counts.items() if row.millions}),
            ),
            "quality": Figure(
                "The paper's BLEU on newstest2013 against the parameters of our models, by group of rows.",
                lambda figure: draw_quality(figure, counts),
            ),
        },
    )


def row_cells(row: Row, count: int) -> tuple[str | int | float, ...]:
    """Return the cells of a row: its settings, parameters counted and in the paper, how many percent more these are,
    and the paper's quality. Empty text: not in the paper.
    """
    model = row.model
    heads, sizes = model.attention.heads, model.attention.head_sizes(model.d_model)
    theirs = (row.millions, 100 * size_gap(row, count)) if row.millions else ("", "")
    ours = (model.encoder_layers, model.d_model, model.feed_forward.d_ff, heads, *sizes, model.dropout)
    return (row.group, row.change, *ours, row.label_smoothing, count, *theirs, row.perplexity, row.bleu)


def draw_sizes(figure: Any, counts: dict[Row, int]) -> None:
    """Draw the number of parameters of each row, ours beside the paper's, as bars on a matplotlib figure."""
    axes = figure.subplots()
    series: dict[str, list[float]] = {
        "ours, counted": [count / 1e6 for count in counts.values()],
        "paper": [row.millions or 0 for row in counts],
    }
    draw_bars(axes, list(map(str, counts)), series)
    for label in axes.get_xticklabels():
        label.set(rotation=35, ha="right", fontsize=8)
    axes.set_ylabel("parameters (millions)")


def draw_quality(figure: Any, counts: dict[Row, int]) -> None:
    """Draw the BLEU of each row, as the paper reports it, by our number of parameters, on a matplotlib figure."""
    axes = figure.subplots()
    for index, group in enumerate(dict.fromkeys(row.group for row in counts)):
        points = [(count / 1e6, row.bleu) for row, count in counts.items() if row.group == group]
        fill = COLOURS[index] if index < len(MARKS) else "none"
        look = {"marker": MARKS[index % len(MARKS)], "facecolors": fill, "edgecolors": COLOURS[index]}
        axes.scatter(*zip(*points, strict=True), label=group, **look)
    axes.set(xscale="log", xlabel="parameters (millions)", ylabel="BLEU, as the paper reports it")
    axes.set_xticks([30, 50, 100, 200], ["30", "50", "100", "200"])
    axes.set_xticks([], minor=True)
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(title="rows", frameon=False)
