"""dragoman evaluate"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import Model, Search, parse
from dragoman.config import SearchConfig
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """BLEU and chrF of a model's translations of a test set, with the sacreBLEU signatures.

    $ dragoman evaluate -m runs/en-ko test.tsv
    $ dragoman evaluate -m runs/en-ko test.en test.ko --json
    """

    model: Model
    "model folder or run folder"
    test: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE ...")]
    "sentence pairs in any form that training reads (docs/corpora.md)"
    search: Search = SearchConfig()
    tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
    "how BLEU splits text into words"
    output: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "also write the translations, one per line, to this file"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    options = parse(Options, "evaluate", arguments)
    if not options.test:
        raise UsageError("name a test set: a file with sentence pairs, or a source file and a target file")
    from dragoman.corpus import corpora, read_corpus
    from dragoman.evaluation import evaluate
    from dragoman.translator import Translator

    if options.output and not options.output.parent.is_dir():
        raise UsageError(f"{options.output}: no such folder")
    for file in (file for origin in corpora(options.test) for file in origin.files):
        if options.output and options.output.exists() and Path(file).exists() and options.output.samefile(file):
            raise UsageError(f"{options.output}: that is the test set; give the translations another name")
    corpus = read_corpus(options.test)
    for note in corpus.notes():
        print(note, file=sys.stderr)
    sources, references = zip(*corpus.pairs, strict=True)
    translator = Translator.load(options.model, options.search)
    translations = [translation.text for translation in translator.translate(sources, corpus.tags)]
    if options.output:
        options.output.write_text("".join(text + "\n" for text in translations), encoding="utf-8")
    scores = evaluate(translations, references, options.tokenize)
    print(json.dumps(scores.as_dict(), ensure_ascii=False) if options.json else scores)
