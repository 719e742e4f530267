"""Read translation memories (TMX): one translation unit at a time, and no more of XML than a memory needs."""

from collections.abc import Iterator

from dragoman.config.languages import base_language
from dragoman.data.lines import OnProblem, Problem, Row, display_path, join_lines
from dragoman.data.xml import MAX_DEPTH, read_units, with_controls
from dragoman.errors import DragomanError

NATIVE_CODE = {"bpt", "ept", "ph", "it", "ut"}  # what these hold is markup of the original document
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
MAX_NAMED = 20  # languages in a message
Unit = list[tuple[str, str]]  # (language, text)


def read_tmx(path: str, columns: tuple[str, str] | None, on_problem: OnProblem) -> Iterator[Row]:
    """Yield a row for each translation unit; the side of a language that it lacks is empty.

    columns: source and target language; without them, the first unit must have two languages, and the source is the
    header's srclang or else the first. Of several texts in a language the first counts; the others are reported. So are
    units that have texts, but in neither language, which are left out. Raise DragomanError where the file is damaged,
    declares XML entities, or has no text in one of the languages.
    """
    target = Units()
    seen: set[str] = set()
    has_text = [False, False]  # whether any unit has the source language, and the target language
    for number, unit in enumerate(read_units(path, "TMX", target), start=1):
        columns = columns or two_languages(path, unit, target.source)
        if len(seen) < MAX_NAMED:
            seen |= {language for language, _ in unit}
        texts = [[text for language, text in unit if is_language(language, column)] for column in columns]
        if unit and not any(texts):
            on_problem(Problem("language", path, number))
            continue
        for which, side in enumerate(texts):
            has_text[which] |= bool(side)
            if len(side) > 1:
                on_problem(Problem("variant", path, number))
        sides = [join_lines(side[0], path, number, on_problem) if side else "" for side in texts]
        yield Row(number, sides[0], sides[1])
    for column, present in zip(columns or (), has_text, strict=False):
        if not present:
            raise DragomanError(
                f"{display_path(path)}: no text in '{column}'; its languages are {', '.join(sorted(seen)) or 'none'}"
            )


class Units:
    """The parser's target object: it collects each translation unit as [(language, text), ...]."""

    def __init__(self) -> None:
        self.complete: list[Unit] = []
        self.source = ""
        self.unit: Unit = []
        self.language = ""
        self.open: list[str] = []  # elements
        self.text: list[str] | None = None  # of the segment

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Open an element; raise ValueError where elements are nested too deeply."""
        self.open.append(tag)
        if len(self.open) > MAX_DEPTH:
            raise ValueError(f"elements nested more than {MAX_DEPTH} deep")
        if tag == "header":
            self.source = attributes.get("srclang", "")
        elif tag == "tu":
            self.unit = []
        elif tag == "tuv":
            self.language = attributes.get(LANGUAGE) or attributes.get("lang", "")
        elif tag == "seg":
            self.text = []

    def data(self, text: str) -> None:
        """Add a piece of text to the segment that is open, if there is one."""
        if self.text is not None and not NATIVE_CODE.intersection(self.open):
            self.text.append(text)

    def end(self, tag: str) -> None:
        """Close an element; with a segment, add its text to the unit, with a unit, add that to `complete`."""
        self.open.pop()
        if tag == "seg" and self.text is not None:
            self.unit.append((self.language, with_controls("".join(self.text))))
            self.text = None
        elif tag == "tu":
            self.complete.append(self.unit)


def two_languages(path: str, unit: Unit, source: str) -> tuple[str, str]:
    """Return the source and the target language of a unit that has two. Raise DragomanError where it has not.

    source: the source language by the header, '' where that does not say. A language is the same in all regions, 'en'
    for 'en-US' and 'en-GB', unless these two are the languages.
    """
    languages = list(dict.fromkeys(language for language, _ in unit))
    bases = list(dict.fromkeys(map(base_language, languages)))
    names = bases if len(bases) == 2 else languages
    if len(names) != 2:
        present = ", ".join(languages[:MAX_NAMED]) or "no text"
        raise DragomanError(
            f"{display_path(path)}: name two languages with columns=en,de; its first unit has {present}"
        )
    header = base_language(source) if names is bases else source
    if source and [is_language(name, header) for name in names] == [False, True]:
        names.reverse()
    return names[0], names[1]


def is_language(language: str, wanted: str) -> bool:
    """Return whether a language tag is the wanted one or a variant of it, as 'en-US' is of 'en'."""
    language, wanted = (code.lower().replace("_", "-") for code in (language, wanted))
    return language == wanted or language.startswith(f"{wanted}-")
