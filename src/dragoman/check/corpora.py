"""Check corpora before training. Each is read twice: first to learn what is usual in it, then to find what is not."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from dragoman.check.characters import Alphabet
from dragoman.check.cleaning import COLUMNS, Cleaning, Origin, Origins
from dragoman.check.columns import RowBlock, row_blocks
from dragoman.check.detectors import CheckLimits, Hits, detect
from dragoman.check.first_reading import FirstReading, UsualPairs, find_repeats, read_first, reading_of_kept
from dragoman.check.plausibility import Plausibility
from dragoman.check.profile import SHORT, Profile
from dragoman.check.report import LONGEST_EXAMPLE, MAX_EXAMPLES, MAX_LOCATIONS, CheckedCorpus, CheckReport, Example
from dragoman.check.rules import RULES
from dragoman.check.slips import find_slips, realigned
from dragoman.data.corpus import Pair, begins_with_header
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
LEAVE_OUT = {"utf-8", "columns", "record", "fuzzy", "obsolete", "unfinished", "plural", "language", "unmatched"}


class Cleaned(NamedTuple):
    """What cleaning has found, how many pairs it has written, and where the lines stood that it has written."""

    report: CheckReport
    written: int
    origins: Origins


CorpusSets = Mapping[str, tuple[CorpusSpec, ...]]  # "train" first, then "dev" and "test" where there are any
Readings = dict[str, list[FirstReading]]  # of the same sets


def check(
    sets: CorpusSets,
    limits: CheckLimits,
    cleaning: Cleaning | None = None,
    max_locations: int | None = MAX_LOCATIONS,
    readings: Readings | None = None,
    plausibility: Plausibility | None = None,
) -> CheckReport:
    """Return what is wrong with the corpora. With `cleaning`, write the pairs of "train" that no rule drops.

    A corpus that cannot be read to its end is reported, not raised. max_locations: that are kept for each rule, or
    None for all. readings: as `first_readings` returns them. plausibility: what models say of the pairs of "train".
    """
    readings = readings or first_readings(sets)
    usual = UsualPairs(readings["train"])
    report = CheckReport(max_locations=max_locations)
    for index, (name, specs) in enumerate(sets.items()):
        later = [reading.keys for others in list(readings.values())[index + 1 :] for reading in others]
        above = Rows(specs, readings[name], cleaning)
        writing = cleaning if name == "train" else None
        for spec, reading, repeats in zip(specs, readings[name], find_repeats(readings[name], later), strict=True):
            corpus, errors = CheckedCorpus(name, spec), report.count("error")
            report.corpora.append(corpus)
            if writing and report.kept():
                writing.write_break()
            profile, difference = usual.for_corpus(reading)
            judgement = usual.judge(reading)
            moved = judgement.moved if writing and writing.realign else np.zeros(len(reading.pairs), bool)
            findings = [*repeats, *judgement.hits(moved)]
            if not judgement.telling:
                findings += find_slips(reading.lengths, reading.has_text)
            report.slips += [f"{spec.name}: {slip}" for slip in judgement.slips(reading.numbers)]
            if name == "train":
                ratios = np.diff(np.log(reading.lengths + float(SHORT)), axis=1)[:, 0] - profile.usual_log_ratio()
                report.measure(length=(10 * ratios)[reading.has_text])
                if judgement.telling:
                    report.measure(words=(judgement.scores / 5)[reading.has_text])
            if difference:
                report.add("direction", [spec.name], example=difference)
            try:
                read = read_rows(spec, add_problems_to(report, corpus))
                if writing and moved.any():
                    read = realigned(read, judgement.offsets, partial(reject_target, writing, spec))
                for block in row_blocks(read):
                    rows = slice(corpus.read, corpus.read + len(block))
                    if not is_the_same(block, reading, rows, judgement.offsets != 0 if moved.any() else moved):
                        raise DragomanError(f"{spec.name}: changed while it was read; check it again")
                    hits = [
                        Hits("header", header_rows(spec, block)),
                        *detect(block, profile, limits, judgement.unknown[rows], judgement.copied[rows]),
                        *(hits.within(rows) for hits in findings),
                    ]
                    if plausibility and name == "train":
                        judged = plausibility.scores_of((display_path(spec.files[0]), n) for n in block.numbers)
                        hits.append(plausibility.hits(judged))
                        report.measure(plausibility=40 * judged[~np.isnan(judged)])
                        report.rank(extremes(spec, block, judged))
                    drop = add_hits(report, corpus, block, hits)
                    corpus.read += len(block)
                    corpus.pairs += int(block.has_text.sum())
                    corpus.kept += int((block.has_text & ~drop).sum())
                    if writing:
                        writing.write(spec, block, ~drop, hits, above)
                if corpus.read < len(reading.pairs):
                    raise DragomanError(f"{spec.name}: changed while it was read; check it again")
            except DragomanError as error:
                report.add("unreadable", [spec.name], example=str(error))
            else:
                if not corpus.pairs and report.count("error") == errors:
                    report.add("no-pairs", [spec.name], example="" if corpus.rows else f"{spec.name}: nothing in it")
    return report


def extremes(spec: CorpusSpec, block: RowBlock, judged: np.ndarray) -> Iterator[Example]:
    """Yield the least and the most plausible rows of a block, as `judged` (n,) says; NaN for those that were not."""
    known = np.flatnonzero(~np.isnan(judged))
    order = known[judged[known].argsort(kind="stable")]
    for row in dict.fromkeys([*order[:MAX_EXAMPLES].tolist(), *order[::-1][:MAX_EXAMPLES].tolist()]):
        yield example_of(block, row, f"{display_path(spec.files[0])}:{block.numbers[row]}", judged)


def example_of(block: RowBlock, row: int, location: str, scores: np.ndarray | None) -> Example:
    """Return a row of a block as an example, with its score if there are `scores` (n,)."""
    source, target = (column.texts[row][:LONGEST_EXAMPLE] for column in block.columns)
    return Example(location, source, target, None if scores is None else float(scores[row]))


def first_readings(sets: CorpusSets) -> Readings:
    """Read the corpora of all sets for the first time."""
    alphabet = Alphabet()
    return {name: [read_first(spec, alphabet, len(sets) > 1) for spec in specs] for name, specs in sets.items()}


class Rows:
    """Say where the rows of a set stood, by their number in it."""

    def __init__(self, specs: Sequence[CorpusSpec], readings: Sequence[FirstReading], cleaning: Cleaning | None):
        self.specs, self.numbers, self.cleaning = specs, [reading.numbers for reading in readings], cleaning
        self.ends = np.cumsum([len(numbers) for numbers in self.numbers])

    def __getitem__(self, row: int) -> Origin:
        """Return the corpus of a row, and its number there."""
        corpus = int(np.searchsorted(self.ends, row, side="right"))
        number = int(self.numbers[corpus][row - self.ends[corpus]])
        assert self.cleaning
        return self.cleaning.origin(self.specs[corpus], number)


def is_the_same(block: RowBlock, reading: FirstReading, rows: slice, changed: np.ndarray) -> bool:
    """Return whether a block has the rows of the first reading; changed (n,): those that have got another target."""
    if len(reading.pairs[rows]) != len(block):
        return False
    same = reading.pairs[rows] == block.pair_hashes
    same |= changed[rows] & (reading.sources[rows] == block.columns[0].hashes)
    return bool(same.all())


def reject_target(cleaning: Cleaning, spec: CorpusSpec, row: Row) -> None:
    """Reject the target of a row, whose source has got another one."""
    cleaning.reject(("", row.target.replace("\t", " ")), cleaning.origin(spec, row.number), ["slipped"])


def header_rows(spec: CorpusSpec, block: RowBlock) -> np.ndarray:
    """Return (n,), bool: which rows of a block are a header, at most the first."""
    rows = np.zeros(len(block), bool)
    source, target = (column.texts[0] for column in block.columns)
    rows[0] = begins_with_header(spec, Row(block.numbers[0], source, target))
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
        places = np.flatnonzero(rows)
        finding = report.findings.get(rule)
        wanted = len(places) if report.max_locations is None else report.max_locations
        examples = MAX_EXAMPLES - (len(finding.examples) if finding else 0)
        names, locations = corpus.spec.files, []
        some: list[Example] = []
        for row in places[: max(wanted, examples)]:
            # The file in which a row is reported: that of the first hit that has the row.
            hit = next(hit for hit in same if hit.rows[row])
            file = display_path(names[0 if corpus.spec.format else hit.side or 0])
            locations.append(f"{file}:{block.numbers[row]}")
            if len(some) < examples:
                some.append(example_of(block, row, locations[-1], hit.scores))
        report.add(rule, locations, int(rows.sum()))
        report.findings[rule].examples += some
        if RULES[rule].level != "note":
            drop |= rows
            corpus.dropped[rule] += int(rows.sum())
    return drop


def check_and_clean(
    sets: CorpusSets,
    limits: CheckLimits,
    out: Path,
    rejected: Path | None = None,
    realign: bool = False,
    max_locations: int | None = MAX_LOCATIONS,
    plausibility: Plausibility | None = None,
) -> Cleaned:
    """Write the clean pairs to `out`.

    What is usual in a corpus changes when the worst pairs are gone, so the result is checked and cleaned again until
    there is nothing left to drop, but MAX_PASSES times at most; the report counts separately what goes later. Nothing
    is written where no pair is left, nor where a corpus cannot be read to its end, has files of unequal length or
    another direction than the others, because then pairs may be wrong.

    rejected: where the pairs that are dropped are written to. realign: give the sources where one side has slipped
    their targets back, instead of dropping them. plausibility: what models say of the pairs.
    """
    drafts = [draft_of(out, f"{n}.{uuid4().hex}") for n in range(2)]
    audit = draft_of(rejected, uuid4().hex) if rejected else None
    try:
        if audit and rejected:
            with name_errors(rejected, audit):
                audit.write_text("\t".join(COLUMNS) + "\n", encoding="utf-8")
        readings = first_readings(sets)
        first, cleaning = check_into(
            drafts[0], sets, limits, out, readings, audit, realign, None, max_locations, plausibility
        )
        report = first
        if UNFIT & report.findings.keys():
            return Cleaned(report, 0, Origins())
        for again in range(MAX_PASSES - 1):
            if not any(corpus.dropped for corpus in report.corpora if corpus.set == "train") and (again or not realign):
                break
            drafts.reverse()
            draft = {**sets, "train": (CorpusSpec((str(drafts[1]),)),)}
            if realign and not again:
                readings = first_readings(draft)
            else:
                readings["train"] = [reading_of_kept(readings["train"], np.concatenate(cleaning.rows), cleaning.lost)]
            report, cleaning = check_into(drafts[0], draft, limits, out, readings, audit, False, cleaning.written)
            for corpus in report.corpora:
                if corpus.set == "train":
                    first.dropped_later += corpus.dropped
        if report.kept():
            with atomic_file(out, shared=True) as draft_file:
                if plausibility and plausibility.weights:
                    add_weights(drafts[0], draft_file, cleaning.written, plausibility)
                else:
                    drafts[0].replace(draft_file)
            if audit and rejected:
                with atomic_file(rejected, shared=True) as draft_file:
                    audit.replace(draft_file)
        return Cleaned(first, report.kept(), cleaning.written)
    finally:
        for left in filter(None, (*drafts, audit)):
            with contextlib.suppress(OSError):
                left.unlink()


def check_into(
    draft: Path,
    sets: CorpusSets,
    limits: CheckLimits,
    out: Path,
    readings: Readings,
    audit: Path | None = None,
    realign: bool = False,
    origins: Origins | None = None,
    max_locations: int | None = MAX_LOCATIONS,
    plausibility: Plausibility | None = None,
) -> tuple[CheckReport, Cleaning]:
    """Check corpora and write clean pairs, as `check` does, to the file `draft`; add those dropped to `audit`.

    Return the report, and what was written. An OSError about the draft names `out`.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(name_errors(out, draft))
        clean = stack.enter_context(draft.open("w", encoding="utf-8", newline=""))
        rejected = stack.enter_context(audit.open("a", encoding="utf-8", newline="")) if audit else None
        cleaning = Cleaning(clean, rejected, realign, origins)
        cleaning.lost = Profile(readings["train"][0].profile.alphabet)
        return check(sets, limits, cleaning, max_locations, readings, plausibility), cleaning


def add_weights(draft: Path, out: Path, origins: Origins, plausibility: Plausibility) -> None:
    """Write the lines of a draft to `out`, the pairs with their weights in a third column."""
    with draft.open(encoding="utf-8", newline="") as lines, out.open("w", encoding="utf-8", newline="") as file:
        for number, line in enumerate(lines, start=1):
            weight = plausibility.weight_of(origins.origin_of(number))
            file.write(line if line == "\n" else f"{line[:-1]}\t{weight:.4g}\n")


def kept_pairs(sets: CorpusSets, limits: CheckLimits, realign: bool = False) -> list[tuple[Origin, Pair]]:
    """Return the pairs of "train" that no rule drops, with where they stand."""
    with tempfile.TemporaryDirectory() as place:
        clean = Path(place, "clean.tsv")
        _, written, origins = check_and_clean({"train": sets["train"]}, limits, clean, realign=realign)
        lines = clean.read_text(encoding="utf-8").split("\n")[:-1] if written else []
    pairs = (tuple(line.split("\t")) for line in lines)
    return [(origins.origin_of(n), (pair[0], pair[1])) for n, pair in enumerate(pairs, start=1) if len(pair) > 1]
