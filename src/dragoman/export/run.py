"""Export a model: write it for another program, and prove that it translates there as it does here."""

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dragoman.config.fields import check_argument, check_choice
from dragoman.data.batches import Ids
from dragoman.data.corpus import read_corpus
from dragoman.data.spec import without_folders
from dragoman.errors import DragomanError, UsageError, plural
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.export.ctranslate2 import CTRANSLATE2
from dragoman.export.huggingface import HUGGING_FACE
from dragoman.export.model_folder import copy_model
from dragoman.export.onnx import ONNX
from dragoman.export.program import check_program
from dragoman.export.readme import write_readme
from dragoman.export.target import Exported, Target
from dragoman.export.web import WEB
from dragoman.interop.ctranslate2.conversion import rounded_to_float16
from dragoman.interop.verification import SOURCES, Agreement, Copy, Mismatch, dealt, made_up, read_sample, verify
from dragoman.interop.weights import UNSAYABLE
from dragoman.model import Model
from dragoman.model_folder import copy_records, fetch_model, read_model
from dragoman.storage.writing import new_folder
from dragoman.text.tags import DefaultTags
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

TARGETS: dict[str, Target] = {"ctranslate2": CTRANSLATE2, "onnx": ONNX, "huggingface": HUGGING_FACE, "web": WEB}
SHARED = "dragoman"  # as a model folder, which needs no check but its manifest
MOST_LOST = 0.5  # BLEU that int8 may cost


@dataclass(frozen=True)
class Quality:
    """What rounding to int8 costs: BLEU and chrF of the model and of its export on the same pairs."""

    test: str  # the names of the files
    beam: int  # of the searches
    model: Scores
    export: Scores

    def __str__(self) -> str:
        scores = ", ".join(
            f"{before.name} {before.value:.1f} -> {after.value:.1f}"
            for before, after in ((self.model.bleu, self.export.bleu), (self.model.chrf, self.export.chrf))
        )
        search = f"beam {self.beam}" if self.beam > 1 else "greedy search"
        pairs = plural(self.model.sentences, "pair")
        return f"int8 on {self.test}, {pairs}, {search}: {scores} ({self.model.bleu.signature})"


@dataclass(frozen=True)
class Report:
    """How an export was checked, and how large it is."""

    agreement: Agreement | None
    "of the weights in float32 with the model; in float16 with the model rounded to it; None for a copy of the model"
    quality: Quality | None  # of int8
    program: str  # how far the program in the README translates as the model does
    bytes: int  # of all files

    def __str__(self) -> str:
        checked = [str(part) for part in (self.agreement, self.program, self.quality) if part]
        checked = checked or ["the same files, without the state of training"]
        return "\n".join([*checked, f"{self.bytes / 1e6:,.1f} MB"])


def export_model(
    model: str | Path,
    to: str,
    out: str | Path,
    *,
    compute_type: str | None = None,
    sample: str | Path | None = None,
    test: Sequence[str] = (),
) -> Report:
    """Write a model for another program into the new folder `out`, and prove that it translates as the model does.

    model: a model folder or run folder; to: 'ctranslate2', 'onnx', 'huggingface' or 'web', or 'dragoman' for a copy of
    the model folder without the state of training; compute_type: how weights are stored, 'float32', 'float16' or
    'int8', by default the first that the target has; sample: a file with a text in each line, the first 200 of which
    are translated for the comparison, by default made-up ones; test: sentence pairs, as words that name a corpus, on
    which int8 is measured: it must not lose more than 0.5 BLEU.

    `out` is whole or not there. Raise UsageError where `out` exists and for wrong arguments; DragomanError where the
    model is damaged or does not fit the target, a package is missing, or the export does not translate as the model.
    """
    for name, value in (("model", model), ("out", out)):
        check_argument(name, value, str | Path)
    check_choice("to", to, (*TARGETS, SHARED))
    out = Path(out)
    if out.exists():
        raise UsageError(f"{out}: exists already; choose another name")
    if to == SHARED:
        if compute_type or sample or test:
            raise UsageError(f"--to {SHARED} copies a model as it is: leave out --compute-type, --sample and --test")
        folder = fetch_model(Path(model))
        read_model(folder)
        return Report(None, None, "", copy_model(folder, out))
    target = TARGETS[to]
    compute_type = compute_type or target.compute_types[0]
    if compute_type not in target.compute_types:
        raise UsageError(f"--to {to} stores weights in {' or '.join(target.compute_types)}, not in {compute_type}")
    if compute_type == "int8" and not test:
        raise UsageError("int8 rounds the weights, so its quality is measured: give --test with sentence pairs")
    if test and compute_type != "int8":
        raise UsageError(f"--test measures what int8 costs; {compute_type} is compared word for word")
    folder = fetch_model(Path(model))
    exported = Exported(*read_model(folder), DefaultTags.load(folder))
    exported.tokenizers.source.tag_ids(exported.tags.source)  # raises for an unknown one
    exported.tokenizers.target.tag_ids(exported.tags.target)
    forbid(exported.model, exported.tokenizers.target.suppressed)
    target.check(exported)
    tokenizer, longest = exported.tokenizers.source, exported.model.config.max_positions
    sources = read_sample(sample, tokenizer, longest) if sample else made_up(len(tokenizer), SOURCES, longest)
    try:
        with new_folder(out) as draft:
            agreement = write_checked(target, exported, sources, draft, compute_type)
            copy_records(folder, draft, target.records)
            quality = None
            if compute_type == "int8":
                quality = measure(exported, target, target.open(draft, exported, compute_type), test)
            usage = target.usage(exported, compute_type)
            program = check_program(target, exported, draft, compute_type, usage, sources)
            size = sum(file.stat().st_size for file in draft.rglob("*") if file.is_file())
            report = Report(agreement, quality, program, size)
            write_readme(draft, out.name, target.title, folder, usage, str(report))
    except Mismatch as error:
        raise DragomanError(f"{out}: not written: the export does not translate as {folder} does: {error}") from None
    return report


def forbid(model: Model, ids: Sequence[int]) -> None:
    """Make ids unlikely by their bias, in place, where the output has one: other programs see the weights alone."""
    if ids and model.output.bias is not None:
        with torch.no_grad():
            model.output.bias[list(ids)] = UNSAYABLE


def dealt_pairs(exported: Exported) -> tuple[list[Ids], list[Ids]]:
    """Return as many made-up sources as targets, which together contain every id of either side."""
    longest, (source, target) = exported.model.config.max_positions, exported.tokenizers
    sources, targets = dealt(len(source), longest), dealt(len(target), longest, seed=1)
    count = max(len(sources), len(targets))
    several = (list(itertools.islice(itertools.cycle(texts), count)) for texts in (sources, targets))
    return next(several), next(several)


def write_checked(
    target: Target, exported: Exported, sources: Sequence[Ids], draft: Path, compute_type: str
) -> Agreement:
    """Write a model into the folder `draft` and return how far it agrees with the model. Raise Mismatch where not.

    Whatever the type of the weights, the model is first written and checked in float32: a wrong weight would drown in
    what int8 rounds. With float16, the draft is also compared with the model rounded to it.
    """
    pairs = dealt_pairs(exported)

    def check(folder: Path, stored: str, expected: Model) -> Agreement:
        target.write(exported, folder, stored)
        target.check_subwords(folder, exported, sources)
        return verify(expected, target.open(folder, exported, stored), sources, pairs)

    if compute_type == "float32":
        return check(draft, compute_type, exported.model)
    with tempfile.TemporaryDirectory(dir=draft.parent, prefix=f"{draft.name}.") as exact:
        agreement = check(Path(exact), "float32", exported.model)
    if compute_type == "float16":
        return check(draft, compute_type, rounded_to_float16(exported.model))
    target.write(exported, draft, compute_type)
    return agreement


def measure(exported: Exported, target: Target, engine: Copy, test: Sequence[str]) -> Quality:
    """Return the scores of a model and of its export on the pairs of a corpus.

    Raise Mismatch where the export loses more than MOST_LOST BLEU.
    """
    corpus, tags = read_corpus(test), exported.tags
    sources, references = zip(*corpus.pairs, strict=True)
    native = Translator(
        exported.model, exported.tokenizers, target.search, NO_SAFEGUARDS, tag=tags.source, target_tag=tags.target
    )
    scores = []
    for translator in (native, native.replace(engine=engine)):
        translations = translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
        scores.append(evaluate([translation.text for translation in translations], references))
    quality = Quality(without_folders(test), target.search.beam, *scores)
    if quality.model.bleu.value - quality.export.bleu.value > MOST_LOST:
        advice = "try --compute-type float32, or --test with more pairs"
        raise Mismatch(f"{quality}: more than {MOST_LOST} BLEU are lost; {advice}")
    return quality
