"""Figures for paper and screen, as SVG or PNG. Needs the extra `plot`."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from dragoman.errors import DragomanError, UsageError

FORMATS = (".svg", ".png", ".pdf")
NUMBERS_UP_TO = 14  # rows and columns for which each cell shows its number
LONGEST_LABEL = 24  # characters
LARGEST = 30.0  # inches; with more rows or columns than fit, cells and letters get smaller


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


def heat_map(
    path: Path, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str, caption: str = ""
) -> None:
    """Draw weights (rows, columns), from 0 to 1: the darker, the more; readable in black and white."""
    check_format(path)
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise ValueError(f"weights are {tuple(weights.shape)}, labels {len(rows)} and {len(columns)}")
    plt = pyplot()
    wanted = (2.2 + 0.62 * len(columns), 2.0 + 0.46 * len(rows))
    letters = 10 * min(1.0, LARGEST / max(wanted))
    figure, axes = plt.subplots(figsize=tuple(min(side, LARGEST) for side in wanted), layout="constrained")
    image = axes.imshow(weights.detach().cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    short = [[t if len(t) <= LONGEST_LABEL else t[: LONGEST_LABEL - 1] + "…" for t in side] for side in (rows, columns)]
    axes.set_xticks(range(len(columns)), short[1], rotation=45, ha="left", rotation_mode="anchor", fontsize=letters)
    axes.set_yticks(range(len(rows)), short[0], fontsize=letters)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xlabel(caption, fontsize=8)
    axes.set_title(title, fontsize=11)
    if len(rows) <= NUMBERS_UP_TO and len(columns) <= NUMBERS_UP_TO:
        for y, row in enumerate(weights.tolist()):
            for x, weight in enumerate(row):
                if weight >= 0.05:
                    colour = "white" if weight > 0.55 else "black"
                    axes.text(x, y, f"{weight:.2f}"[1:] if weight < 0.995 else "1", ha="center", va="center",
                              fontsize=8, color=colour)  # fmt: skip
    figure.colorbar(image, ax=axes, shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
