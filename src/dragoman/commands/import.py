"""dragoman import"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse, set_threads


@dataclass(frozen=True)
class Options:
    """Import a model of Hugging Face (MarianMT, M2M100, NLLB-200, SMaLL-100), Marian or fairseq; print its new folder.

    The format of SOURCE is detected; an export of dragoman for Hugging Face works, too. What cannot be imported is
    refused with all reasons, and nothing is written.

    $ dragoman import hub:Helsinki-NLP/opus-mt-en-de runs/en-de
    $ dragoman import downloads/opus-mt-en-de runs/en-de --check --sample source.txt
    $ dragoman import downloads/nllb-200-distilled-600M runs/en-ko --tag eng_Latn --target-tag kor_Hang
    """

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    "folder or zip file of the model, or hub:USER/NAME"
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    "new model folder"
    positions: Literal["own", "marian"] = "own"
    "positions of a MarianMT: its own, which transformers computes, or those that Marian trained it with"
    tag: str = ""
    "tag that each source begins with where none is given"
    target_tag: str = ""
    "tag that each translation begins with where none is given"
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "compare the new model with the source in transformers, and print its card; fail if their translations differ"
    sample: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "text to compare them on, a source in each line; default: made-up sources"


def main(arguments: list[str]) -> None:
    """Run `dragoman import`: write the model folder, print its card on standard error if checked, and its name."""
    options = parse(Options, "import", arguments)
    set_threads(None)  # for --check
    from dragoman.interop.importing import import_model
    from dragoman.training.card import read_card

    import_model(
        options.source,
        options.out,
        positions=options.positions,
        tag=options.tag,
        target_tag=options.target_tag,
        check=options.check,
        sample=options.sample,
    )
    if options.check:
        print(read_card(options.out), end="", file=sys.stderr)
    print(options.out)
