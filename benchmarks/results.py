"""Keep what a measurement printed: each table is a JSON file in `results/`, named DATE-MACHINE-WHAT.json."""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dragoman.errors import UsageError

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Result:
    """One table, and how it was measured."""

    what: str  # such as training-1-thread: results of the same machine and what replace each other on the page
    machine: str  # its name on the page
    date: str  # YYYY-MM-DD, of the last day
    commit: str | None  # of the code that was measured, None where it was not noted
    command: str
    settings: dict[str, Any]  # what the command does not say, such as the corpus
    columns: list[str]
    rows: list[list[str]]  # cells as they were printed

    @property
    def file_name(self) -> str:
        """Return DATE-MACHINE-WHAT.json, in lower case."""
        return f"{self.date}-{self.machine.lower().replace(' ', '-')}-{self.what}.json"

    def column(self, name: str) -> list[str]:
        """Return the cells of a column. Raise ValueError where there is none of this name."""
        return [row[self.columns.index(name)] for row in self.rows]

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the file of this result, and return its path. Raise UsageError where it exists."""
        file = folder / self.file_name
        if file.exists():
            raise UsageError(f"{file} is there already: give --keep another name")
        fields = [f" {json.dumps(name)}: {as_json(value)}" for name, value in asdict(self).items()]
        file.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")
        return file


def as_json(value: object) -> str:
    """Return a field as JSON, a table with one row in each line."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n ]"
    return json.dumps(value, ensure_ascii=False)


def read_results(folder: Path = FOLDER) -> list[Result]:
    """Return all results, the oldest first."""
    return [Result(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob("*.json"))]


def newest(results: Iterable[Result]) -> dict[tuple[str, str], Result]:
    """Return the newest result of each machine and what; results: the oldest first."""
    return {(result.machine, result.what): result for result in results}


def read_tables(markdown: str) -> list[list[list[str]]]:
    """Return the tables of a text in Markdown: the columns of each, then its rows."""
    tables = re.findall(r"(?:^\|.*\|\n?)+", markdown, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "---" not in line]
        for table in tables
    ]


def keep(
    printed: str, what: str, machine: str, arguments: Sequence[str], settings: dict[str, Any], folder: Path = FOLDER
) -> list[Path]:
    """Write the tables that a measurement has printed as results of today; return their files.

    what: of the first table; further ones get a number; settings: of the measurement. Raise UsageError where one of the
    files exists.
    """
    about = " ".join(line for line in printed.splitlines() if line and not line.startswith("|"))
    command = " ".join(["python -m benchmarks", *arguments])
    files = []
    for number, (columns, *rows) in enumerate(read_tables(printed), start=1):
        name = what if number == 1 else f"{what}-{number}"
        result = Result(
            name,
            machine,
            date.today().isoformat(),
            current_commit(),
            command,
            settings | {"printed": about},
            columns,
            rows,
        )
        files.append(result.write(folder))
    return files


def current_commit() -> str | None:
    """Return the commit of this clone; None where it is no clone, or has changes that are not committed."""
    asked = [["git", "rev-parse", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"]]
    answers = [subprocess.run(ask, cwd=FOLDER, capture_output=True, text=True) for ask in asked]
    if any(answer.returncode for answer in answers) or answers[1].stdout:
        return None
    return answers[0].stdout.strip()
