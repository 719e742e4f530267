"""Compare the numbers of the course with the tables of the lab.

    python scripts/course_numbers.py                        the pages against docs/course/results
    python scripts/course_numbers.py runs/course/tables     the pages against a fresh run, leaving out times
    python scripts/course_numbers.py --keep runs/course     adopt a fresh run, then compare

docs/course/numbers.md names the cell that each number repeats. The exit code is 1 if a number differs from its cell or
is not on its page, or if a result on the tour has a number that numbers.md does not list.

--keep takes over tables and figures, writes the new numbers into numbers.md and onto the pages, and prints each change:
read the sentences around them, which may no longer be true. What it cannot decide is left, and then differs.
"""

import argparse
import csv
import re
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COURSE = Path(__file__).parents[1] / "docs" / "course"
TOURS, SLIPS = ("tour.md", "tour.ko.md"), ("slips.md", "slips.ko.md")
# A number stands alone: it is not part of a name (seq2seq), a time of day (8:35) or a date.
NUMBER = re.compile(r"(?<![\w.:,−-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]\d+)?(?![\d:]|-\d)(?:\s(?:%|MiB))?")
NAMES = re.compile(r"`[^`]*`|(?:note|노트|table|표)\s\d+", re.IGNORECASE)  # they have digits that are not numbers
NAME_OR_NUMBER = re.compile(f"(?:{NAMES.pattern})|({NUMBER.pattern})", re.IGNORECASE)  # group 1: a number
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "smallest": min,
    "largest": max,
    "mean": statistics.fmean,
}


@dataclass(frozen=True)
class Source:
    """A row of the table in numbers.md: a number on a page, and the cell that it repeats."""

    at: str  # a station of the tour, or "slip" and its number
    number: str  # as printed
    table: str
    row: str
    column: str
    remark: str

    def __str__(self) -> str:
        return f"{self.at}: {self.number} ({self.table}; {self.row or 'all rows'}; {self.column})"


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def table_rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the Markdown tables on a page."""
    for line in page.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def read_sources(course: Path) -> list[Source]:
    rows = table_rows(read(course / "numbers.md"))
    return [Source(*cells) for cells in rows if len(cells) == 6 and re.match(r"\d|slip ", cells[0])]


def read_unmeasured(course: Path) -> dict[str, set[str]]:
    """Return {station: its numbers that no experiment measured}."""
    rows = table_rows(read(course / "numbers.md"))
    return {cells[0]: set(NUMBER.findall(cells[1])) for cells in rows if len(cells) == 3 and cells[0].isdigit()}


def stations(page: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each station of a tour, or of each slip."""
    parts = re.split(r"^(##+) (\d+)\. ", page, flags=re.MULTILINE)
    for mark, number, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        yield number if mark == "##" else f"slip {number}", text


def result_of(text: str) -> str:
    """Return what a station has from its results on: their table, the question and its answer; '' without results."""
    verdict = re.search(r"^\*\*(?:Result|결과)\*\*.*?(?=\n## |\Z)", text, re.MULTILINE | re.DOTALL)
    return verdict[0] if verdict else ""


def numbers_in_results(tour: str) -> dict[str, list[str]]:
    """Return {station: the numbers in its results}."""
    return {at: NUMBER.findall(" ".join(NAMES.sub("", result_of(text)).split())) for at, text in stations(tour)}


def numbers_in_slips(page: str) -> dict[str, list[str]]:
    return {at: NUMBER.findall(" ".join(text.split())) for at, text in stations(page)}


def cell_values(source: Source, folder: Path) -> list[float]:
    """Return the values that the number repeats. Raise LookupError if there is no such table, row or column."""
    files = sorted(folder.glob(f"{source.table}-*.csv"))
    if len(files) != 1:
        raise LookupError(f"{len(files)} tables {source.table} in {folder}")
    with files[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = dict(condition.split(": ", 1) for condition in source.row.split("; ") if condition)
    summary, _, column = source.column.partition(" ")
    if source.column in rows[0] or summary not in SUMMARIES:
        summary, column = "", source.column
    missing = {column, *wanted} - rows[0].keys()
    if missing:
        raise LookupError(f"no column {', '.join(sorted(missing))} in {files[0].name}")
    values = [float(row[column]) for row in rows if all(row[name] == cell for name, cell in wanted.items())]
    if not values:
        raise LookupError(f"no row {source.row} in {files[0].name}")
    return [SUMMARIES[summary](values)] if summary else values


def agrees(source: Source, value: float) -> bool:
    """Return whether the number is the value rounded to its digits. The sentence around it takes care of the sign."""
    number = source.number.replace(",", "").partition(" ")[0]
    mantissa, _, exponent = number.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(in_unit(source, value) - float(number)) <= 0.5 * 10.0**-decimals * (1 + 1e-9)


def in_unit(source: Source, value: float) -> float:
    """Return a value, without its sign, in the unit in which the number of a source is printed."""
    factors = {"%": 1 if source.column.endswith("(%)") else 100, "MiB": 2**-20, "": 1}
    return abs(value) * factors[source.number.partition(" ")[2]]


def printed(source: Source, value: float) -> str:
    """Return a value as the number of a source is printed, with as many digits."""
    number, space, unit = source.number.partition(" ")
    mantissa, exponent, _ = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    style = f".{decimals}e" if exponent else f",.{decimals}f"
    return f"{in_unit(source, value):{style}}{space}{unit}"


def compare_with_tables(sources: list[Source], folder: Path) -> Iterator[str]:
    for source in sources:
        try:
            values = cell_values(source, folder)
        except LookupError as error:
            yield f"{source}: {error}"
        else:
            yield from (f"{source}: the table has {v:.6g}" for v in values if not agrees(source, v))


def compare_with_pages(sources: list[Source], course: Path) -> Iterator[str]:
    unmeasured = read_unmeasured(course)
    slips = {page: numbers_in_slips(read(course / page)) for page in SLIPS}
    tours = {page: numbers_in_results(read(course / page)) for page in TOURS}
    for page, printed in {**tours, **slips}.items():
        here = [source for source in sources if source.at.startswith("slip") == (page in SLIPS)]
        yield from (f"{source}: not on {page}" for source in here if source.number not in printed.get(source.at, []))
    for page, printed in tours.items():
        for station, numbers in printed.items():
            known = {source.number for source in sources if source.at == station} | unmeasured.get(station, set())
            yield from (f"{page}, {station}: {number} has no source" for number in numbers if number not in known)


def keep(sources: list[Source], course: Path, run: Path) -> None:
    """Replace the tables that the pages quote, and the figures they show, by those of a run of the lab."""
    for table in {source.table for source in sources}:
        (new,) = (run / "tables").glob(f"{table}-*.csv")
        for old in (course / "results").glob(f"{table}-*.csv"):
            old.unlink()
        shutil.copy(new, course / "results")
    for figure in (course / "images").glob("*.png"):
        if (run / "figures" / figure.name).exists():
            shutil.copy(run / "figures" / figure.name, figure)


def new_numbers(sources: list[Source], course: Path) -> Iterator[tuple[Source, str]]:
    """Yield each source whose cell has another number by now, and that number, unless several sources share it.

    A number that stands at a station for two things is left if they differ by now, and so is one that is also there
    for something that no experiment measured.
    """
    unmeasured, wanted = read_unmeasured(course), dict[tuple[str, str], set[str]]()
    for source in sources:
        values = cell_values(source, course / "results")
        news = {source.number if agrees(source, value) else printed(source, value) for value in values}
        wanted.setdefault((source.at, source.number), set()).update(news)
    for source in sources:
        news = wanted[source.at, source.number]
        if len(news) == 1 and news != {source.number} and source.number not in unmeasured.get(source.at, ()):
            yield source, *news


def write_numbers(changes: list[tuple[Source, str]], course: Path) -> None:
    """Write new numbers into numbers.md, and onto the pages where they stand."""
    numbers = read(course / "numbers.md")
    for source, new in changes:
        numbers = numbers.replace(
            f"| {source.at} | {source.number} | {source.table} |", f"| {source.at} | {new} | {source.table} |"
        )
    (course / "numbers.md").write_text(numbers, encoding="utf-8")
    new_of = {(source.at, source.number): new for source, new in changes}
    for name in (*TOURS, *SLIPS):
        page = read(course / name)
        for at, text in stations(page):
            old = text if at.startswith("slip") else result_of(text)
            new = NAME_OR_NUMBER.sub(
                lambda match, at=at: new_of.get((at, " ".join((match[1] or "").split())), match[0]), old
            )
            page = page.replace(text, text.replace(old, new)) if old else page
        (course / name).write_text(page, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="?", help="folder of the tables; default: docs/course/results")
    parser.add_argument("--course", type=Path, default=COURSE, help="folder of the pages")
    parser.add_argument("--keep", type=Path, metavar="RUN", help="folder of a lab run to take over")
    options = parser.parse_args()
    sources = read_sources(options.course)
    if options.keep:
        keep(sources, options.course, options.keep)
        changes = list(new_numbers(sources, options.course))
        write_numbers(changes, options.course)
        for source, new in changes:
            print(f"{source}: {new}")
        sources = read_sources(options.course)
    steady = [source for source in sources if options.tables is None or source.remark != "time"]
    differences = [
        *compare_with_tables(steady, options.tables or options.course / "results"),
        *compare_with_pages(sources, options.course),
    ]
    print("\n".join(differences) or "all numbers agree")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
