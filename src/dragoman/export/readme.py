"""Write the README of an export: what it is, how it is used, how it was checked."""

from pathlib import Path

from dragoman.training.card import card_for_others, today
from dragoman.version import __version__

FILE = "README.md"
USAGES = Path(__file__).with_name("usage")


def read_usage(name: str) -> str:
    """Return how exports of a kind are used, in Markdown with fields for `str.format`, from usage/NAME.md."""
    return (USAGES / f"{name}.md").read_text(encoding="utf-8")


def write_readme(folder: Path, name: str, title: str, model: Path, usage: str, report: str) -> None:
    """Write README.md into the folder of an export.

    name: of the export; title: of its target; model: the folder that was exported, whose card is quoted; usage: how the
    export is used, in Markdown; report: how it was checked, line by line.
    """
    checked = "\n".join(f"- {line}" for line in report.splitlines())
    card = "\n".join(f"> {line}".rstrip() for line in card_for_others(model).splitlines())
    fields = {"name": name, "title": title, "version": __version__, "date": today(), "usage": usage, "checked": checked}
    text = read_usage("readme").format(**fields, card=card or "> It has none.")
    (folder / FILE).write_text(text, encoding="utf-8")
