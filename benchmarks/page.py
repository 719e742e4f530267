"""Write the tables of docs/benchmarks.md from the newest results: `python -m benchmarks page`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`, where NAME is one of VIEWS, or a result: what it
measured and, after a comma, on which machine.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.decoding import HUGGING_FACE, OURS
from benchmarks.results import Result, newest, read_results
from dragoman.evaluation.timing import markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SPAN = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
GPU = "GPU"
TOOLKITS = (OURS, "HF MarianMT", "LSTM", "Eole", "JoeyNMT", "Marian")  # columns of the quality table
Results = dict[tuple[str, str], Result]  # by machine and what
Table = tuple[list[str], list[list[str]]]


def number(cell: str) -> float:
    """Return the number that a cell begins with. Raise ValueError where it begins with none, such as '–'."""
    return float(cell.split()[0].replace(",", ""))


def threads(result: Result) -> str:
    """Return the number of threads of a result, or GPU."""
    return GPU if result.settings.get("device") == "cuda" else str(result.settings["threads"])


def selected(results: Results, prefix: str) -> list[Result]:
    """Return the results whose `what` begins with a prefix: the newest machine first, then by what."""
    chosen = [result for result in results.values() if result.what.startswith(prefix)]
    dates: dict[str, str] = {}
    for result in chosen:
        dates[result.machine] = max(result.date, dates.get(result.machine, ""))
    chosen.sort(key=lambda result: (result.machine, result.what))
    return sorted(chosen, key=lambda result: dates[result.machine], reverse=True)


def training(results: Results) -> Table:
    """Return a row for each machine and number of threads: our best speed, that of the fastest other, their ratio."""
    sizes = ("tiny", "small", "base")
    rows = []
    for result in selected(results, "training-"):
        cells = [result.machine, threads(result)]
        for size in sizes:
            speeds: dict[str, float] = {}
            for row in result.rows:
                cell = dict(zip(result.columns, row, strict=True))
                if cell["model"] == size:
                    speed = number(cell["later turns"])
                    speeds[cell["toolkit"]] = max(speed, speeds.get(cell["toolkit"], 0))
            ours = speeds.pop(OURS, 0.0)
            name = max(speeds, key=speeds.__getitem__, default="")
            text = f"{ours:,.0f}; {name} {speeds[name]:,.0f}; **{ours / speeds[name]:.2f}**" if name else ""
            cells.append(text)
        rows.append(cells)
    return ["machine", "threads", *(f"`{size}`" for size in sizes)], rows


def quality(results: Results) -> Table:
    """Return a row for each corpus and machine: the test BLEU of each toolkit, the best of its learning rates."""
    rows = []
    for result in selected(results, "quality-"):
        scores: dict[str, float] = {}
        for model, cell in zip(result.column("model"), result.column("BLEU"), strict=True):
            name = "LSTM" if "LSTM" in model else model.split(",")[0]
            if cell != "–":
                scores[name] = max(number(cell), scores.get(name, 0.0))
        best = max(scores.values())
        cells = [f"**{score}**" if score == best else f"{score}" for score in map(scores.get, TOOLKITS)]
        corpus, minutes = result.settings.get("corpus") or result.settings["train"], result.settings["minutes"]
        about = [str(corpus), result.machine, f"{minutes:g}" if isinstance(minutes, float) else str(minutes)]
        rows.append([*about, *("" if cell == "None" else cell for cell in cells)])
    return ["corpus", "machine", "minutes", *TOOLKITS], rows


RATIOS = (  # of the columns of a decoding table
    (OURS, HUGGING_FACE),
    (OURS, "CTranslate2"),
    (f"{OURS} int8", "CTranslate2 int8"),
    (OURS, "Marian"),
)


def decoding(results: Results) -> Table:
    """Return a row for each machine and number of threads: the RATIOS of each search, on a CPU."""
    columns, rows = ["machine", "threads"], []
    for result in selected(results, "decoding-"):
        if result.columns[0] or threads(result) == GPU:  # decoding-length has other rows
            continue
        columns[2:] = result.column("")
        cells = []
        for search in result.rows:
            rates = {name: number(cell) for name, cell in zip(result.columns[1:], search[1:], strict=True)}
            ratios = (
                f"{rates[ours] / rates[other]:.2f}" if {ours, other} <= {*rates} else "–" for ours, other in RATIOS
            )
            cells.append("; ".join(ratios))
        rows.append([result.machine, threads(result), *cells])
    return columns, rows


VIEWS: dict[str, Callable[[Results], Table]] = {"training": training, "quality": quality, "decoding": decoding}


def with_tables(page: str, results: Results) -> str:
    """Return the page with all tables as the results have them. Raise KeyError for a result that is not there."""

    def table(span: re.Match[str]) -> str:
        what, _, machine = span[2].partition(", ")
        if what in VIEWS:
            columns, rows = VIEWS[what](results)
        else:
            columns, rows = results[machine, what].columns, results[machine, what].rows
        return f"{span[1]}{markdown_table(columns, rows)}\n{span[3]}"

    return SPAN.sub(table, page)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(page, newest(read_results())), encoding="utf-8")
