"""dragoman inspect"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import Model, Search, parse
from dragoman.config import SearchConfig
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Draw which source words the model looked at for each word of its translation.

    $ dragoman inspect -m runs/en-ko "The train leaves on Monday." --out attention.svg
    """

    model: Model
    "model folder or run folder"
    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")]
    "the sentence to translate"
    translation: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    "look at this translation instead of the model's own"
    out: Path = Path("attention.svg")
    "the figure: .svg, .png or .pdf"
    layer: int | None = None
    "decoder layer, from 1; default: the last"
    head: int | None = None
    "attention head, from 1; default: the mean of all"
    pieces: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "show subwords instead of words"
    search: Search = SearchConfig()


def main(arguments: list[str]) -> None:
    options = parse(Options, "inspect", arguments)
    from dragoman.inspection.figures import check_format
    from dragoman.inspection.picture import draw_cross_attention
    from dragoman.translator import Translator

    if not options.text.strip():
        raise UsageError("there is no text to translate")
    check_format(options.out)
    translator = Translator.load(options.model, options.search)
    shown = draw_cross_attention(
        translator,
        options.text,
        options.out,
        translation=options.translation,
        layer=options.layer,
        head=options.head,
        pieces=options.pieces,
    )
    print(shown)
    print(options.out)
