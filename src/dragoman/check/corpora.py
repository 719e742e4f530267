"""Check corpora before training. Each is read twice: first to learn what is usual in it, then to find what is not."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from dragoman.check.columns import RowBlock, row_blocks
from dragoman.check.detectors import CheckLimits, Hits, detect
from dragoman.check.profile import Profile
from dragoman.check.report import MAX_LOCATIONS, CheckedCorpus, CheckReport
from dragoman.check.rules import RULES
from dragoman.data.corpus import OnProblem, Problem, read_rows
from dragoman.data.spec import CorpusSpec, display_path
from dragoman.errors import DragomanError
from dragoman.files import atomic_file, draft_of

UNFIT = {"unreadable", "line-counts"}
NO_LETTERS = re.compile(r"[\W_]+")

CorpusSets = Mapping[str, tuple[CorpusSpec, ...]]  # "train" first, then "dev" and "test" where there are any


def check(sets: CorpusSets, limits: CheckLimits, clean: TextIO | None = None) -> CheckReport:
    """Return what is wrong with the corpora. Write the pairs of "train" that no rule drops to `clean` as TSV.

    A corpus that cannot be read to its end is reported, not raised.
    """
    profiles = {spec.tag: Profile() for spec in sets["train"]}  # corpora with the same tag are of one kind
    hashes = {
        name: [hash_rows(spec, profiles[spec.tag] if name == "train" else None, len(sets) > 1) for spec in specs]
        for name, specs in sets.items()
    }
    report = CheckReport()
    for index, (name, specs) in enumerate(sets.items()):
        later = [row_hashes.keys for others in list(hashes.values())[index + 1 :] for row_hashes in others]
        for spec, row_hashes, repeats in zip(specs, hashes[name], find_repeats(hashes[name], later), strict=True):
            corpus = CheckedCorpus(name, spec)
            report.corpora.append(corpus)
            profile = profiles.get(spec.tag) or next(iter(profiles.values()))
            try:
                for block in row_blocks(read_rows(spec, add_problems_to(report))):
                    rows = slice(corpus.rows, corpus.rows + len(block))
                    if not np.array_equal(row_hashes.pairs[rows], block.pair_hashes):
                        raise DragomanError(f"{spec.name}: changed while it was read; check it again")
                    hits = [*detect(block, profile, limits), *(repeat.within(rows) for repeat in repeats)]
                    drop = add_hits(report, spec, block, hits)
                    corpus.rows += len(block)
                    corpus.pairs += int(block.has_text.sum())
                    corpus.kept += int((~drop).sum())
                    if clean and name == "train":
                        write_rows(block, ~drop, clean)
            except DragomanError as error:
                report.add("unreadable", [spec.name], example=str(error))
            else:
                if not corpus.pairs:
                    report.add("no-pairs", [spec.name])
    return report


@dataclass
class RowHashes:
    """Hold what the first reading of a corpus keeps of each of its n rows: 25 bytes."""

    pairs: np.ndarray  # (n,) of both sides
    sources: np.ndarray  # (n,)
    has_text: np.ndarray  # (n,)
    keys: np.ndarray  # (n,) of the letters and digits of the source, 0 for none; or all 0


def hash_rows(spec: CorpusSpec, profile: Profile | None, compare: bool) -> RowHashes:
    """Read a corpus for the first time: let the profile learn from it, if one is given, and return its hashes.

    The keys, by which sets are compared, are computed only with `compare`, else 0. A corpus that cannot be read to its
    end gives the rows before.
    """
    blocks: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64),) * 4]
    try:
        for block in row_blocks(read_rows(spec, lambda problem: None)):
            if profile:
                profile.learn(block)
            sources = block.columns[0]
            keys = np.array([letters_hash(text) for text in sources.texts] if compare else [0] * len(block), np.int64)
            blocks.append((block.pair_hashes, sources.hashes, block.has_text, keys))
    except DragomanError:
        pass  # the second reading meets it again and reports it
    pairs, source_hashes, has_text, all_keys = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return RowHashes(pairs, source_hashes, has_text.astype(bool), all_keys)


def letters_hash(text: str) -> int:
    """Return a hash of the letters and digits of a text, whatever their case; 0 where it has none.

    Like all of Python's hashes of text, it differs from process to process.
    """
    letters = NO_LETTERS.sub("", text.casefold())
    return hash(letters) if letters else 0


def find_repeats(hashes: list[RowHashes], later: list[np.ndarray]) -> list[list[Hits]]:
    """Return, for each corpus of a set, the hits of the rules 'duplicate', 'several-targets' and 'overlap'.

    hashes: those of each corpus. A pair is a duplicate, or its source has several targets, if a row above it in the set
    has the same pair or source. It overlaps if its key is in `later`, the keys of the sets that come after this one.
    """
    if not hashes:
        return []
    has_text = np.concatenate([rows.has_text for rows in hashes])
    keys = np.concatenate([rows.keys for rows in hashes])
    duplicate = repeat_a_row_above(np.concatenate([rows.pairs for rows in hashes]), has_text)
    several = repeat_a_row_above(np.concatenate([rows.sources for rows in hashes]), has_text & ~duplicate)
    overlap = np.isin(keys, np.concatenate(later)) & (keys != 0) if later else np.zeros(len(keys), bool)
    ends = np.cumsum([len(rows.pairs) for rows in hashes])[:-1]
    by_rule = {"duplicate": duplicate, "several-targets": several, "overlap": overlap}
    splits = [[Hits(rule, rows) for rows in np.split(all_rows, ends)] for rule, all_rows in by_rule.items()]
    return [list(of_corpus) for of_corpus in zip(*splits, strict=True)]


def repeat_a_row_above(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return (n,), bool: which rows have the value of a row above.

    values (n,); among (n,), bool: the rows that count, on both sides of the comparison.
    """
    rows = np.flatnonzero(among)
    order = np.argsort(values[rows], kind="stable")
    ordered = values[rows][order]
    repeated = np.zeros(len(values), bool)
    repeated[rows[order[1:][ordered[1:] == ordered[:-1]]]] = True
    return repeated


def add_problems_to(report: CheckReport) -> OnProblem:
    """Return a callback for `read_rows` that adds each problem to the report and raises nothing."""

    def add(problem: Problem) -> None:
        rule = "byte-order-mark-first" if problem.kind == "byte-order-mark" else problem.kind
        report.add(rule, [problem.location], example=problem.text and str(problem))

    return add


def add_hits(report: CheckReport, spec: CorpusSpec, block: RowBlock, hits: list[Hits]) -> np.ndarray:
    """Add the hits of a block to the report.

    Return (n,), bool: the rows with an error or a warning, which are dropped.
    """
    drop = np.zeros(len(block), bool)
    for rule in {hit.rule: None for hit in hits if hit.rows.any()}:
        same = [hit for hit in hits if hit.rule == rule]
        rows = np.logical_or.reduce([hit.rows for hit in same])
        # The file in which a row is reported: that of the first hit that has the row.
        sides = [next(hit.side or 0 for hit in same if hit.rows[row]) for row in np.flatnonzero(rows)[:MAX_LOCATIONS]]
        files = [display_path(spec.files[side if len(spec.files) == 2 else 0]) for side in sides]
        numbers = [block.numbers[row] for row in np.flatnonzero(rows)[:MAX_LOCATIONS]]
        locations = [f"{file}:{number}" for file, number in zip(files, numbers, strict=True)]
        report.add(rule, locations, int(rows.sum()))
        if RULES[rule].level != "note":
            drop |= rows
    return drop


def write_rows(block: RowBlock, keep: np.ndarray, clean: TextIO) -> None:
    """Write the rows with True in `keep` (n,) to `clean` as TSV; a tab inside a text becomes a space."""
    sources, targets = (column.texts for column in block.columns)
    for row in np.flatnonzero(keep):
        # Only texts of other formats can have a tab.
        clean.write("\t".join(text.replace("\t", " ") for text in (sources[row], targets[row])) + "\n")


def check_and_clean(sets: CorpusSets, limits: CheckLimits, out: Path) -> tuple[CheckReport, int]:
    """Write the clean pairs to `out`; return the report of the corpora and the number of pairs written.

    What is usual in a corpus changes when the worst pairs are gone, so the result is checked and cleaned again until
    there is nothing left to drop. Nothing is written where no pair is left, nor where a corpus cannot be read to its
    end or has files of unequal length, because then lines may be paired wrongly.
    """
    drafts = [draft_of(out, str(n)) for n in range(2)]
    try:
        first = report = check_into(drafts[0], sets, limits)
        if UNFIT & report.findings.keys():
            return report, 0
        while report.kept() < sum(corpus.rows for corpus in report.corpora if corpus.set == "train"):
            drafts.reverse()
            report = check_into(drafts[0], {**sets, "train": (CorpusSpec((str(drafts[1]),)),)}, limits)
        if report.kept():
            with atomic_file(out) as draft:
                drafts[0].replace(draft)
        return first, report.kept()
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def check_into(draft: Path, sets: CorpusSets, limits: CheckLimits) -> CheckReport:
    """Check the corpora as `check` does, and write the clean pairs to the file `draft`; return the report."""
    with draft.open("w", encoding="utf-8", newline="") as clean:
        return check(sets, limits, clean)
