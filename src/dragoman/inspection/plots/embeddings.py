"""Draw the words of a sentence in the space of the embeddings, in two dimensions, with their nearest neighbours."""

from collections.abc import Sequence
from typing import Any

from dragoman.inspection.embeddings import Neighbourhood
from dragoman.inspection.figure import MAX_INCHES, Figure, shorten_label, two_digits
from dragoman.inspection.plots.training import COLOURS

PLACES = [(x, y) for y in (3, -9, 11, -17, 19, -25) for x in (4, -4)]  # of a label beside its point, in points


def embedding_figure(sides: Sequence[tuple[str, Neighbourhood]], caption: str) -> Figure:
    """Return a column for each side, given with its title: above its words and their neighbours on two axes, below
    each word's neighbours with their cosines.
    """
    rows = max(len(side.words) for _, side in sides)

    def draw(figure: Any) -> None:
        panels = figure.subplots(2, len(sides), squeeze=False, height_ratios=(5.0, 0.4 + 0.24 * rows))
        for (title, side), points, lists in zip(sides, *panels, strict=True):
            draw_points(points, side)
            points.set_title(title, fontsize=11)
            lists.axis("off")
            lists.set_ylim(-max(rows, 1), 0.5)
            for row, (word, labels, cosines) in enumerate(zip(side.words, side.labels, side.cosines, strict=True)):
                near = ", ".join(
                    f"{shorten_label(label, 12)} {two_digits(cosine)}"
                    for label, cosine in zip(labels, cosines, strict=True)
                )
                lists.text(0, -row, f"{shorten_label(word, 16)}: {near}", fontsize=8, va="center")
        figure.draw_without_rendering()  # before that, nothing has its place
        for points in panels[0]:
            move_labels_apart(points)

    return Figure(caption, draw, (13.0, min(6.5 + 0.24 * rows, MAX_INCHES)))


def draw_points(axes: Any, side: Neighbourhood) -> None:
    """Draw words (coloured dots) and their neighbours (grey crosses), each with its label, on two principal axes."""
    labels = [*side.words, *side.near.values()]
    for number, ((x, y), label) in enumerate(zip(side.points.tolist(), labels, strict=True)):
        colour, mark = (COLOURS[0], "o") if number < len(side.words) else ("0.45", "x")
        axes.plot(x, y, mark, color=colour, markersize=5)
        axes.annotate(shorten_label(label, 16), (x, y), PLACES[0], textcoords="offset points", fontsize=8, color=colour)
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    axes.spines[["top", "right"]].set_visible(False)


def move_labels_apart(axes: Any) -> None:
    """Move each label of a drawn figure to the first of the PLACES around its point where it covers no other.

    Earlier labels have the first choice; one that finds no room stays where it is.
    """
    taken: list[Any] = []  # the boxes of the labels so far, in pixels
    for label in axes.texts:
        for place in PLACES:
            label.xyann = place
            label.set_ha("left" if place[0] > 0 else "right")
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
        else:
            label.xyann = PLACES[0]
            label.set_ha("left")
        taken.append(label.get_window_extent())
