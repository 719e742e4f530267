"""Draw a beam search as a tree, from left to right."""

from collections import Counter
from typing import Any

from dragoman.errors import plural
from dragoman.inspection.figure import LAST_LINE, Figure, shorten_label, two_digits
from dragoman.inspection.tree import BeamTree, Fate, Node

MAX_STEPS, MAX_ROWS = 14, 8  # steps: half of them at the beginning, half at the end
STEP, ROW = 1.5, 1.0  # inches from a node to the next
FRAMES: dict[Fate, dict[str, Any]] = {
    "kept": {"boxstyle": "round,pad=0.35", "linestyle": "-", "facecolor": "white"},
    "finished": {"boxstyle": "rarrow,pad=0.25", "linestyle": "-", "facecolor": "0.9"},
    "pruned": {"boxstyle": "square,pad=0.3", "linestyle": ":", "facecolor": "white"},
}


def tree_figure(tree: BeamTree, caption: str) -> Figure:
    """Return a tree whose nodes are one more token each, with its log-probability and the score of its hypothesis.

    Of long searches the first 7 steps are drawn and the last 7 up to the winner, of each step the best 8 nodes and the
    winning path; the caption says so.
    """
    last_step = tree.steps if tree.steps <= MAX_STEPS else tree.nodes[tree.winner].step
    path, rows, columns = set(tree.path), Counter[int](), shown_steps(last_step)
    shown: dict[int, tuple[int, int]] = {}  # node -> column, row
    for number, node in enumerate(tree.nodes):
        row = rows[node.step]
        if node.step in columns and (row < MAX_ROWS or number in path):
            shown[number] = columns[node.step], min(row, MAX_ROWS)
        rows[node.step] += 1
    notes = [caption, f"beam search with {tree.beams} beams, length penalty {tree.alpha:g}"]
    notes.append("p: log-probability of the token, s: of the hypothesis, divided by the length penalty; both in nats")
    notes.append(
        "round corners: kept, arrow: finished, dotted with sharp corners: pruned; bold: the path of the translation"
    )
    if last_step > MAX_STEPS:
        notes.append(f"the first and the last {MAX_STEPS // 2} of {last_step} steps")
    if last_step < tree.steps:
        notes.append(f"without {plural(tree.steps - last_step, 'later step')}, in which nothing better was found")
    if (most := max(rows[step] for step in columns)) > MAX_ROWS:
        notes.append(f"the best {MAX_ROWS} of up to {most} nodes of a step, and the path")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (column, row) in shown.items():
            node = tree.nodes[number]
            if node.parent in shown:
                before = shown[node.parent]
                axes.plot(
                    [before[0], column],
                    [before[1], row],
                    color="black",
                    linewidth=3 if number in path else 0.7,
                    linestyle=FRAMES[node.fate]["linestyle"],
                    zorder=1,
                )
            axes.text(
                column,
                row,
                node_text(node),
                gid=LAST_LINE if node.parent is not None else None,
                fontsize=7.5,
                ha="center",
                va="center",
                bbox=FRAMES[node.fate] | {"edgecolor": "black", "linewidth": 2.2 if number in path else 0.7},
                zorder=2,
            )
        last = max(columns.values())
        axes.set_xlim(-0.5, last + 0.5)
        axes.set_ylim(max(row for _, row in shown.values()) + 0.6, -0.6)
        axes.set_xticks(list(columns.values()), list(columns))
        if last > len(columns) - 1:
            axes.text(MAX_STEPS // 2 + 1, 0, "…", fontsize=20, ha="center", va="center")
        axes.set_xlabel("step: tokens so far; in each step the best hypothesis is at the top", fontsize=9)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)

    size = max(columns.values()) + 1, max(row for _, row in shown.values()) + 1
    return Figure("; ".join(notes), draw, (max(7.0, STEP * size[0]), 1.6 + ROW * size[1]))


def shown_steps(steps: int) -> dict[int, int]:
    """Return, for each step that is drawn, its column; in a long search one empty column stands for those left out."""
    if steps <= MAX_STEPS:
        return {step: step for step in range(steps + 1)}
    half = MAX_STEPS // 2
    return {step: step if step <= half else step - (steps - MAX_STEPS) + 1 for step in range(steps + 1)
            if step <= half or step > steps - half}  # fmt: skip


def node_text(node: Node) -> str:
    """Return the lines of text of a node: token, log-probability and score, and fate; of the root the token alone."""
    token = shorten_label(node.token, 14)
    if node.parent is None:
        return token
    return f"{token}\np {two_digits(node.log_p)}\ns {two_digits(node.normalised)}\n{node.fate}"
