"""Draw figures for paper and screen, as SVG, PNG or PDF. Needs the extra `plot`."""

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
from dragoman.storage.output import require_no_folder
from dragoman.storage.writing import replace_file
from dragoman.text.speech import Say, say_english

FORMATS = (".svg", ".png", ".pdf")
NUMBERS_UP_TO = 14  # rows and columns for which each cell shows its number
MIN_NUMBER = 0.05  # smaller numbers are not written into a cell
MAX_LABEL = 24  # characters
NOT_IN_SVG = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
MAX_INCHES = 30.0  # with more rows or columns than fit, cells and letters get smaller
LETTERS_PER_INCH = 15  # of a caption
NOTEBOOK_DPI = 80
LAST_LINE = "last line"  # the gid of texts whose last line is of this program
HEADING = "heading"  # the gid of cells of tables whose text is of this program, not of a sentence


@dataclass(frozen=True)
class Scale:
    """Say what the colours of a map mean."""

    name: str  # beside the colour bar, with the unit
    colours: str  # a colour map of matplotlib: one that gets darker, or one that does in both directions from 0
    low: float
    high: float


WEIGHTS = Scale("attention weight", "Blues", 0.0, 1.0)


def signed_scale(name: str, limit: float) -> Scale:
    """Return a scale from -limit to limit: white is 0."""
    return Scale(name, "PuOr", -limit, limit)


@dataclass(frozen=True)
class Figure:
    """A figure that is not drawn yet."""

    caption: str  # what is shown, of which model and sentence
    draw: Callable[[Any], None]  # on an empty matplotlib figure with constrained layout
    size: tuple[float, float]  # width and height in inches

    def __repr__(self) -> str:
        return f"<Figure: {self.caption}>"

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        """Return the picture that a notebook shows, and its text alternative under the key that IPython uses.

        As SVG the picture would be lost or damaged on most sites of notebooks.
        """
        return render(self, "png", NOTEBOOK_DPI), {"alt": self.caption}


def drawing_settings() -> dict[Any, Any]:
    """Return matplotlib's settings, with a typeface for Hangul. Raise DragomanError without matplotlib."""
    try:
        from matplotlib import font_manager
    except ImportError:
        raise DragomanError("figures need matplotlib: pip install 'dragoman[plot]'") from None
    families = ["DejaVu Sans"]
    # Only the typeface of this package is wanted, so it is found without being imported.
    spec = importlib.util.find_spec("koreanize_matplotlib")
    if spec and spec.submodule_search_locations:
        typeface = Path(spec.submodule_search_locations[0]) / "fonts" / "NanumGothic.ttf"
        font_manager.fontManager.addfont(str(typeface))
        families.append(font_manager.FontProperties(fname=str(typeface)).get_name())
    return {"font.family": families, "text.parse_math": False}  # a dollar sign in a sentence is a dollar sign


def pyplot() -> Any:
    """Return pyplot, set to draw to files; this changes the process. Raise DragomanError without matplotlib."""
    settings = drawing_settings()
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update(settings)
    import matplotlib.pyplot as plt

    return plt


def check_format(path: Path) -> None:
    """Raise UsageError for a name that does not end in a format that can be drawn, or is that of a folder."""
    require_no_folder(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: a figure's name must end in one of {', '.join(FORMATS)}")


def save(figure: Figure, path: Path, say: Say = say_english) -> None:
    """Draw a figure to a file, its words in the language of `say`.

    Raise UsageError for an unknown suffix, DragomanError without matplotlib.
    """
    check_format(path)
    replace_file(path, render(figure, path.suffix[1:].lower(), dpi=150, say=say), shared=True)


def render(figure: Figure, form: str, dpi: int, say: Say = say_english) -> bytes:
    """Draw a figure, its caption below it, as 'svg', 'png' or 'pdf', and leave matplotlib's settings as they are.

    dpi: dots to an inch; say: says our words in a language. Raise DragomanError where matplotlib is not installed.
    """
    settings = drawing_settings()
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    content = io.BytesIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        canvas = Canvas(figsize=figure.size, layout="constrained")
        figure.draw(canvas)
        say_words(canvas, say)
        if figure.caption:
            canvas.supxlabel(wrap_caption(say(figure.caption), figure.size[0]), fontsize=8)
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # matplotlib draws a box instead
        canvas.savefig(content, format=form, dpi=dpi)
    return content.getvalue()


def say_words(canvas: Any, say: Say) -> None:
    """Replace the words of a drawn figure that are ours by what `say` says; all others are those of sentences and runs.

    Ours are titles, the names of axes, the legends of axes, cells of tables with the gid HEADING, and the last lines of
    texts with the gid LAST_LINE.
    """
    texts = [canvas._suptitle] if canvas._suptitle else []
    for axes in canvas.axes:
        texts += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
    texts += [cell.get_text() for cell in canvas.findobj(lambda artist: artist.get_gid() == HEADING)]
    for text in texts:
        text.set_text(say(text.get_text()))
    for text in canvas.findobj(lambda artist: artist.get_gid() == LAST_LINE):
        lines, _, last = text.get_text().rpartition("\n")
        text.set_text(f"{lines}\n{say(last)}")


def wrap_caption(caption: str, width: float) -> str:
    """Return the caption in lines of about `width` inches, without characters that a figure cannot have.

    A letter of Hangul or Chinese is as wide as two others.
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in caption)
    letters = LETTERS_PER_INCH * width * len(caption) / (len(caption) + wide)
    return textwrap.fill(NOT_IN_SVG.sub("�", caption), max(20, int(letters)))


def shorten_label(label: str, longest: int = MAX_LABEL) -> str:
    """Return a label in at most `longest` characters, without characters that a figure cannot have."""
    label = NOT_IN_SVG.sub("�", label)
    return label if len(label) <= longest else label[: longest - 1] + "…"


def map_figure(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    caption: str = "",
    scale: Scale = WEIGHTS,
) -> Figure:
    """Return a map of values (rows, columns) with labels; in small maps each number that is not near 0 is written.

    Raise ValueError where the labels are not as many as rows and columns.
    """
    if tuple(values.shape) != (len(rows), len(columns)):
        raise ValueError(f"weights are {tuple(values.shape)}, labels {len(rows)} and {len(columns)}")
    natural = (2.4 + 0.62 * len(columns), 2.0 + 0.46 * len(rows))
    letters = 10 * min(1.0, MAX_INCHES / max(natural))
    numbered = max(values.shape) <= NUMBERS_UP_TO
    if numbered and caption:
        caption = f"{caption}; numbers nearer to 0 than {MIN_NUMBER:g} are left out"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        image = draw_image(axes, values, scale)
        labels = [shorten_label(label) for label in columns]
        axes.set_xticks(range(len(columns)), labels, rotation=45, ha="left", rotation_mode="anchor", fontsize=letters)
        axes.set_yticks(range(len(rows)), [shorten_label(label) for label in rows], fontsize=letters)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=11)
        if numbered:
            write_numbers(axes, image, values, with_sign=scale.low < 0)
        figure.colorbar(image, ax=axes, shrink=0.8, label=scale.name)

    width, height = (min(max(side, 4.0), MAX_INCHES) for side in natural)
    return Figure(caption, draw, (width, height))


def draw_image(axes: Any, values: Tensor, scale: Scale) -> Any:
    """Draw the values (rows, columns) as an image on `axes`; return the image, for a colour bar."""
    array = values.detach().cpu().numpy()
    return axes.imshow(array, cmap=scale.colours, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="none")


def write_numbers(axes: Any, image: Any, values: Tensor, with_sign: bool) -> None:
    """Write each value (rows, columns) that is not near 0 into its cell, in the letters that can be read on its colour.

    image: the drawn values, which give the colours; with_sign: as for `short_number`.
    """
    for y, row in enumerate(values.tolist()):
        for x, value in enumerate(row):
            red, green, blue, _ = image.to_rgba(value)
            light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            if abs(value) >= MIN_NUMBER:
                axes.text(x, y, short_number(value, with_sign), ha="center", va="center", fontsize=8,
                          color="black" if light else "white")  # fmt: skip


def short_number(value: float, with_sign: bool = False) -> str:
    """Return a number rounded to two decimals, in few characters: .71, 1, 0; with a sign +0.71, −0.71, +0.00."""
    rounded = round(value, 2) + 0.0  # not -0.0
    text = f"{rounded:+.2f}" if with_sign else f"{rounded:.2f}".removesuffix(".00")
    return (text if rounded == 0 else text.removeprefix("0")).replace("-", "−")


def two_digits(value: float) -> str:
    """Return a number with two decimals and a true minus sign, which 0.00 does not get."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
