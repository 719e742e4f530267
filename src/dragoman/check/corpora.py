"""Check corpora before training. Each is read twice: first to learn what is usual in it, then to find what is not."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO
from uuid import uuid4

import numpy as np

from dragoman.check.characters import Alphabet
from dragoman.check.columns import RowBlock, row_blocks
from dragoman.check.detectors import CheckLimits, Hits, detect
from dragoman.check.first_reading import UsualPairs, find_repeats, read_first
from dragoman.check.report import MAX_LOCATIONS, CheckedCorpus, CheckReport
from dragoman.check.rules import RULES
from dragoman.check.slips import find_slips
from dragoman.data.corpus import begins_with_header
from dragoman.data.formats import read_rows
from dragoman.data.lines import OnProblem, Problem, Row, display_path
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError
from dragoman.storage.writing import atomic_file, draft_of, name_errors

# Over a corpus that is cleaned; three are usual. Where the lengths of the two sides have nothing to do with each other,
# each pass drops a few more rows by chance.
MAX_PASSES = 10
UNFIT = {"unreadable", "line-counts", "direction"}
# Problems of which each is a row less.
LEAVE_OUT = {"utf-8", "columns", "record", "fuzzy", "obsolete", "unfinished", "plural", "language"}

CorpusSets = Mapping[str, tuple[CorpusSpec, ...]]  # "train" first, then "dev" and "test" where there are any


def check(sets: CorpusSets, limits: CheckLimits, clean: TextIO | None = None) -> CheckReport:
    """Return what is wrong with the corpora. Write the pairs of "train" that no rule drops to `clean` as TSV.

    A corpus that cannot be read to its end is reported, not raised.
    """
    alphabet = Alphabet()
    readings = {name: [read_first(spec, alphabet, len(sets) > 1) for spec in specs] for name, specs in sets.items()}
    usual = UsualPairs(readings["train"])
    report = CheckReport()
    for index, (name, specs) in enumerate(sets.items()):
        later = [reading.keys for others in list(readings.values())[index + 1 :] for reading in others]
        for spec, reading, repeats in zip(specs, readings[name], find_repeats(readings[name], later), strict=True):
            corpus, errors = CheckedCorpus(name, spec), report.count("error")
            report.corpora.append(corpus)
            if clean and name == "train" and report.kept():
                clean.write("\n")  # as the end of a file, a blank line ends a document
            profile, difference = usual.for_corpus(reading)
            judgement = usual.judge(reading)
            findings = [*repeats, *judgement.hits(), *([] if judgement.telling else find_slips(reading.lengths, reading.has_text))]
            if difference:
                report.add("direction", [spec.name], example=difference)
            try:
                for block in row_blocks(read_rows(spec, add_problems_to(report, corpus))):
                    rows = slice(corpus.read, corpus.read + len(block))
                    if not np.array_equal(reading.pairs[rows], block.pair_hashes):
                        raise DragomanError(f"{spec.name}: changed while it was read; check it again")
                    hits = [
                        Hits("header", header_rows(spec, block)),
                        *detect(block, profile, limits, judgement.unknown[rows]),
                        *(hits.within(rows) for hits in findings),
                    ]
                    drop = add_hits(report, corpus, block, hits)
                    corpus.read += len(block)
                    corpus.pairs += int(block.has_text.sum())
                    corpus.kept += int((block.has_text & ~drop).sum())
                    if clean and name == "train":
                        write_rows(block, ~drop, clean)
                if corpus.read < len(reading.pairs):
                    raise DragomanError(f"{spec.name}: changed while it was read; check it again")
            except DragomanError as error:
                report.add("unreadable", [spec.name], example=str(error))
            else:
                if not corpus.pairs and report.count("error") == errors:
                    report.add("no-pairs", [spec.name], example="" if corpus.rows else f"{spec.name}: nothing in it")
    return report


def header_rows(spec: CorpusSpec, block: RowBlock) -> np.ndarray:
    """Return (n,), bool: which rows of a block are a header, at most the first."""
    rows = np.zeros(len(block), bool)
    rows[0] = begins_with_header(spec, Row(block.numbers[0], *(column.texts[0] for column in block.columns)))
    return rows


def add_problems_to(report: CheckReport, corpus: CheckedCorpus) -> OnProblem:
    """Return a callback for `read_rows` that adds each problem to the report, and raises nothing.

    It notes in `corpus` the numbers of the rows that the problems leave out.
    """

    def add(problem: Problem) -> None:
        rule = "byte-order-mark-first" if problem.kind == "byte-order-mark" else problem.kind
        report.add(rule, [problem.location], example=problem.text and str(problem))
        if problem.kind in LEAVE_OUT:
            corpus.unread.add(problem.number)

    return add


def add_hits(report: CheckReport, corpus: CheckedCorpus, block: RowBlock, hits: list[Hits]) -> np.ndarray:
    """Add the hits of a block to report and corpus. Return (n,), bool: the rows to drop, with an error or a warning."""
    drop = np.zeros(len(block), bool)
    for rule in {hit.rule: None for hit in hits if hit.rows.any()}:
        same = [hit for hit in hits if hit.rule == rule]
        rows = np.logical_or.reduce([hit.rows for hit in same])
        # The file in which a row is reported: that of the first hit that has the row.
        sides = [next(hit.side or 0 for hit in same if hit.rows[row]) for row in np.flatnonzero(rows)[:MAX_LOCATIONS]]
        names = corpus.spec.files
        files = [display_path(names[side if len(names) == 2 else 0]) for side in sides]
        numbers = [block.numbers[row] for row in np.flatnonzero(rows)[:MAX_LOCATIONS]]
        locations = [f"{file}:{number}" for file, number in zip(files, numbers, strict=True)]
        report.add(rule, locations, int(rows.sum()))
        if RULES[rule].level != "note":
            drop |= rows
            corpus.dropped[rule] += int(rows.sum())
    return drop


def write_rows(block: RowBlock, keep: np.ndarray, clean: TextIO) -> None:
    """Write the rows with True in `keep` (n,) to `clean` as TSV, and those without text as the blank lines they are."""
    sources, targets = (column.texts for column in block.columns)
    for row in np.flatnonzero(keep):
        clean.write(f"{sources[row]}\t{targets[row]}\n" if block.has_text[row] else "\n")


def check_and_clean(sets: CorpusSets, limits: CheckLimits, out: Path) -> tuple[CheckReport, int]:
    """Write the clean pairs to `out`; return the report of the corpora and the number of pairs written.

    What is usual in a corpus changes when the worst pairs are gone, so the result is checked and cleaned again until
    there is nothing left to drop, but MAX_PASSES times at most; the report counts separately what goes later. Nothing
    is written where no pair is left, nor where a corpus cannot be read to its end, has files of unequal length or
    another direction than the others, because then pairs may be wrong.
    """
    drafts = [draft_of(out, f"{n}.{uuid4().hex}") for n in range(2)]
    try:
        first = report = check_into(drafts[0], sets, limits, out)
        if UNFIT & report.findings.keys():
            return report, 0
        for _ in range(MAX_PASSES - 1):
            if not any(corpus.dropped for corpus in report.corpora if corpus.set == "train"):
                break
            drafts.reverse()
            report = check_into(drafts[0], {**sets, "train": (CorpusSpec((str(drafts[1]),)),)}, limits, out)
            for corpus in report.corpora:
                if corpus.set == "train":
                    first.dropped_later += corpus.dropped
        if report.kept():
            with atomic_file(out, shared=True) as draft:
                drafts[0].replace(draft)
        return first, report.kept()
    finally:
        for draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink()


def check_into(draft: Path, sets: CorpusSets, limits: CheckLimits, out: Path) -> CheckReport:
    """Check corpora and write clean pairs, as `check` does, to the file `draft`. An OSError about it names `out`."""
    with name_errors(out, draft), draft.open("w", encoding="utf-8", newline="") as clean:
        return check(sets, limits, clean)
