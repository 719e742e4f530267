"""Terms that a user gives: where they are in a source, what the output must have for them, and whether it has it.

Text is taken in atoms: words, white space, and single characters otherwise. A term is a sequence of whole atoms, so it
is a whole word where words have spaces between them. In scripts without such spaces each character is an atom, and a
term may be anywhere; so it is in Hangul, but there a term begins where a word begins, and endings may follow it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

import regex

from dragoman.data.corpus import read_lines
from dragoman.data.spec import display_path
from dragoman.data.tokenizer import BYTES, normalise
from dragoman.errors import DragomanError

# Bounds on what every text is compared with.
LONGEST_TERM = 200  # characters
MOST_TARGETS = 100

UNSPACED = "".join(rf"\p{{{script}}}" for script in "Han Hiragana Katakana Bopomofo Thai Lao Khmer Myanmar".split())
LETTER = regex.compile(rf"(?V1)[[\p{{L}}\p{{M}}\p{{N}}\p{{Pc}}\p{{Join_Control}}]--[{UNSPACED}\p{{Hangul}}ー]]")
ATOM = regex.compile(rf"{LETTER.pattern}+|\s+|\X")
BYTE = {piece: byte for byte, piece in enumerate(BYTES)}
HANGUL = regex.compile(r"\p{Hangul}")
SENTENCE_END = frozenset(".!?…:。！？：")

Rule = Literal["exact", "match", "any"]
RULES: tuple[Rule, ...] = get_args(Rule)  # the strictest first


@dataclass(frozen=True)
class Entry:
    """A line of a glossary."""

    source: str
    targets: tuple[str, ...]  # one of them has to be in the output
    rule: Rule = "match"
    line: int = 0

    def applies(self, text: str) -> bool:
        """To an occurrence that is `source` apart from upper and lower case."""
        if self.rule == "any" or text == self.source:
            return True
        return self.rule == "match" and (in_capitals(text) or not in_capitals(self.source))

    def forms(self, text: str, first: bool) -> tuple[str, ...]:
        """What may stand in the output for the occurrence `text`; `first`: of a sentence."""
        if self.rule != "match":
            return self.targets
        if text != self.source and in_capitals(text):
            return tuple(dict.fromkeys(target.upper() for target in self.targets))
        capital = [capitalised(target) for target in self.targets]
        if text[0].isupper() and not self.source[0].isupper() and not first:
            return tuple(dict.fromkeys(capital))
        return tuple(dict.fromkeys([*self.targets, *capital]))  # the output's word order decides which


@dataclass(frozen=True)
class TermMatch:
    """An occurrence of a term: text[start:end]."""

    start: int
    end: int
    entry: Entry
    targets: tuple[str, ...]  # one of them has to be in the output, written like this


@dataclass(frozen=True)
class TermReport:
    met: tuple[TermMatch, ...]
    missed: tuple[TermMatch, ...]


Value = TypeVar("Value")


@dataclass(slots=True)
class Node(Generic[Value]):
    """Of a tree of sequences of atoms: what may come next, and what is known of the sequence that ends here."""

    after: "dict[str, Node[Value]]" = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)

    def at(self, atoms: Sequence[str]) -> "Node[Value]":
        """The node of a sequence, made where there is none."""
        node = self
        for atom in atoms:
            node = node.after.setdefault(atom, Node())
        return node

    def known(self, atoms: Sequence[str], start: int) -> "Iterator[tuple[int, Node[Value]]]":
        """(end, node) of every known sequence that is atoms[start:end], the shortest first."""
        if start and HANGUL.match(atoms[start]) and HANGUL.match(atoms[start - 1]):
            return
        node: Node[Value] | None = self
        for end in range(start, len(atoms)):
            node = node.after.get(atoms[end]) if node else None
            if node is None:
                return
            if node.values:
                yield end + 1, node


class Glossary:
    """Entries, ready to be found. Finding takes time in proportion to the text, however many entries there are."""

    def __init__(self, entries: Sequence[Entry]):
        self.entries = tuple(entries)

    @classmethod
    def read(cls, path: str | Path) -> "Glossary":
        """A file of lines: source term, tab, target terms with | between them, and perhaps a tab and a case rule.

        Blank lines and lines that begin with # are no entries. Raises DragomanError naming file and line.
        """
        path = str(path)
        entries: dict[tuple[str, str], Entry] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if line is None or not line.strip() or line.startswith("#"):
                continue
            try:
                entry = parsed(line, number)
                key = (entry.source, "") if entry.rule == "exact" else (folded(entry.source), entry.rule)
                earlier = entries.setdefault(key, entry)
                if earlier is not entry:
                    raise ValueError(
                        f"'{entry.source}' is in line {earlier.line} already: "
                        "write all its translations there, with | between them"
                    )
            except ValueError as error:
                raise DragomanError(f"{display_path(path)}:{number}: {error}") from None
        if not entries:
            raise DragomanError(
                f"{display_path(path)}: no terms in it: a line is a source term, a tab and a target term"
            )
        return cls(list(entries.values()))

    @cached_property
    def tree(self) -> Node[Entry]:
        root: Node[Entry] = Node()
        for entry in self.entries:
            root.at([folded(atom) for atom in ATOM.findall(entry.source)]).values.append(entry)
        return root

    def find(self, text: str) -> list[TermMatch]:
        """From left to right the longest terms that begin at each place; none overlaps with another."""
        places = [match.span() for match in ATOM.finditer(text)]
        atoms = [plain(text[start:end]) for start, end in places]
        keys = [atom.casefold() for atom in atoms]
        found: list[TermMatch] = []
        place, first = 0, True
        while place < len(keys):
            chosen = self.longest_at(atoms, keys, place)
            end = place + 1
            if chosen:
                end, entry = chosen
                targets = entry.forms("".join(atoms[place:end]), first)
                found.append(TermMatch(places[place][0], places[end - 1][1], entry, targets))
            for atom in atoms[place:end]:
                first = atom in SENTENCE_END or (first and not any(map(str.isalnum, atom)))
            place = end
        return found

    def longest_at(self, atoms: list[str], keys: list[str], start: int) -> tuple[int, Entry] | None:
        """End and entry of the longest term that begins here; of several, the one with the strictest case rule."""
        best = None
        for end, node in self.tree.known(keys, start):
            text = "".join(atoms[start:end])
            applying = [entry for entry in node.values if entry.applies(text)]
            if applying:
                best = end, min(applying, key=lambda entry: RULES.index(entry.rule))
        return best


def report(found: Sequence[TermMatch], text: str) -> TermReport:
    """Which terms an output has, by what is written there: n terms with the same targets are met by n occurrences."""
    wanted = Counter(one.targets for one in found)
    tree: Node[tuple[str, ...]] = Node()
    for targets in wanted:
        for target in targets:
            tree.at([plain(atom) for atom in ATOM.findall(target)]).values.append(targets)
    atoms = [plain(atom) for atom in ATOM.findall(text)]
    places = [(end, start, node) for start in range(len(atoms)) for end, node in tree.known(atoms, start)]
    counted: Counter[tuple[str, ...]] = Counter()
    over: dict[tuple[str, ...], int] = {}  # where the last occurrence ends: the next one begins after it
    for end, start, node in sorted(places, key=lambda place: place[:2]):
        for targets in node.values:
            if start >= over.get(targets, 0):
                counted[targets] += 1
                over[targets] = end
        node.values = [targets for targets in node.values if counted[targets] < wanted[targets]]
    met: list[TermMatch] = []
    missed: list[TermMatch] = []
    for one in found:
        counted[one.targets] -= 1
        (met if counted[one.targets] >= 0 else missed).append(one)
    return TermReport(tuple(met), tuple(missed))


def parsed(line: str, number: int) -> Entry:
    """Raises ValueError saying what is wrong with a line."""
    columns = [" ".join(plain(column).split()) for column in line.split("\t")]
    if len(columns) == 1:
        raise ValueError("no tab in it: write source term, tab, target term")
    if len(columns) > 3:
        raise ValueError(f"{len(columns)} columns: write source term, target term and at most a case rule")
    source, targets = columns[0], tuple(dict.fromkeys(target.strip() for target in columns[1].split("|")))
    name = columns[2] if len(columns) == 3 and columns[2] else "match"
    rule = next((rule for rule in RULES if rule == name), None)
    if not source or not all(targets):
        raise ValueError("an empty term: write something on both sides of the tab and of each |")
    if rule is None:
        raise ValueError(f"'{name}' is no case rule: choose from {', '.join(RULES)}")
    if max(map(len, (source, *targets))) > LONGEST_TERM:
        raise ValueError(f"a term of more than {LONGEST_TERM} characters; a glossary is for words and phrases")
    if len(targets) > MOST_TARGETS:
        raise ValueError(f"{len(targets)} alternatives: {MOST_TARGETS} are the most")
    return Entry(source, targets, rule, number)


def plain(text: str) -> str:
    """In Unicode NFC, white space as one space."""
    if text.isspace():
        return " "
    return normalise(text)


def folded(text: str) -> str:
    return plain(text).casefold()


def in_capitals(text: str) -> bool:
    """Two or more letters, and none of them small."""
    return text.isupper() and sum(character.isalpha() for character in text) > 1


def capitalised(text: str) -> str:
    """With a capital first letter, where the first word has none: 'iPhone' stays."""
    return text[0].title() + text[1:] if text.split()[0].islower() else text
