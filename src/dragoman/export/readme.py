"""Write the README of an export: what it is, how it is used, how it was checked."""

from pathlib import Path

from dragoman import __version__
from dragoman.training.card import read_card, today

FILE = "README.md"


def write_readme(folder: Path, name: str, title: str, model: Path, usage: str, report: str) -> None:
    """Write README.md into the folder of an export.

    name: of the export; title: of its target; model: the folder that was exported, whose card is quoted; usage: how the
    export is used, in Markdown; report: how it was checked, line by line.
    """
    checked = "\n".join(f"- {line}" for line in report.splitlines())
    card = "\n".join(f"> {line}".rstrip() for line in read_card(model).splitlines())
    text = f"""# {name}, {title}

A translation model, exported with dragoman {__version__} on {today()}.

## Use
{usage}
## How it was checked

{checked}

## The card of the model

{card or "> It has none."}
"""
    (folder / FILE).write_text(text, encoding="utf-8")
