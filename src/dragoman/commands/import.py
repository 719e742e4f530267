"""dragoman import"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse


@dataclass(frozen=True)
class Options:
    """Import a model of Hugging Face (MarianMT, M2M100, NLLB-200, SMaLL-100) or Marian, and print its new folder.

    What the source is, is found by looking; it may be an export of ours for Hugging Face. What cannot be imported is
    refused with all reasons, and nothing is written.

    $ dragoman import opus-mt-en-de runs/en-de
    $ dragoman import nllb-200-distilled-600M runs/en-ko --tag eng_Latn --target-tag kor_Hang
    """

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    "folder or zip file of the model"
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    "new model folder"
    positions: Literal["own", "marian"] = "own"
    "positions of a MarianMT: its own, which transformers computes, or those that Marian trained it with"
    tag: str = ""
    "tag that each source begins with where none is given"
    target_tag: str = ""
    "tag that each translation begins with where none is given"


def main(arguments: list[str]) -> None:
    """Run `dragoman import`: write the model folder, and print its name."""
    options = parse(Options, "import", arguments)
    from dragoman.interop.importing import import_model

    print(import_model(options.source, options.out, options.positions, options.tag, options.target_tag))
