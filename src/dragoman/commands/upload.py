"""dragoman upload"""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from dragoman.commands import folders_first, parse


@dataclass(frozen=True)
class Options:
    """Put a model on the Hugging Face Hub, where every command opens it by its name; print the name.

    Its card becomes the README.md that the Hub shows. It needs a token that may write: set HF_TOKEN, or save one with
    `hf auth login`.

    $ dragoman upload runs/en-ko hub:user/en-ko
    $ dragoman translate -m hub:user/en-ko "A sentence."
    $ dragoman upload runs/en-ko hub:user/en-ko --private
    """

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    "model folder or run folder; -m FOLDER is the same"
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="hub:USER/NAME")]
    "its name on the Hub; an existing model gets a new version"
    private: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "create a private repository; an existing one must be private already"


def main(arguments: list[str]) -> None:
    """Run `dragoman upload`: print what was uploaded on standard error, and the name of the model."""
    options = parse(Options, "upload", folders_first(arguments))
    from dragoman.export.upload import upload_model

    upload = upload_model(options.model, options.name, private=options.private)
    print(upload, file=sys.stderr)
    print(upload.name)
