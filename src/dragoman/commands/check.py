"""Check sentence pairs: `dragoman check`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dragoman.commands import parse, print_json
from dragoman.errors import DragomanError, UsageError, plural

if TYPE_CHECKING:
    from dragoman.check.detectors import CheckLimits
    from dragoman.check.plausibility import Plausibility
    from dragoman.check.report import CheckedCorpus, CheckReport, Occurrences
    from dragoman.data.spec import CorpusSpec

Words = tyro.conf.arg(metavar="CORPUS ...")


@dataclass(frozen=True)
class Options:
    """Find what is wrong with sentence pairs, where, and what to do about it, before you train.

    Exit code 1 if there are errors (training stops there) or warnings (such pairs make a model worse), otherwise 0.

    $ dragoman check pairs.tsv
    $ dragoman check train.en train.ko --dev dev.tsv --test test.tsv --write-clean clean.tsv
    $ dragoman check train.tsv --write-clean clean.tsv --rejected rejected.tsv --realign --report check.html
    $ dragoman check crawled.tsv --learn --write-clean clean.tsv --rejected rejected.tsv
    $ dragoman check memory.tmx columns=en,de news.jsonl.gz columns=translation.en,translation.de --json
    """

    corpora: Annotated[tyro.conf.Positional[tuple[str, ...]], Words]
    "pairs (TSV, CSV, JSONL, Parquet, Arrow, TMX, PO, XLIFF, TS, XCSTRINGS), or two texts; plain, .gz, .zst or .zip"
    dev: Annotated[tuple[str, ...], Words] = ()
    "dev pairs: checked as well, also for overlap with the training pairs"
    test: Annotated[tuple[str, ...], Words] = ()
    "test pairs: checked in the same way"
    write_clean: Annotated[Path | None, tyro.conf.arg(metavar="OUT.tsv")] = None
    "write the pairs without errors or warnings to this file"
    rejected: Annotated[Path | None, tyro.conf.arg(metavar="OUT.tsv")] = None
    "with --write-clean, write the pairs that it drops to this file, with line, reasons and score"
    realign: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --write-clean, give sources their targets back where one side has slipped by some lines"
    model: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    "let this model from source to target say which pairs are implausible, and drop those, too"
    learn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "let four small models learn from the pairs, and each judge those that it has not seen, in both directions"
    minutes: float = 10.0
    "with --learn, minutes until all four have learned; as many learn at once as there are cores"
    keep: float | None = None
    "with --model or --learn, keep this share of the pairs, such as 0.95, instead of those unlike wrong pairs"
    weights: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """with --model or --learn and --write-clean, write beside each pair how probable it is that it is right, instead of
    dropping it; training reads that with weight-column=3"""
    report: Annotated[Path | None, tyro.conf.arg(metavar="OUT.html")] = None
    "write a page with counts, examples and distributions, in English and Korean, which needs no network"
    max_ratio: float = 3.0
    "maximum ratio of the lengths of the two sides, as a multiple of this corpus's median"
    max_length: int = 2000
    "maximum number of characters on a side"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman check`: print what is wrong with the corpora, and write the clean pairs if asked for.

    Raise DragomanError where there is an error or a warning, so that the exit code is 1.
    """
    options = parse(Options, "check", arguments)
    from dragoman.check.corpora import check, check_and_clean
    from dragoman.check.detectors import CheckLimits
    from dragoman.check.page import write_page
    from dragoman.check.report import MAX_LOCATIONS
    from dragoman.data.lines import FOLDER, no_such_file, place_of
    from dragoman.data.spec import parse_corpora
    from dragoman.runtime.signals import exit_on_signals

    words = {"train": options.corpora, "dev": options.dev, "test": options.test}
    sets = {name: parse_corpora(given) for name, given in words.items() if given or name == "train"}
    if not sets["train"]:
        raise UsageError("give a corpus: a file of pairs, or a source file and a target file")
    files = [Path(file) for specs in sets.values() for spec in specs for file in spec.files]
    for file in files:
        if not place_of(file)[0].is_file():
            reason = "it is read twice, so it must be a regular file" if file.exists() else no_such_file(str(file))
            if file.is_dir():
                reason = FOLDER
            raise DragomanError(f"{file}: {reason}")
    limits = CheckLimits(options.max_ratio, options.max_length)
    clean = options.write_clean
    written = None
    max_locations = None if options.json else MAX_LOCATIONS
    for name, wanted in (("--rejected", options.rejected), ("--realign", options.realign)):
        if wanted and not clean:
            raise UsageError(f"{name} needs --write-clean, which drops pairs")
    if options.report:
        check_place(options.report, ".html", files)
    if options.model and options.learn:
        raise UsageError("--model and --learn are two ways to judge pairs; give one of them")
    if options.keep is not None and not (0 < options.keep <= 1 and (options.model or options.learn)):
        raise UsageError(f"--keep is a share above 0, at most 1, and needs --model or --learn, not {options.keep}")
    if options.weights and (options.keep is not None or not clean or not (options.model or options.learn)):
        raise UsageError("--weights needs --write-clean and --model or --learn, and leaves --keep nothing to drop")
    if clean:
        check_output(clean, files, sets["train"])
        if options.rejected:
            check_place(options.rejected, ".tsv", [*files, clean])
    with exit_on_signals():  # so that drafts are deleted
        doubts = find_doubts(options, sets, limits) if options.model or options.learn else None
        if clean:
            report, written, _ = check_and_clean(
                sets, limits, clean, options.rejected, options.realign, max_locations, doubts
            )
        else:
            report = check(sets, limits, max_locations=max_locations, plausibility=doubts)
    if options.report:
        write_page(options.report, report)
    if options.json:
        print_json(as_json(report, clean, written))
    else:
        print_report(report, clean, written)
    errors, warnings = report.count("error"), report.count("warning")
    if errors or warnings:
        sys.stdout.flush()
        raise DragomanError(f"found {plural(errors, 'error')} and {plural(warnings, 'warning')}")


def find_doubts(
    options: Options, sets: "dict[str, tuple[CorpusSpec, ...]]", limits: "CheckLimits"
) -> "Plausibility | None":
    """Let models judge the pairs that the rules keep; return None where that brings nothing, and say so."""
    import tempfile

    import numpy as np

    from dragoman.check.corpora import kept_pairs
    from dragoman.check.plausibility import Plausibility, least_believed, least_kept, shares_right, tells_apart
    from dragoman.model_folder import fetch_model
    from dragoman.runtime.threads import granted_cores
    from dragoman.synthesis.plausibility import judge, learn

    def announce(text: str) -> None:
        print(f"check: {text}", file=sys.stderr)

    tags = {(spec.tag, spec.target_tag) for spec in sets["train"]}
    if len(tags) > 1 or (options.learn and tags != {("", "")}):
        raise UsageError("--model judges corpora with one tag, and --learn those without: check them one at a time")
    kept = kept_pairs(sets, limits, options.realign)
    pairs = [pair for _, pair in kept]
    if options.learn:
        with tempfile.TemporaryDirectory() as place:
            scores, wrong = learn(pairs, Path(place), options.minutes, granted_cores(), announce)
    else:
        scores, wrong = judge(fetch_model(Path(options.model or "")), pairs, tags.pop())
    known, wrong = ~np.isnan(scores), wrong[~np.isnan(wrong)]
    if not known.any() or not len(wrong):
        announce("too few pairs to judge")
        return None
    weights = shares_right(scores[known], wrong) if options.weights else None
    least = least_kept(scores[known], options.keep) if options.keep else least_believed(scores[known], wrong)
    if not tells_apart(scores[known], wrong):
        more = "more --minutes may help" if options.learn else "is it one for these languages and texts?"
        judge_name = "the models" if options.learn else "the model"
        announce(f"{judge_name} cannot tell these pairs from wrong ones; {more}")
    elif not least:
        announce("nothing to gain here: hardly a pair that the rules keep is as implausible as a wrong one")
    origins = (origin for (origin, _), judged in zip(kept, known, strict=True) if judged)
    judged_scores = dict(zip(origins, scores[known].tolist(), strict=True))
    return Plausibility(judged_scores, 0.0 if options.weights else least, weights)


def check_output(out: Path, files: list[Path], specs: "tuple[CorpusSpec, ...]") -> None:
    """Raise UsageError where the clean pairs cannot be written to `out`.

    files: those that are read; specs: the training corpora, which need one tag and one weight to share a file.
    """
    check_place(out, ".tsv", files)
    if any(spec.weight_column for spec in specs):
        raise UsageError("the clean file would lose the weights of the pairs: check them without --write-clean")
    if len({(spec.tags, spec.weight, spec.share) for spec in specs}) > 1:
        raise UsageError("corpora with different tags or weights cannot share a file: clean them one at a time")


def check_place(out: Path, suffix: str, others: list[Path]) -> None:
    """Raise UsageError where nothing can be written to `out`, or its name says what it is not.

    others: files that it must not be, of which some may not exist yet.
    """
    from dragoman.storage.output import require_place

    if out.suffix != suffix:
        raise UsageError(f"{out}: give it a name that ends in {suffix}, which is what is written")
    require_place(out)
    same = any(out.samefile(file) if out.exists() and file.exists() else out == file for file in others)
    if same or (out.exists() and not out.is_file()):
        raise UsageError(f"{out}: one of the corpora, another output, or not a regular file; give it another name")


def as_json(report: "CheckReport", clean: Path | None, written: int | None) -> dict[str, Any]:
    """Return the object that --json prints: 'corpora', 'errors' and 'warnings' (numbers), 'findings' and 'clean'.

    clean: the file of clean pairs; written: how many pairs are in it; both None where none was asked for.
    """
    from dragoman.check.rules import RULES

    return {
        "corpora": [
            {
                "set": corpus.set,
                "name": corpus.spec.name,
                "rows": corpus.rows,
                "pairs": corpus.pairs,
                "kept": corpus.kept,
            }
            for corpus in report.corpora
        ],
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "findings": [
            {
                "id": name,
                "level": rule.level,
                "count": report.findings[name].count,
                "what": rule.what,
                "advice": rule.advice,
                "locations": report.findings[name].locations,
                "example": report.findings[name].example or None,
            }
            for name, rule in RULES.items()
            if name in report.findings
        ],
        "slips": report.slips,
        "clean": {"file": str(clean), "pairs": written, "dropped_later": report.dropped_later} if clean else None,
    }


def print_report(report: "CheckReport", clean: Path | None, written: int | None) -> None:
    """Print how many pairs of each corpus are left, what each rule found, and how many are left in all.

    clean: the file of clean pairs; written: how many pairs are in it; both None where none was asked for.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dragoman.check.corpora import UNFIT
    from dragoman.check.report import MAX_LOCATIONS
    from dragoman.check.rules import RULES

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right", overflow="fold")
    for name, rule in RULES.items():
        if name in report.findings:
            finding = report.findings[name]
            slips = report.slips[:MAX_LOCATIONS] if name in ("slipped", "realigned") else []
            lines = filter(
                None, (rule.what, name_locations(finding), finding.example, *slips, rule.advice and f"→ {rule.advice}")
            )
            label = Text.assemble((rule.level, COLOURS[rule.level]), f"\n{name}")
            table.add_row(label, f"{finding.count:,}", Text("\n".join(lines)), end_section=True)
            table.add_row()
    total = report.corpora[0].spec.name
    if len(report.corpora) > 1:
        for corpus in report.corpora:
            print_numbers(corpus.spec.name, [corpus])
        total = plural(sum(len(corpus.spec.files) for corpus in report.corpora), "file")
    if table.rows:
        with console.capture() as drawn:  # the table fills its lines up with spaces
            console.print(table)
        print("\n".join(line.rstrip() for line in drawn.get().splitlines()))
    print_numbers(total, report.corpora)
    if report.dropped_later:
        rules = ", ".join(f"{name} {count:,}" for name, count in report.dropped_later.items())
        print(f"the pairs left were checked again, and more were dropped: {rules}")
    if clean:
        unfit = UNFIT & report.findings.keys()
        why = "see the errors above" if unfit else "no pair is left without errors or warnings"
        print(f"{clean}: {plural(written, 'pair')} written" if written else f"{clean}: not written; {why}")


def print_numbers(name: str, corpora: "list[CheckedCorpus]") -> None:
    """Print how many rows and pairs some corpora have in all, and how many pairs are left."""
    rows, pairs = sum(corpus.rows for corpus in corpora), sum(corpus.pairs for corpus in corpora)
    kept = sum(corpus.kept for corpus in corpora)
    print(f"{name}: {plural(rows, 'row')}, {plural(pairs, 'pair')}, {kept:,} of them without errors or warnings")


def name_locations(finding: "Occurrences") -> str:
    """Return 'pairs.tsv:4, 7, 9, ...' for the first locations of a finding; a file is named where it changes."""
    from dragoman.check.report import MAX_LOCATIONS

    names: list[str] = []
    last = ""
    for location in finding.locations:
        file, _, line = location.partition(":")
        names.append(line if file == last and line else location)
        last = file
    return ", ".join(names + ["..."] * (finding.count > len(finding.locations) == MAX_LOCATIONS))


COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}
