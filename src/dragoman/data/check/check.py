"""The check of a corpus before anything is learned from it. It reads twice: what is usual, then what is not."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np

from dragoman.data.check.batch import Batch, batches
from dragoman.data.check.judge import Found, Limits, judge
from dragoman.data.check.profile import Profile
from dragoman.data.check.rules import RULES
from dragoman.data.formats import read
from dragoman.data.lines import Problem, Tell
from dragoman.data.spec import CorpusSpec, display_path
from dragoman.errors import DragomanError

PLACES = 5  # that a finding names
UNFIT = {"unreadable", "line-counts"}
NO_LETTERS = re.compile(r"[\W_]+")

Sets = Mapping[str, tuple[CorpusSpec, ...]]  # "train" first, then "dev" and "test" where there are any


@dataclass
class Finding:
    """`count` pairs, or lines, or files; `places` are the first few; `example` says it of the first one."""

    count: int = 0
    places: list[str] = field(default_factory=list)
    example: str = ""


@dataclass
class Part:
    """One corpus of a check: its rows, those with text on both sides, and those with nothing that drops them."""

    set: str
    origin: CorpusSpec
    rows: int = 0
    pairs: int = 0
    kept: int = 0


@dataclass
class CheckReport:
    parts: list[Part] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, name: str, places: list[str], count: int = 0, example: str = "") -> None:
        finding = self.findings.setdefault(name, Finding(example=example))
        finding.count += count or len(places)
        finding.places += places[: PLACES - len(finding.places)]

    def count(self, level: str) -> int:
        return sum(finding.count for name, finding in self.findings.items() if RULES[name].level == level)

    def kept(self, name: str = "train") -> int:
        return sum(part.kept for part in self.parts if part.set == name)


def check(sets: Sets, limits: Limits, clean: TextIO | None = None) -> CheckReport:
    """All that is wrong with the corpora. The pairs of "train" that nothing speaks against go to `clean`, as TSV."""
    profiles = {origin.tag: Profile() for origin in sets["train"]}  # corpora with one tag are of one kind
    looks = {
        name: [look(origin, profiles[origin.tag] if name == "train" else None, len(sets) > 1) for origin in origins]
        for name, origins in sets.items()
    }
    report = CheckReport()
    for place, (name, origins) in enumerate(sets.items()):
        later = [found.keys for others in list(looks.values())[place + 1 :] for found in others]
        for origin, found, known in zip(origins, looks[name], seen_before(looks[name], later), strict=True):
            part = Part(name, origin)
            report.parts.append(part)
            profile = profiles.get(origin.tag) or next(iter(profiles.values()))
            try:
                for batch in batches(read(origin, telling(report))):
                    rows = slice(part.rows, part.rows + len(batch))
                    if not np.array_equal(found.pairs[rows], batch.pairs):
                        raise DragomanError(f"{origin.name}: changed while it was read; check it again")
                    drop = noted(
                        report, origin, batch, [*judge(batch, profile, limits), *(f.within(rows) for f in known)]
                    )
                    part.rows += len(batch)
                    part.pairs += int(batch.has_text.sum())
                    part.kept += int((~drop).sum())
                    if clean and name == "train":
                        write(batch, ~drop, clean)
            except DragomanError as error:
                report.add("unreadable", [origin.name], example=str(error))
            else:
                if not part.pairs:
                    report.add("no-pairs", [origin.name])
    return report


@dataclass
class Look:
    """What the first reading of a corpus keeps of each of its n rows."""

    pairs: np.ndarray  # (n,) hashes
    sources: np.ndarray  # (n,) hashes
    has_text: np.ndarray  # (n,)
    keys: np.ndarray  # (n,) hashes of the letters and digits of the source, 0 for none; or all 0


def look(origin: CorpusSpec, profile: Profile | None, compare: bool) -> Look:
    """Read a corpus for the first time: the profile learns, and each row leaves its hashes, 25 bytes in all."""
    found: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64),) * 4]
    try:
        for batch in batches(read(origin, lambda fault: None)):
            if profile:
                profile.learn(batch)
            keys = np.array([key(text) for text in batch.sides[0].texts] if compare else [0] * len(batch), np.int64)
            found.append((batch.pairs, batch.sides[0].hashes, batch.has_text, keys))
    except DragomanError:
        pass  # the second reading meets and notes it
    pairs, sources, has_text, keys = (np.concatenate(column) for column in zip(*found, strict=True))
    return Look(pairs, sources, has_text.astype(bool), keys)


def key(text: str) -> int:
    letters = NO_LETTERS.sub("", text.casefold())
    return hash(letters) if letters else 0


def seen_before(looks: list[Look], later: list[np.ndarray]) -> list[list[Found]]:
    """For each corpus of a set: its rows that stand further up in the set, or in a set that comes after it."""
    if not looks:
        return []
    has_text = np.concatenate([found.has_text for found in looks])
    keys = np.concatenate([found.keys for found in looks])
    duplicate = further_up(np.concatenate([found.pairs for found in looks]), has_text)
    several = further_up(np.concatenate([found.sources for found in looks]), has_text & ~duplicate)
    overlap = np.isin(keys, np.concatenate(later)) & (keys != 0) if later else np.zeros(len(keys), bool)
    ends = np.cumsum([len(found.pairs) for found in looks])[:-1]
    columns = {"duplicate": duplicate, "several-targets": several, "overlap": overlap}
    splits = [[Found(name, rows) for rows in np.split(column, ends)] for name, column in columns.items()]
    return [list(found) for found in zip(*splits, strict=True)]


def further_up(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """(n,) which of the rows `among` all have a value that one above them has."""
    rows = np.flatnonzero(among)
    order = np.argsort(values[rows], kind="stable")
    ordered = values[rows][order]
    found = np.zeros(len(values), bool)
    found[rows[order[1:][ordered[1:] == ordered[:-1]]]] = True
    return found


def telling(report: CheckReport) -> Tell:
    """What a reader calls: everything is noted, nothing stops."""

    def tell(fault: Problem) -> None:
        name = "byte-order-mark-first" if fault.kind == "byte-order-mark" else fault.kind
        report.add(name, [fault.place], example=fault.text and str(fault))

    return tell


def noted(report: CheckReport, origin: CorpusSpec, batch: Batch, findings: list[Found]) -> np.ndarray:
    """Add the findings of a batch to the report. Returns (n,) which rows they drop."""
    drop = np.zeros(len(batch), bool)
    for name in {found.name: None for found in findings if found.rows.any()}:
        same = [found for found in findings if found.name == name]
        rows = np.logical_or.reduce([found.rows for found in same])
        # The file that a row is seen in: of the first finding that has the row.
        sides = [next(found.side or 0 for found in same if found.rows[row]) for row in np.flatnonzero(rows)[:PLACES]]
        files = [display_path(origin.files[side if len(origin.files) == 2 else 0]) for side in sides]
        numbers = [batch.numbers[row] for row in np.flatnonzero(rows)[:PLACES]]
        places = [f"{file}:{number}" for file, number in zip(files, numbers, strict=True)]
        report.add(name, places, int(rows.sum()))
        if RULES[name].level != "note":
            drop |= rows
    return drop


def write(batch: Batch, keep: np.ndarray, clean: TextIO) -> None:
    sources, targets = (side.texts for side in batch.sides)
    for row in np.flatnonzero(keep):
        # Only texts of other formats can have a tab.
        clean.write("\t".join(text.replace("\t", " ") for text in (sources[row], targets[row])) + "\n")


def check_and_clean(sets: Sets, limits: Limits, out: Path) -> tuple[CheckReport, int]:
    """The report, and how many pairs were written to `out`, in which another check finds nothing to drop.

    What is usual changes a little when the worst has gone, so the result is checked and cleaned until it stays as it
    is. Nothing is written where a corpus cannot be read to its end or has files of unequal length: nobody knows which
    of its pairs belong together. Nor where no pair is left.
    """
    drafts = [out.with_name(f".{out.name}.draft{n}") for n in range(2)]
    try:
        first = report = cleaned(sets, limits, drafts[0])
        if UNFIT & report.findings.keys():
            return report, 0
        while report.kept() < sum(part.rows for part in report.parts if part.set == "train"):
            drafts.reverse()
            report = cleaned({**sets, "train": (CorpusSpec((str(drafts[1]),)),)}, limits, drafts[0])
        if report.kept():
            drafts[0].replace(out)
        return first, report.kept()
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def cleaned(sets: Sets, limits: Limits, draft: Path) -> CheckReport:
    with draft.open("w", encoding="utf-8", newline="") as clean:
        report = check(sets, limits, clean)
        clean.flush()
        os.fsync(clean.fileno())
    return report
