"""Figures for paper and screen, as SVG, PNG or PDF. Needs the extra `plot`."""

import importlib.util
import io
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dragoman.errors import DragomanError, UsageError
from dragoman.files import replace_file

FORMATS = (".svg", ".png", ".pdf")
NUMBERS_UP_TO = 14  # rows and columns for which each cell shows its number
LEAST_NUMBER = 0.05  # that is written into a cell
LONGEST_LABEL = 24  # characters
UNDRAWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # what SVG may not hold
LARGEST = 30.0  # inches; with more rows or columns than fit, cells and letters get smaller
LETTERS_PER_INCH = 15  # of a caption


@dataclass(frozen=True)
class Scale:
    """What the colours of a map mean."""

    name: str  # beside the colour bar, with the unit
    colours: str  # a colour map of matplotlib: one that gets darker, or, where 0 is in the middle, one from the middle
    low: float
    high: float


WEIGHTS = Scale("attention weight", "Blues", 0.0, 1.0)


def signed(name: str, most: float) -> Scale:
    """For values from -most to most: white is 0."""
    return Scale(name, "PuOr", -most, most)


@dataclass(frozen=True)
class Picture:
    """A figure that is not drawn yet."""

    caption: str  # what is shown, of which model and sentence
    draw: Callable[[Any], None]  # is given an empty matplotlib figure with constrained layout
    size: tuple[float, float]  # width and height in inches


def pyplot() -> Any:
    """matplotlib, drawing to files, with a typeface for Hangul behind the Latin one."""
    try:
        import matplotlib
        from matplotlib import font_manager
    except ImportError:
        raise DragomanError("figures need matplotlib: pip install 'dragoman[plot]'") from None
    matplotlib.use("agg")
    families = ["DejaVu Sans"]
    # Only the typeface of this package is wanted, so it is found without being imported.
    spec = importlib.util.find_spec("koreanize_matplotlib")
    if spec and spec.submodule_search_locations:
        typeface = Path(spec.submodule_search_locations[0]) / "fonts" / "NanumGothic.ttf"
        font_manager.fontManager.addfont(str(typeface))
        families.append(font_manager.FontProperties(fname=str(typeface)).get_name())
    matplotlib.rcParams["font.family"] = families
    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a sentence is a dollar sign
    import matplotlib.pyplot as plt

    return plt


def check_format(path: Path) -> None:
    """Raises UsageError where the name of a figure does not end in a format that can be drawn."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: a figure's name ends in one of {', '.join(FORMATS)}")


def save(picture: Picture, path: Path) -> None:
    """Draw a picture, its caption below it, to a file whose format is its suffix. Raises UsageError for another one."""
    check_format(path)
    plt = pyplot()
    figure, drawn = plt.figure(figsize=picture.size, layout="constrained"), io.BytesIO()
    try:
        picture.draw(figure)
        if picture.caption:
            figure.supxlabel(wrapped(picture.caption, picture.size[0]), fontsize=8)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands there
            figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    finally:
        plt.close(figure)
    write_whole(path, drawn.getvalue())


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a figure or page so that the old one is there until the new one is whole.

    Lone surrogates become question marks. Raises DragomanError where it cannot be written.
    """
    try:
        replace_file(path, content.encode(errors="replace") if isinstance(content, str) else content)
    except OSError as error:
        raise DragomanError(f"{path}: could not be written: {error.strerror}") from None


def wrapped(caption: str, width: float) -> str:
    """The caption in lines of at most `width` inches; a letter of Hangul is as wide as two others."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in caption)
    letters = LETTERS_PER_INCH * width * len(caption) / (len(caption) + wide)
    return textwrap.fill(UNDRAWN.sub("�", caption), max(20, int(letters)))


def shortened(label: str, longest: int = LONGEST_LABEL) -> str:
    """A label as it can be drawn."""
    label = UNDRAWN.sub("�", label)
    return label if len(label) <= longest else label[: longest - 1] + "…"


def heat_map(
    path: Path, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str, caption: str = ""
) -> None:
    """Draw weights (rows, columns), from 0 to 1: the darker, the more; readable in black and white."""
    save(labelled_map(weights, rows, columns, title, caption), path)


def labelled_map(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    caption: str = "",
    scale: Scale = WEIGHTS,
) -> Picture:
    """A map of values (rows, columns) with its labels, and with its numbers where they fit and are not near 0."""
    if tuple(values.shape) != (len(rows), len(columns)):
        raise ValueError(f"weights are {tuple(values.shape)}, labels {len(rows)} and {len(columns)}")
    wanted = (2.4 + 0.62 * len(columns), 2.0 + 0.46 * len(rows))
    letters = 10 * min(1.0, LARGEST / max(wanted))
    numbered = max(values.shape) <= NUMBERS_UP_TO
    if numbered and caption:
        caption = f"{caption}; numbers below {LEAST_NUMBER:g} are not written"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        image = show(axes, values, scale)
        tops = [shortened(label) for label in columns]
        axes.set_xticks(range(len(columns)), tops, rotation=45, ha="left", rotation_mode="anchor", fontsize=letters)
        axes.set_yticks(range(len(rows)), [shortened(label) for label in rows], fontsize=letters)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=11)
        if numbered:
            write_numbers(axes, image, values, with_sign=scale.low < 0)
        figure.colorbar(image, ax=axes, shrink=0.8, label=scale.name)

    width, height = (min(max(side, 4.0), LARGEST) for side in wanted)
    return Picture(caption, draw, (width, height))


def show(axes: Any, values: Tensor, scale: Scale) -> Any:
    """The values (rows, columns) as an image."""
    array = values.detach().cpu().numpy()
    return axes.imshow(array, cmap=scale.colours, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="none")


def write_numbers(axes: Any, image: Any, values: Tensor, with_sign: bool) -> None:
    """Each value into its cell, as far as it can be told from 0."""
    for y, row in enumerate(values.tolist()):
        for x, value in enumerate(row):
            red, green, blue, _ = image.to_rgba(value)
            light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            if abs(value) >= LEAST_NUMBER:
                axes.text(x, y, short_number(value, with_sign), ha="center", va="center", fontsize=8,
                          color="black" if light else "white")  # fmt: skip


def short_number(value: float, with_sign: bool = False) -> str:
    """As it fits into a cell: .71, 1, and with a sign +0.71."""
    if with_sign:
        return f"{value:+.2f}".replace("-", "−")
    return f"{value:.2f}".removeprefix("0").removesuffix(".00")


def two_digits(value: float) -> str:
    """Two digits, with a true minus sign, and without one before 0.00."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
