"""Draw the pairs of a memory that speak for each word of a translation."""

from collections.abc import Sequence
from typing import Any

from dragoman.inspection.figure import MAX_INCHES, Figure, shorten_label
from dragoman.inspection.origins import WordOrigins

MAX_ROWS, MAX_PAIR = 72, 90  # pairs in a figure, and characters of one


def origin_figure(words: Sequence[WordOrigins], caption: str) -> Figure:
    """Return a row for each pair of each word: bars of its shares, its two sides, and where it is from.

    Of more than MAX_ROWS rows the first ones are drawn, and the caption says so.
    """
    rows = [
        (word if not place else "", share, f"{pair.source} → {pair.target}", pair.origin)
        for word, origins in words
        for place, (_, pair, share) in enumerate(origins)
    ]
    shown = rows[:MAX_ROWS]
    if len(rows) > len(shown):
        caption = f"{caption}; the first {len(shown)} of {len(rows)} pairs"

    def draw(figure: Any) -> None:
        bars, texts = figure.subplots(1, 2, sharey=True, width_ratios=(1, 3))
        places = range(len(shown))
        bars.barh(places, [share.neighbours for _, share, *_ in shown], color="white", edgecolor="0.5", linewidth=0.6)
        bars.barh(places, [share.probability for _, share, *_ in shown], color="0.4", height=0.5)
        bars.set_yticks(places, [shorten_label(word) for word, *_ in shown], fontsize=9)
        bars.set_xlim(0, 1)
        bars.set_xlabel("share of the neighbours (white), of the probability (grey)", fontsize=8)
        bars.spines[["top", "right"]].set_visible(False)
        for row, (_, _, pair, origin) in enumerate(shown):
            text = f"{shorten_label(pair, MAX_PAIR)}   {shorten_label(origin, 40)}"
            texts.text(0, row, text, fontsize=8, va="center")
        texts.axis("off")
        bars.set_ylim(len(shown) - 0.5, -0.5)
        figure.suptitle("The pairs that speak for each word", fontsize=11)

    return Figure(caption, draw, (13.0, min(2.0 + 0.24 * max(len(shown), 2), MAX_INCHES)))
