"""Let callers correct what the models remember: all of them see the pairs, and whoever approved one may change it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from dragoman.config.languages import LanguagePair
from dragoman.errors import DragomanError
from dragoman.memory import ApprovedPair, Memory
from dragoman.server.models import Served
from dragoman.server.reading import Refusal
from dragoman.server.routes import Call
from dragoman.version import __version__

MAX_SIDE = 10_000  # characters
MAX_ORIGIN = 200  # characters
MAX_REMEMBERED = 1_000_000  # pairs of a memory
NO_XML = {code: None for code in range(32) if code not in (9, 10, 13)} | {0xFFFE: None, 0xFFFF: None}


class Numbered(NamedTuple):
    """A pair and its number in its memory, by which it can be changed until it is forgotten."""

    number: int
    pair: ApprovedPair


class Remembered(NamedTuple):
    """The memory of a pair of languages, which may be that of other pairs, too: their tags tell them apart."""

    served: Served
    memory: Memory

    @property
    def tags(self) -> tuple[str, str]:
        """The tags of its texts and of its translations."""
        return self.served.translator.tag, self.served.translator.target_tag

    def numbered(self) -> Iterator[Numbered]:
        """Yield the pairs of these languages, the oldest first."""
        self.memory.refresh()
        for number, pair in enumerate(self.memory.pairs):
            if pair and (pair.tag, pair.target_tag) == self.tags:
                yield Numbered(number, pair)

    def find(self, number: int) -> Numbered:
        """Return the pair of a number. Raise Refusal where there is none, or it was forgotten."""
        self.memory.refresh()
        pair = self.memory.pairs[number] if 0 <= number < len(self.memory.pairs) else None
        if pair is None or (pair.tag, pair.target_tag) != self.tags:
            raise Refusal(404, "no such pair in the memory")
        return Numbered(number, pair)


def find_memory(call: Call, source: str, target: str) -> Remembered | None:
    """Return the memory for a pair of languages; None without one, and where two models translate it."""
    path = call.service.models.path(source, target)
    memory = path[0].translator.memory if len(path) == 1 else None
    return Remembered(path[0], memory) if memory else None


def memory_for(call: Call, source: str, target: str) -> Remembered:
    """Return the memory for a pair of languages. Raise Refusal without one."""
    if remembered := find_memory(call, source, target):
        return remembered
    raise Refusal(404, "no memory for these languages; the operator of this server can give it one with --memory")


def all_memories(call: Call) -> dict[LanguagePair, Remembered]:
    """Return the memories by their pairs of languages."""
    by_pair = call.service.models.by_pair
    memories = {pair: find_memory(call, *pair) for pair in sorted(by_pair)}
    return {pair: remembered for pair, remembered in memories.items() if remembered}


def name_of_key(call: Call) -> str:
    """Return the name of the key of a request; '' on a server without keys."""
    return call.caller.removeprefix("key ") if call.service.keys else ""


def may_change(call: Call, pair: ApprovedPair) -> bool:
    """Return whether whoever asks may change a pair: on a server with keys, it must be theirs."""
    return not call.service.keys or pair.by == name_of_key(call)


def check_owner(call: Call, pair: ApprovedPair) -> None:
    """Raise Refusal where a pair is not to be changed by whoever asks."""
    if not may_change(call, pair):
        raise Refusal(403, "this pair is not yours; approve another translation of its text, which then counts")


def remember(call: Call, remembered: Remembered, pairs: Iterable[tuple[str, str, str]]) -> list[Numbered]:
    """Add pairs of texts to a memory: when this returns, they are on the disk, and count for everybody's next request.

    pairs: each has a text, its translation, and where they come from; '' for the name of the key. Raise Refusal for a
    blank side, one that is too long, and a memory that is full.
    """
    by, date = name_of_key(call), f"{datetime.now():%Y-%m-%d %H:%M}"
    added = []
    for *texts, origin in pairs:
        source, target = (" ".join(text.split()) for text in texts)
        if not fits(source, target):
            raise Refusal(400, f"each side of a pair must have 1 to {MAX_SIDE:,} characters")
        added.append(ApprovedPair(source, target, origin or by or "api", date, by, *remembered.tags))
    memory = remembered.memory
    if memory.pair_count + len(added) > MAX_REMEMBERED:
        raise Refusal(403, f"a memory has at most {MAX_REMEMBERED:,} pairs: forget some")
    try:
        return [Numbered(*each) for each in zip(memory.add(added), added, strict=True)]
    except DragomanError as error:
        raise Refusal(400, str(error)) from None


def fits(source: str, target: str) -> bool:
    """Return whether a memory takes a text and its translation: both are there, and not too long."""
    return min(len(source), len(target)) > 0 and max(len(source), len(target)) <= MAX_SIDE


def is_from(pair: ApprovedPair, origin: str) -> bool:
    """Return whether a pair has this origin, with or without the line behind it."""
    return origin in (pair.origin, pair.origin.rpartition(":")[0])


def forget(call: Call, remembered: Remembered, pairs: Iterable[Numbered]) -> int:
    """Forget pairs, but for those that are not to be changed by whoever asks; return how many there were."""
    return remembered.memory.forget([number for number, pair in pairs if may_change(call, pair)])


# Files.


def as_tsv(pairs: Iterable[Numbered]) -> str:
    """Return pairs as lines that `dragoman train` and `dragoman remember` read: a text, a tab, its translation."""
    return "".join(f"{' '.join(pair.source.split())}\t{' '.join(pair.target.split())}\n" for _, pair in pairs)


def as_tmx(languages: Sequence[str], pairs: Iterable[Numbered]) -> str:
    """Return pairs as a translation memory in TMX 1.4, each with its origin, its date, and who approved it."""
    units = []
    for number, pair in pairs:
        about = f" creationid={quoteattr(clean(pair.by))}" if pair.by else ""
        about += f' creationdate="{stamp(pair.date):%Y%m%dT%H%M%SZ}"' if stamp(pair.date) else ""
        origin = f'<prop type="origin">{escape(clean(pair.origin))}</prop>' if pair.origin else ""
        sides = "".join(
            f'<tuv xml:lang="{language}"><seg>{escape(clean(text))}</seg></tuv>'
            for language, text in zip(languages, (pair.source, pair.target), strict=True)
        )
        units.append(f'<tu tuid="{number}"{about}>{origin}{sides}</tu>\n')
    header = (
        f'<header creationtool="dragoman" creationtoolversion="{__version__}" segtype="sentence" o-tmf="dragoman" '
        f'adminlang="en" srclang="{languages[0]}" datatype="plaintext"/>'
    )
    body = "".join(units)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n{header}\n<body>\n{body}</body>\n</tmx>\n'


def clean(text: str) -> str:
    """Return a text without the characters that XML cannot have."""
    return text.translate(NO_XML)


def stamp(date: str) -> datetime | None:
    """Return the time that the date of a pair names; None where it names none."""
    try:
        return datetime.strptime(date, "%Y-%m-%d %H:%M").astimezone(UTC)
    except ValueError:
        return None
