"""Find glossary terms in a source, say what the output needs for them, and check whether it has it.

A text is split into atoms: words, white space, and single characters otherwise. A term is a sequence of whole atoms, so
it matches whole words where words have spaces between them: "dog" in "the dog", not in "dogma". In scripts without
spaces each character is an atom, and a term may stand anywhere. In Hangul, too, each character is an atom, but a term
begins where a word begins, and endings may follow it: "개" in "개가", not in "무지개".
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

import regex

from dragoman.config.fields import check_argument, quote_value
from dragoman.data.lines import display_path, read_lines
from dragoman.data.tokenizer import normalise
from dragoman.data.unspaced import UNSPACED
from dragoman.errors import DragomanError, UsageError

# Every text is compared with all terms, so these are bounded.
MAX_TERM_LENGTH = 200  # characters
MAX_TARGETS = 100

LETTER = regex.compile(rf"(?V1)[[\p{{L}}\p{{M}}\p{{N}}\p{{Pc}}\p{{Join_Control}}]--[{UNSPACED}\p{{Hangul}}ー]]")
ATOM = regex.compile(rf"{LETTER.pattern}+|\s+|\X")
HANGUL = regex.compile(r"\p{Hangul}")
SENTENCE_END = frozenset(".!?…:。！？：")

CaseMode = Literal["exact", "match", "any"]
CASE_MODES: tuple[CaseMode, ...] = get_args(CaseMode)  # the strictest first


@dataclass(frozen=True)
class Entry:
    """A line of a glossary."""

    source: str
    targets: tuple[str, ...]  # one of them has to be in the output
    case: CaseMode = "match"
    line: int = 0

    def matches(self, text: str) -> bool:
        """Return whether the entry's case rule allows `text`, which equals `source` apart from case."""
        if self.case == "any" or text == self.source:
            return True
        return self.case == "match" and (is_capitals(text) or not is_capitals(self.source))

    def target_forms(self, text: str, sentence_start: bool) -> tuple[str, ...]:
        """Return the ways to write the targets in the output where the source has the term written as `text`.

        They follow the case of `text` if the entry's rule is "match"; otherwise they are the targets as they are.
        sentence_start: whether `text` begins a sentence, where a capital says nothing.
        """
        if self.case != "match":
            return self.targets
        if text != self.source and is_capitals(text):
            return tuple(dict.fromkeys(target.upper() for target in self.targets))
        capitalised = [capitalise(target) for target in self.targets]
        if text[0].isupper() and not self.source[0].isupper() and not sentence_start:
            return tuple(dict.fromkeys(capitalised))
        return tuple(dict.fromkeys([*self.targets, *capitalised]))  # the word order of the output decides between them


@dataclass(frozen=True)
class TermMatch:
    """An occurrence of a term: text[start:end]."""

    start: int
    end: int
    entry: Entry
    targets: tuple[str, ...]  # one of them has to be in the output, written like this


@dataclass(frozen=True)
class TermReport:
    """The matches of a source by whether the output has one of their targets."""

    met: tuple[TermMatch, ...] = ()
    missed: tuple[TermMatch, ...] = ()


Value = TypeVar("Value")


@dataclass(slots=True)
class Trie(Generic[Value]):
    """A node of a tree of atom sequences: which atoms may come next, and the values of the sequence that ends here."""

    children: "dict[str, Trie[Value]]" = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)

    def insert(self, atoms: Sequence[str], value: Value) -> None:
        """Add the sequence of atoms, with the value, below this node."""
        node = self
        for atom in atoms:
            node = node.children.setdefault(atom, Trie())
        node.values.append(value)

    def matches(self, atoms: Sequence[str], start: int) -> "Iterator[tuple[int, Trie[Value]]]":
        """Yield (end, node) for every inserted sequence that is atoms[start:end], the shortest first."""
        if start and HANGUL.match(atoms[start]) and HANGUL.match(atoms[start - 1]):
            return  # inside a word of Hangul
        node: Trie[Value] | None = self
        for end in range(start, len(atoms)):
            node = node.children.get(atoms[end]) if node else None
            if node is None:
                return
            if node.values:
                yield end + 1, node


class Glossary:
    """Find terms, in time proportional to the text, however many entries there are."""

    def __init__(self, entries: Sequence[Entry]):
        is_list = isinstance(entries, Sequence) and all(isinstance(entry, Entry) for entry in entries)
        if isinstance(entries, str) or not is_list:
            raise UsageError(
                f"Glossary takes a list of entries, not {quote_value(entries)}; a file: Glossary.read(path)"
            )
        self.entries = tuple(entries)

    def __repr__(self) -> str:
        return f"<Glossary: {len(self.entries):,} entries>"

    @classmethod
    def read(cls, path: str | Path) -> "Glossary":
        """Read a file of lines: source term, tab, target terms with | between them, and perhaps a tab and a case rule.

        Blank lines and lines that begin with # are skipped. Raise DragomanError naming file and line where a line is
        wrong or repeats a term, and where the file has no terms.
        """
        check_argument("path", path, str | Path)
        path = str(path)
        entries: dict[tuple[str, str], Entry] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if line is None or not line.strip() or line.startswith("#"):
                continue
            try:
                entry = parse_entry(line, number)
                key = (entry.source, "") if entry.case == "exact" else (fold(entry.source), entry.case)
                earlier = entries.setdefault(key, entry)
                if earlier is not entry:
                    raise ValueError(
                        f"'{entry.source}' is on line {earlier.line} already: "
                        "write all its translations there, with | between them"
                    )
            except ValueError as error:
                raise DragomanError(f"{display_path(path)}:{number}: {error}") from None
        if not entries:
            raise DragomanError(
                f"{display_path(path)}: it has no terms: a line is a source term, a tab and a target term"
            )
        return cls(list(entries.values()))

    @cached_property
    def names(self) -> "Glossary | None":
        """The entries whose only target is their source: names that stay as they are. None where there are none."""
        names = [replace(entry, case="exact") for entry in self.entries if entry.targets == (entry.source,)]
        return Glossary(names) if names else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the terms in `text` begin and end."""
        return [(match.start, match.end) for match in self.find(text)]

    @cached_property
    def trie(self) -> Trie[Entry]:
        """The entries by the atoms of their source, in folded case."""
        root: Trie[Entry] = Trie()
        for entry in self.entries:
            root.insert([fold(atom) for atom in ATOM.findall(entry.source)], entry)
        return root

    def find(self, text: str) -> list[TermMatch]:
        """Return the terms in `text` from left to right, the longest at each position, without overlaps."""
        check_argument("text", text, str)
        spans = [match.span() for match in ATOM.finditer(text)]
        atoms = [normalise_atom(text[start:end]) for start, end in spans]
        folded = [atom.casefold() for atom in atoms]
        matches: list[TermMatch] = []
        start, sentence_start = 0, True
        while start < len(atoms):
            longest = self._longest_match(atoms, folded, start)
            end = start + 1
            if longest:
                end, entry = longest
                targets = entry.target_forms("".join(atoms[start:end]), sentence_start)
                matches.append(TermMatch(spans[start][0], spans[end - 1][1], entry, targets))
            for atom in atoms[start:end]:
                sentence_start = atom in SENTENCE_END or (sentence_start and not any(map(str.isalnum, atom)))
            start = end
        return matches

    def _longest_match(self, atoms: list[str], folded: list[str], start: int) -> tuple[int, Entry] | None:
        """Return end and entry of the longest term that begins at `start`; of several, the one strictest about case."""
        longest = None
        for end, node in self.trie.matches(folded, start):
            text = "".join(atoms[start:end])
            entries = [entry for entry in node.values if entry.matches(text)]
            if entries:
                longest = end, min(entries, key=lambda entry: CASE_MODES.index(entry.case))
        return longest


def check_terms(matches: Sequence[TermMatch], output: str) -> TermReport:
    """Return which of the matches the output has one of the targets for, in the case in which these are written.

    n matches with the same targets need n occurrences that do not overlap; if there are fewer, the last ones are
    missed.
    """
    if not matches:
        return TermReport()
    wanted = Counter(match.targets for match in matches)
    root: Trie[tuple[str, ...]] = Trie()
    for targets in wanted:
        for target in targets:
            root.insert([normalise_atom(atom) for atom in ATOM.findall(target)], targets)
    atoms = [normalise_atom(atom) for atom in ATOM.findall(output)]
    occurrences = [(end, start, node) for start in range(len(atoms)) for end, node in root.matches(atoms, start)]
    counts: Counter[tuple[str, ...]] = Counter()
    last_end: dict[tuple[str, ...], int] = {}
    for end, start, node in sorted(occurrences, key=lambda occurrence: occurrence[:2]):
        for targets in node.values:
            if start >= last_end.get(targets, 0):
                counts[targets] += 1
                last_end[targets] = end
        node.values = [targets for targets in node.values if counts[targets] < wanted[targets]]
    met: list[TermMatch] = []
    missed: list[TermMatch] = []
    for match in matches:
        counts[match.targets] -= 1
        (met if counts[match.targets] >= 0 else missed).append(match)
    return TermReport(tuple(met), tuple(missed))


def find_in_compounds(missed: Sequence[TermMatch], output: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which source terms of those missed the output has as the head of a compound, and the others.

    "Textakte" has the target "Akte", in any case.
    """
    words = [atom.casefold() for atom in ATOM.findall(output)]
    in_compounds: list[str] = []
    others: list[str] = []
    for match in missed:
        heads = tuple(target.casefold() for target in match.targets)
        compound = next((word for word in words if word.endswith(heads) and word not in heads), None)
        if compound:
            words.remove(compound)
        (in_compounds if compound else others).append(match.entry.source)
    return tuple(in_compounds), tuple(others)


def parse_entry(line: str, number: int) -> Entry:
    """Return the entry of line `number` of a glossary. Raise ValueError saying what is wrong with it."""
    columns = [normalise_term(column) for column in line.split("\t")]
    if len(columns) == 1:
        raise ValueError("no tab: write source term, tab, target term")
    if len(columns) > 3:
        raise ValueError(f"{len(columns)} columns: write source term, target term and at most a case rule")
    source, targets = columns[0], tuple(dict.fromkeys(target.strip() for target in columns[1].split("|")))
    name = columns[2] if len(columns) == 3 and columns[2] else "match"
    case = next((mode for mode in CASE_MODES if mode == name), None)
    if not source or not all(targets):
        raise ValueError("an empty term: write something on both sides of the tab and of each |")
    if case is None:
        raise ValueError(f"'{name}' is not a case rule: choose from {', '.join(CASE_MODES)}")
    if max(map(len, (source, *targets))) > MAX_TERM_LENGTH:
        raise ValueError(f"a term of more than {MAX_TERM_LENGTH} characters; a glossary is for words and phrases")
    if len(targets) > MAX_TARGETS:
        raise ValueError(f"{len(targets)} alternatives: at most {MAX_TARGETS} are allowed")
    return Entry(source, targets, case, number)


def normalise_atom(text: str) -> str:
    """Return text in Unicode NFC; ' ' where it is nothing but white space, of any kind and length."""
    if text.isspace():
        return " "
    return normalise(text)


def normalise_term(text: str) -> str:
    """Return a term in Unicode NFC with single spaces between its words."""
    return " ".join(normalise_atom(text).split())


def fold(text: str) -> str:
    """Return text in the form in which terms are compared where case does not matter: normalised and case-folded."""
    return normalise_atom(text).casefold()


def is_capitals(text: str) -> bool:
    """Return whether a text has two or more letters, and those that have a case are capitals."""
    return text.isupper() and sum(character.isalpha() for character in text) > 1


def capitalise(text: str) -> str:
    """Return the text with a capital first letter; as it is if its first word has a capital already: 'iPhone'."""
    return text[0].title() + text[1:] if text.split()[0].islower() else text
