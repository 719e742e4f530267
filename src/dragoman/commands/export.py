"""dragoman export"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import folders_first, parse, set_threads


@dataclass(frozen=True)
class Options:
    """Write a model for another program, and prove that it translates there as it does here; or for other people.

    The new folder has all that translating needs, and a README with a program that does it. It is compared with the
    model before it is there: probabilities of words, the words of a greedy search and of 4 beams, and what the program
    says. With --to dragoman it is a model folder, without what only training needs: most of a checkpoint.

    $ dragoman export runs/en-ko --to dragoman exports/en-ko-model
    $ dragoman export runs/en-ko --to ctranslate2 exports/en-ko
    $ dragoman export runs/en-ko --to onnx exports/en-ko-onnx --sample source.txt
    $ dragoman export runs/en-ko --to huggingface exports/en-ko-hf
    $ dragoman export runs/en-ko --to web exports/en-ko-page --test test.tsv
    $ dragoman export runs/en-ko --to onnx exports/en-ko-int8 --compute-type int8 --test test.tsv
    """

    model: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
    "model folder, run folder or hub:USER/NAME; -m FOLDER is the same"
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    "new folder"
    to: Literal["dragoman", "ctranslate2", "onnx", "huggingface", "web"]
    "dragoman, to pass on; ctranslate2, usually fastest on CPUs; onnx; huggingface, for transformers; web, for browsers"
    compute_type: Literal["float32", "float16", "int8"] | None = None
    "type of the weights; default: float32, and int8 for web. float16 is for ctranslate2 only"
    sample: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "text to compare the export with the model on, a source in each line; default: made-up sources"
    test: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")] = ()
    "sentence pairs to measure int8 on, in any format that training reads; more than 0.5 BLEU lost is an error"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman export`: write a folder, print how it was checked on standard error, and its name."""
    options = parse(Options, "export", folders_first(arguments))
    set_threads(options.threads)
    from dragoman.export.run import export_model
    from dragoman.runtime.signals import exit_on_signals

    with exit_on_signals():  # so that a draft is deleted
        report = export_model(
            options.model,
            options.to,
            options.out,
            compute_type=options.compute_type,
            sample=options.sample,
            test=options.test,
        )
    print(report, file=sys.stderr)
    print(options.out)
