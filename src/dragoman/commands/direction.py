"""Tell where texts are in another language than a model reads, as far as their script shows it."""

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

SAMPLE = 1000  # texts whose letters are looked at


def model_scripts(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the scripts that a model reads and those that it writes; () where training did not record them."""
    from dragoman.text.scripts import read_scripts
    from dragoman.translation.extent import SourceExtent

    extent = SourceExtent.load(folder)
    return extent.scripts if extent else (), read_scripts(folder)


def direction_warning(name: str, texts: Iterable[str], reads: Sequence[str], writes: Sequence[str]) -> str:
    """Return a sentence where the texts are in none of the scripts that the model reads; '' else.

    Where training did not record what the model reads, it is one where they are in the scripts that it writes, unless
    that is Latin, in which most languages are written. name: of the texts.
    """
    from dragoman.inspection.summary import name_scripts
    from dragoman.text.scripts import usual_scripts

    own = usual_scripts(islice(texts, SAMPLE))
    if not own or (set(own) & set(reads) if reads else own != list(writes) or own == ["LATIN"]):
        return ""
    knows = f"reads {name_scripts(reads)}" if reads else f"writes {name_scripts(writes)}"
    return (
        f"{name}: written in {name_scripts(own)} script, but the model {knows}: use a model that "
        "translates from the language of the text"
    )
