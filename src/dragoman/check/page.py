"""Write what a check found as one page that needs no network: in English and Korean, with examples of each finding."""

import math
from collections import Counter
from pathlib import Path

import jinja2

from dragoman.check.report import CheckReport, Example
from dragoman.check.rules import RULES
from dragoman.storage.writing import replace_file
from dragoman.text.speech import speaker

LANGUAGES = ("en", "ko")
FOLDER = Path(__file__).parent
MOST_BARS = 41
# Of a distribution: what it shows, and the value of a bar with the number 0, 1, ...
MEASURED = {
    "length": (
        "length of the target, as a multiple of what is usual for its source",
        lambda number: math.exp(number / 10),
    ),
    "plausibility": ("how plausible models find the pair, from 0 to 1", lambda number: number / 40),
    "words": ("how much the words of the two sides speak for the pair, in nats", lambda number: 5.0 * number),
}


def write_page(path: Path, report: CheckReport) -> None:
    """Write the page of a report to a file, whole or not at all."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    says = {language: speaker(language, FOLDER / "ko.po") for language in LANGUAGES}  # type: ignore[arg-type]
    values = {
        "says": says,
        "report": report,
        "rules": {name: rule for name, rule in RULES.items() if name in report.findings},
        "dropped": sum((corpus.dropped for corpus in report.corpora), Counter[str]()) + report.dropped_later,
        "bars": {name: bars(counts) for name, counts in report.distributions.items() if counts},
        "measured": MEASURED,
        "places": places,
    }
    replace_file(path, environment.get_template("page.html").render(values), shared=True)


def places(example: Example) -> str:
    """Return where an example stands, with what was measured of it."""
    return example.location if example.score is None else f"{example.location} ({example.score:.2f})"


def bars(counts: Counter[int]) -> list[tuple[int, int, float]]:
    """Return number, pairs and length (0 to 1) of each bar; the outer ones have what lies beyond."""
    low, high = max(min(counts), -(MOST_BARS // 2)), min(max(counts), MOST_BARS // 2)
    inside: Counter[int] = Counter()
    for number, times in counts.items():
        inside[min(max(number, low), high)] += times
    most = max(inside.values())
    return [(number, inside[number], math.log1p(inside[number]) / math.log1p(most)) for number in range(low, high + 1)]
