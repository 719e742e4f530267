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
    "positions of a MarianMT: as transformers computes them, or as Marian did in training"
    tag: str = ""
    "default tag in front of each source"
    target_tag: str = ""
    "default tag that each translation begins with"
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "compare the new model with the source in transformers, and print its card; fail if their translations differ"
    sample: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "text to compare them on, a source in each line; default: made-up sources"


def main(arguments: list[str]) -> None:
    """Run `dragoman import`: write the model folder and print its name, with warnings on standard error."""
    options = parse(Options, "import", arguments)
    set_threads(None)  # for --check
    from dragoman.console import escape_controls
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
        report=lambda note: print(f"dragoman: {escape_controls(note)}", file=sys.stderr),
    )
    if options.check:
        print(read_card(options.out), end="", file=sys.stderr)
    print(options.out)
