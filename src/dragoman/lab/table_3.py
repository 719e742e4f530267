"""Table 3: its rows as settings of our model, and their sizes beside the paper's. No weights are allocated."""

from dataclasses import dataclass, replace
from typing import Any

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import BASE, BIG
from dragoman.inspection.cost import cost
from dragoman.inspection.plots.training import COLOURS, MARKS
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model import outline

VOCABULARY = BASE.vocabulary  # "about 37000": the paper gives no exact size
AGREES = 0.08  # how far from the paper's rounded sizes a count may be, as a share


@dataclass(frozen=True)
class Row:
    """A row of Table 3: a setting, and what the paper reports of it (newstest2013, perplexity per word piece)."""

    group: str
    change: str
    model: TransformerConfig
    perplexity: float
    bleu: float
    millions: int | None = None  # parameters, where the paper gives them
    label_smoothing: float = 0.1


BASIC = BASE.model


def layers(count: int) -> TransformerConfig:
    return replace(BASIC, encoder_layers=count, decoder_layers=count)


def heads(count: int, d_k: int | None = None) -> TransformerConfig:
    """`d_k` is left to d_model / heads unless it is given; d_v always is."""
    return replace(BASIC, attention=AttentionConfig(heads=count, d_k=d_k))


def hidden(size: int) -> TransformerConfig:
    return replace(BASIC, feed_forward=FeedForwardConfig(d_ff=size))


ROWS = (
    Row("base", "", BASIC, 4.92, 25.8, 65),
    Row("A", "1 head, d_k 512", heads(1), 5.29, 24.9),
    Row("A", "4 heads, d_k 128", heads(4), 5.00, 25.5),
    Row("A", "16 heads, d_k 32", heads(16), 4.91, 25.8),
    Row("A", "32 heads, d_k 16", heads(32), 5.01, 25.4),
    Row("B", "d_k 16", heads(8, 16), 5.16, 25.1, 58),
    Row("B", "d_k 32", heads(8, 32), 5.01, 25.4, 60),
    Row("C", "2 layers", layers(2), 6.11, 23.7, 36),
    Row("C", "4 layers", layers(4), 5.19, 25.3, 50),
    Row("C", "8 layers", layers(8), 4.88, 25.5, 80),
    Row("C", "d_model 256, d_k 32", replace(BASIC, d_model=256), 5.75, 24.5, 28),
    Row("C", "d_model 1024, d_k 128", replace(BASIC, d_model=1024), 4.66, 26.0, 168),
    Row("C", "d_ff 1024", hidden(1024), 5.12, 25.4, 53),
    Row("C", "d_ff 4096", hidden(4096), 4.75, 26.2, 90),
    Row("D", "dropout 0", replace(BASIC, dropout=0.0), 5.77, 24.6),
    Row("D", "dropout 0.2", replace(BASIC, dropout=0.2), 4.95, 25.5),
    Row("D", "label smoothing 0", BASIC, 4.67, 25.3, label_smoothing=0.0),
    Row("D", "label smoothing 0.2", BASIC, 5.47, 25.7, label_smoothing=0.2),
    Row("E", "learned positions", replace(BASIC, positions="learned"), 4.92, 25.7),
    Row("big", "d_model 1024, d_ff 4096, 16 heads", BIG.model, 4.33, 26.4, 213),
)


def parameters(row: Row) -> int:
    """Counted in the model itself, which is built without memory for its numbers."""
    return cost(outline(row.model, VOCABULARY)).parameters


def judge_sizes(counts: dict[Row, int]) -> Verdict:
    """Whether our counts are the paper's, which it rounds to millions."""
    gaps = {row: count / (row.millions * 1e6) - 1 for row, count in counts.items() if row.millions}
    worst = max(gaps, key=lambda row: abs(gaps[row]))
    seen = abs(gaps[worst]) <= AGREES
    return Verdict(
        seen,
        f"Of {len(gaps)} sizes in the paper, ours differ by at most {abs(gaps[worst]):.1%} ({worst.group} "
        f"{worst.change}".rstrip()
        + f": {counts[worst]:,}, in the paper {worst.millions} million)"
        + (f": within {AGREES:.0%} at a vocabulary of {VOCABULARY:,}." if seen else ": not the same models."),
    )


def judge_heads(counts: dict[Row, int]) -> Verdict:
    """Rows A: another number of heads is not another size."""
    sizes = {count for row, count in counts.items() if row.group in ("base", "A")}
    seen = len(sizes) == 1
    return Verdict(
        seen,
        "1, 4, 8, 16 and 32 heads with d_k = d_v = 512 / heads have "
        + (f"exactly as many parameters: {min(sizes):,}." if seen else f"from {min(sizes):,} to {max(sizes):,}."),
    )


def judge_values(counts: dict[Row, int]) -> Verdict:
    """Rows B: the paper's sizes tell that d_v stayed 64, which its table does not say."""
    rows = [row for row in counts if row.group == "B"]
    smaller = {row: replace(row, model=replace(row.model, attention=both_small(row))) for row in rows}
    kept, changed = (
        max(abs(count / (row.millions * 1e6) - 1) for row, count in pairs if row.millions)
        for pairs in ([(row, counts[row]) for row in rows], [(row, parameters(smaller[row])) for row in rows])
    )
    seen = kept < changed
    return Verdict(
        seen,
        f"In rows B ours differ from the paper's sizes by at most {kept:.1%} with d_v = 64, by {changed:.1%} with "
        f"d_v = d_k: the paper {'changed d_k alone' if seen else 'changed both'}.",
    )


def both_small(row: Row) -> AttentionConfig:
    return replace(row.model.attention, d_v=row.model.attention.d_k)


def run(effort: Effort) -> Findings:
    counts = {row: parameters(row) for row in ROWS}
    return Findings(
        setting=f"All {len(ROWS)} rows of Table 3 as settings, with one matrix of {VOCABULARY:,} words for both "
        "embeddings and the output, post-norm, no bias in attention; parameters are counted in the models. Nothing is "
        "trained: perplexities and BLEU are the paper's.",
        verdicts=(judge_sizes(counts), judge_heads(counts), judge_values(counts)),
        tables=(
            Table(
                "Table 3",
                (
                    "row", "change", "layers", "d_model", "d_ff", "heads", "d_k", "d_v", "dropout", "label smoothing",
                    "parameters", "paper: millions", "difference (%)", "paper: perplexity", "paper: BLEU",
                ),
                tuple(cells(row, count) for row, count in counts.items()),
            ),
        ),
        figures=(
            Figure(
                "sizes",
                "Parameters of our models beside the paper's rounded numbers.",
                lambda figure: draw_sizes(figure, counts),
                (8, 4.5),
            ),
            Figure(
                "quality",
                "The paper's BLEU on newstest2013 against the parameters of our models, by group of rows. Only rows C "
                "and the big model change the size by much.",
                lambda figure: draw_quality(figure, counts),
                (8, 4.5),
            ),
        ),
    )  # fmt: skip


def cells(row: Row, count: int) -> tuple[str | int | float, ...]:
    model = row.model
    d_k, d_v = model.attention.head_sizes(model.d_model)
    theirs: tuple[str | float, ...] = ("", "")
    if row.millions:
        theirs = (row.millions, 100 * (count / (row.millions * 1e6) - 1))
    return (
        row.group, row.change, model.encoder_layers, model.d_model, model.feed_forward.d_ff, model.attention.heads,
        d_k, d_v, model.dropout, row.label_smoothing, count, *theirs, row.perplexity, row.bleu,
    )  # fmt: skip


def draw_sizes(figure: Any, counts: dict[Row, int]) -> None:
    known = {row: count for row, count in counts.items() if row.millions}
    axes, width = figure.subplots(), 0.4
    places = range(len(known))
    ours, theirs = [count / 1e6 for count in known.values()], [row.millions for row in known]
    axes.bar([x - width / 2 for x in places], ours, width, label="ours, counted", color=COLOURS[0], edgecolor="black")
    axes.bar(
        [x + width / 2 for x in places], theirs, width, label="paper", color="white", edgecolor="black", hatch="//"
    )
    labels = [f"{row.group} {row.change}".strip() for row in known]
    axes.set_xticks(places, labels, rotation=35, ha="right", fontsize=8)
    axes.set_ylabel("parameters (millions)")
    axes.legend(frameon=False)


def draw_quality(figure: Any, counts: dict[Row, int]) -> None:
    axes = figure.subplots()
    groups = list(dict.fromkeys(row.group for row in counts))
    for index, group in enumerate(groups):
        mine = [(count / 1e6, row.bleu) for row, count in counts.items() if row.group == group]
        filled = index < len(MARKS)
        axes.scatter(
            *zip(*mine, strict=True),
            label=group,
            marker=MARKS[index % len(MARKS)],
            facecolors=COLOURS[index] if filled else "none",
            edgecolors=COLOURS[index],
        )
    axes.set_xscale("log")
    axes.set_xticks([30, 50, 100, 200], ["30", "50", "100", "200"])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("parameters (millions)")
    axes.set_ylabel("BLEU, as the paper reports it")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(title="rows", frameon=False)


EXPERIMENT = Experiment(
    title="The variants of Table 3",
    source="the paper, section 6.2 and Table 3; notes 001 and 004 (sizes, heads)",
    claim="The base model has 65 million parameters and the big one 213 million; rows A change the number of heads at "
    "the same cost, rows B the size of the keys, rows C the size of the model, rows D the regularisation, row E the "
    "positions.",
    run=run,
)
