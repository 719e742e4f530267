"""Read XLIFF 1.2 and 2.x, the exchange format of translators: the units whose translation is finished."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dragoman.config.languages import base_language
from dragoman.data.lines import OnProblem, Problem, Row, join_lines
from dragoman.data.unspaced import drop_needless_line_ends
from dragoman.data.xml import MAX_DEPTH, read_units, with_controls

UNITS, SIDES = {"trans-unit", "segment"}, {"source", "target"}
NATIVE_CODE = {"bpt", "ept", "ph", "it"}  # what these hold is markup of the original document
FINISHED = {"translated", "signed-off", "reviewed", "final"}  # states of a translation
PRESERVED = "{http://www.w3.org/XML/1998/namespace}space"
SPACE = re.compile(r"[ \t\r\n]+")


@dataclass
class Unit:
    """A unit of XLIFF 1.2 or a segment of 2.x: its languages and texts, and what says whether it is finished."""

    languages: tuple[str, str]
    approved: str
    state: str
    source: str = ""
    target: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether it is approved, or has a state in which it is finished; one that says nothing is, too."""
        if self.state and self.approved != "yes":
            return self.state in FINISHED
        return self.approved != "no"


def read_xliff(path: str, on_problem: OnProblem) -> Iterator[Row]:
    """Yield a row for each unit (1.2) or segment (2.x); an untranslated one has an empty target.

    Those whose translation is not finished by its state, and those of other languages than the first one, are left out
    and reported. Raise DragomanError where the file is damaged, declares XML entities, or is not XLIFF.
    """
    languages = None
    for number, unit in enumerate(read_units(path, "XLIFF", Units()), start=1):
        languages = languages or unit.languages
        if unit.languages != languages:
            on_problem(Problem("language", path, number))
        elif unit.target.strip() and not unit.is_finished:
            on_problem(Problem("unfinished", path, number))
        else:
            source, target = (join_lines(text, path, number, on_problem) for text in (unit.source, unit.target))
            yield Row(number, source, target)


class Units:
    """The parser's target object: it collects units, and no other source and target, such as those of suggestions."""

    def __init__(self) -> None:
        self.complete: list[Unit] = []
        self.open: list[str] = []  # names of elements without their namespace
        self.preserved = [False]  # of each whether white space is part of its text
        self.languages = ("", "")
        self.unit = Unit(self.languages, "", "")
        self.text: list[str] | None = None  # of the side that is open

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Open an element; raise ValueError where elements are nested too deeply, or the root is another one."""
        name = tag.rpartition("}")[2]
        if not self.open and name != "xliff":
            raise ValueError(f"its root is '{name}'")
        self.open.append(name)
        if len(self.open) > MAX_DEPTH:
            raise ValueError(f"elements nested more than {MAX_DEPTH} deep")
        space = attributes.get(PRESERVED, "preserve" if self.preserved[-1] else "default")
        self.preserved.append(space == "preserve")
        if name in ("xliff", "file"):  # which has them in 2.x and in 1.2
            names = ("srcLang", "trgLang") if name == "xliff" else ("source-language", "target-language")
            source, target = (base_language(attributes.get(language, "")) for language in names)
            self.languages = (source or self.languages[0], target or self.languages[1])
        elif name in UNITS:
            self.unit = Unit(self.languages, attributes.get("approved", ""), attributes.get("state", ""))
        elif self.is_side():
            self.text = []
            if name == "target":
                self.unit.state = attributes.get("state", self.unit.state)

    def is_side(self) -> bool:
        """Return whether the innermost element is the source or target of a unit."""
        return len(self.open) > 1 and self.open[-1] in SIDES and self.open[-2] in UNITS

    def data(self, text: str) -> None:
        """Add a piece of text to the side that is open, if there is one."""
        if self.text is not None and not NATIVE_CODE.intersection(self.open):
            self.text.append(text)

    def end(self, tag: str) -> None:
        """Close an element; with a side, add its text to the unit, with a unit, add that to `complete`."""
        if self.is_side() and self.text is not None:
            text = with_controls("".join(self.text))
            text = text if self.preserved[-1] else SPACE.sub(" ", drop_needless_line_ends(text)).strip(" ")
            setattr(self.unit, self.open[-1], text)
            self.text = None
        elif self.open[-1] in UNITS:
            self.complete.append(self.unit)
        self.open.pop()
        self.preserved.pop()
