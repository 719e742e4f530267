"""Text in, text out. Ids and search are below, commands and servers above."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from dragoman import alignment, guards, placeholders
from dragoman.annotations import Annotator
from dragoman.batches import Ids
from dragoman.config import Device, SearchConfig
from dragoman.coverage import ranked
from dragoman.decoding.engine import Demands, Engine
from dragoman.decoding.native import Native
from dragoman.decoding.search import Hypothesis
from dragoman.device import device_of
from dragoman.errors import DragomanError, UsageError
from dragoman.folder import find_model, read_model
from dragoman.glossary import Found, Glossary, edges, report, terms
from dragoman.model import Model
from dragoman.sentences import pieces
from dragoman.tokenizer import Tokenizer

LONGEST = 512  # source tokens searched for at once; longer texts are translated in parts
WIDE_SPACE = re.compile(r"\s{3,}")  # no model has learned to read that
CAREFUL_BEAM, CAREFUL_NO_REPEAT = 4, 3  # of the second search, where the first one ended in nonsense


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # log-probability in nats, divided by the length penalty; the sum over parts; 0.0 for blank text
    parts: int = 1  # how many parts the source was cut into, because it was longer than the model takes
    finished: bool = True  # False: the model did not come to an end of its own
    flags: tuple[str, ...] = ()  # what is wrong with it, in words: 'loop', 'lost {name}', 'no brake pad'
    again: bool = False  # whether it was searched for twice, because something was wrong with the first one
    met: tuple[str, ...] = ()  # source terms of the glossary whose target terms it has
    others: tuple["Translation", ...] = ()  # the next best, the best first


@dataclass(frozen=True)
class Care:
    """What a translation is held to, beside being probable."""

    placeholders: bool = True  # placeholders, tags, addresses and code come back as they are, once each
    numbers: bool = False  # so do numbers with units
    guard: bool = True  # no loops, no copies, nothing empty or far too long
    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()  # no such words

    def __post_init__(self) -> None:
        if not all(map(str.strip, self.forbidden)):
            raise UsageError("a forbidden word must not be blank")


NO_CARE = Care(placeholders=False, guard=False)


@dataclass(frozen=True)
class Part:
    """As much of a text as is searched for at once."""

    text: str
    ids: Ids
    tag: Ids = field(default_factory=list)
    prefix: str = ""
    begins: Ids = field(default_factory=list)  # the ids of the prefix
    terms: tuple[Found, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """A translation of a part."""

    text: str
    hypothesis: Hypothesis
    flags: tuple[str, ...]
    broken: int = 0  # how many placeholders it lost or made up

    @property
    def wrong(self) -> tuple[int, int]:
        """How much is: whoever fills in placeholders can use a loop, but not a text without them."""
        return self.broken, len(self.flags)


class Translator:
    """A model, its tokenizer, how to search, and what to hold translations to."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        search: SearchConfig = SearchConfig(),
        care: Care = Care(),
        engine: Engine | None = None,
    ):
        self.model, self.tokenizer, self.search, self.care = model, tokenizer, search, care
        self.engine = engine or Native(model, edges=edges(tokenizer))
        self.scripts: tuple[str, ...] = ()  # in which the target language is written, as `guards` names them

    @classmethod
    def load(
        cls,
        folder: str | Path,
        search: SearchConfig = SearchConfig(),
        care: Care = Care(),
        ensemble: Sequence[str | Path] = (),
        device: Device = "auto",
    ) -> "Translator":
        """ensemble: further models, whose probabilities are averaged with those of the first.

        Raises DragomanError naming the file where a model folder is missing or damaged, and the folder where a model
        has another tokenizer than the first.
        """
        where = device_of(device)
        model, tokenizer = read_model(Path(folder))
        translator = cls(model.to(where), tokenizer, search, care)
        if measured := alignment.Alignment.load(Path(folder)):
            translator.aligned_by = measured
        translator.scripts = guards.read_scripts(find_model(Path(folder)))
        others = [read_model(Path(other)) for other in ensemble]
        for name, (_, tokenizer) in zip(ensemble, others, strict=True):
            if (tokenizer.pieces, tokenizer.merges) != (translator.tokenizer.pieces, translator.tokenizer.merges):
                raise DragomanError(f"{name}: its tokenizer is not that of {folder}, so they cannot translate together")
        if others:
            models = [translator.model, *(other.to(where) for other, _ in others)]
            translator.engine = Native(*models, edges=edges(translator.tokenizer))
        return translator

    def translate(
        self, texts: Sequence[str], tags: Sequence[str] | None = None, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """One translation per text, in order. Blank text stays as it is; line breaks inside a text become spaces.

        `tags`, one for each text, are those that the model was trained with; '' for none. `prefixes`, one for each
        text: how its translation begins. Raises DragomanError naming the tags that there are.
        """
        return self._translate_block(list(texts), tags or [""] * len(texts), prefixes or [""] * len(texts))

    def stream(self, texts: Iterable[str], chunk: int = 1024, tag: str = "") -> Iterator[Translation]:
        """The same for any number of texts with one tag, `chunk` of them in memory at a time."""
        texts = iter(texts)
        while block := list(islice(texts, chunk)):
            yield from self._translate_block(block, [tag] * len(block), [""] * len(block))

    def _translate_block(self, texts: list[str], tags: Sequence[str], prefixes: Sequence[str]) -> list[Translation]:
        parts: list[Part] = []
        owned: list[range] = []  # the parts of each text
        for text, ids, tag, prefix in zip(texts, self.tokenizer.encode_all(texts), tags, prefixes, strict=True):
            start = len(parts)
            parts += self._parts(text, ids, self.tokenizer.front(tag), prefix) if text.strip() else []
            owned.append(range(start, len(parts)))
        first = self._attempts(parts, self.search)
        again = [number for number, attempts in enumerate(first) if attempts[0].flags]
        second = dict(zip(again, self._again([parts[number] for number in again]), strict=True))
        best = [better(attempts, second.get(number)) for number, attempts in enumerate(first)]
        return [
            self._joined([parts[n] for n in numbers], [best[n] for n in numbers], any(n in second for n in numbers))
            if numbers
            else Translation(one_line(text), 0.0)
            for text, numbers in zip(texts, owned, strict=True)
        ]

    def _parts(self, text: str, ids: Ids, tag: Ids, prefix: str) -> Iterator[Part]:
        """The text, or its sentences where it is longer than the model takes."""
        longest, cut = self.longest - len(tag), [(text, ids)]
        if len(ids) > longest:
            text = WIDE_SPACE.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)
            texts = pieces(text, lambda piece: len(self.tokenizer.encode(piece)) <= longest)
            cut = with_words(zip(texts, self.tokenizer.encode_all(texts), strict=True))
        for number, (piece, of_piece) in enumerate(cut):
            begun = "" if number else prefix
            yield Part(piece, of_piece, tag, begun, self.tokenizer.encode(begun) if begun else [], self._terms(piece))

    def _terms(self, text: str) -> tuple[Found, ...]:
        """Those of the glossary, but not inside of what has to come back as it is."""
        if not self.care.glossary:
            return ()
        verbatim = placeholders.find(text, self.care.numbers) if self.care.placeholders else []
        return tuple(
            found
            for found in self.care.glossary.find(text)
            if all(found.end <= one.start or one.end <= found.start for one in verbatim)
        )

    def _attempts(self, parts: Sequence[Part], search: SearchConfig) -> list[list[Attempt]]:
        """What a search finds for each part, the best first."""
        found = self._search([part.tag + part.ids for part in parts], search, [self._demands(part) for part in parts])
        return [
            [self._attempt(part, self.tokenizer.decode(hypothesis.tokens), hypothesis) for hypothesis in hypotheses]
            for part, hypotheses in zip(parts, found, strict=True)
        ]

    def _search(
        self, sources: Sequence[Ids], search: SearchConfig, demands: Sequence[Demands] | None = None
    ) -> list[list[Hypothesis]]:
        """What the engine finds; with a coverage penalty, the best of all its beams by that, too."""
        if not search.coverage_penalty or self.aligned_by is None:
            return self.engine.search(sources, search, demands)
        found = self.engine.search(sources, replace(search, n_best=search.beam, coverage_penalty=0.0), demands)
        best = ranked(self.model, sources, found, search.coverage_penalty, self.aligned_by)
        return [some[: search.n_best] for some in best]

    def _demands(self, part: Part) -> Demands:
        return Demands(tuple(part.begins), terms(part.terms, self.tokenizer), self._forbidden)

    @cached_property
    def _forbidden(self) -> tuple[tuple[int, ...], ...]:
        """Each forbidden word in the tokens it has after a space and at the beginning."""
        spelled = [form for word in self.care.forbidden for form in (word, f" {word}")]
        return tuple(dict.fromkeys(tuple(ids) for ids in self.tokenizer.encode_all(spelled)))

    def _attempt(self, part: Part, text: str, hypothesis: Hypothesis) -> Attempt:
        care = self.care
        flags: list[str] = []
        if care.guard:
            flags += guards.faults(part.text, text, finished=hypothesis.finished, scripts=self.scripts)
        broken: list[str] = []
        if care.placeholders:
            lost, invented = placeholders.compare(part.text, text, care.numbers, part.prefix)
            broken = [f"lost {found}" for found in lost] + [f"invented {found}" for found in invented]
        flags += broken
        if part.terms:
            flags += [f"no {found.entry.source}" for found in report(part.terms, text).missed]
        flags += [f"has {word}" for word in care.forbidden if word in text]
        if hypothesis.tokens[: len(part.begins)] != part.begins:
            flags.append("lost prefix")
        return Attempt(text, hypothesis, tuple(flags), len(broken))

    def _again(self, parts: list[Part]) -> list[Attempt]:
        """A more careful search, with placeholders taken out before and put back after it."""
        search = replace(
            self.search,
            beam=max(self.search.beam, CAREFUL_BEAM),
            groups=1,
            n_best=1,
            no_repeat=self.search.no_repeat or CAREFUL_NO_REPEAT,
            temperature=None,
            top_k=None,
            top_p=1.0,
        )
        taken_out = [
            placeholders.without(part.text, self.care.numbers) if self.care.placeholders else (part.text, [])
            for part in parts
        ]
        ids_of = self.tokenizer.encode_all([text for text, _ in taken_out])
        plain = [replace(p, text=text, ids=ids) for p, (text, _), ids in zip(parts, taken_out, ids_of, strict=True)]
        written = [number for number, part in enumerate(plain) if any(map(str.isalnum, part.text))]
        found = dict(zip(written, self._attempts([plain[number] for number in written], search), strict=True))
        attempts = []
        for number, (part, bare, (_, taken)) in enumerate(zip(parts, plain, taken_out, strict=True)):
            if number not in found:  # nothing but placeholders: there is nothing to translate
                said = Attempt(f"{part.prefix} {bare.text}", Hypothesis([], 0.0), ())
                text = self._put_back(bare, said, taken).strip() if part.prefix else part.text
                attempts.append(replace(said, text=text))
                continue
            (attempt,) = found[number]
            attempts.append(self._attempt(part, self._put_back(bare, attempt, taken), attempt.hypothesis))
        return attempts

    def _put_back(self, bare: Part, attempt: Attempt, taken: Sequence[placeholders.Taken]) -> str:
        """The translation with what was taken out of its source, and with nothing of that kind that it made up. As it
        had to begin, it does; what stands there already does not come twice.
        """
        if not self.care.placeholders:
            return attempt.text
        begun = bare.prefix if attempt.text.startswith(bare.prefix) else ""
        text = attempt.text[len(begun) :].lstrip()
        begun = attempt.text[: len(attempt.text) - len(text)]
        there, left = Counter(placeholder.text for placeholder in placeholders.find(begun, self.care.numbers)), []
        for one in taken:
            if there[one.text]:
                there[one.text] -= 1
            else:
                left.append(one)
        links = None
        if placeholders.find(text, self.care.numbers):
            text = placeholders.without(text, self.care.numbers)[0]
        elif left and (of_all := self.annotator.links(bare.ids, attempt.hypothesis.tokens, bare.tag)):
            links = [(source, target - len(begun)) for source, target in of_all if target >= len(begun)]
        return begun + placeholders.put_back(text, bare.text, left, links, self.care.numbers)

    @cached_property
    def aligned_by(self) -> alignment.Alignment | None:
        """The layer and head that alignments are taken from; None where the model has no attention over its source."""
        with contextlib.suppress(DragomanError):
            return alignment.unmeasured(self.model)
        return None

    @property
    def annotator(self) -> Annotator:
        """Of an ensemble, the first model is asked."""
        return Annotator(self.model, self.tokenizer, self.aligned_by)

    def _joined(self, parts: list[Part], found: list[list[Attempt]], again: bool) -> Translation:
        """The best attempts of all parts together, then the second best ones, and so on."""
        ranks = max(map(len, found))
        best, *others = (
            self._translation(parts, [attempts[min(rank, len(attempts) - 1)] for attempts in found])
            for rank in range(ranks)
        )
        return replace(best, again=again, others=tuple(others))

    def _translation(self, parts: list[Part], attempts: list[Attempt]) -> Translation:
        text = attempts[0].text
        for before, part, attempt in zip(parts, parts[1:], attempts[1:], strict=False):
            spaced = before.text[-1:].isspace() or part.text[:1].isspace()
            text += " " * spaced + attempt.text
        met = [
            found.entry.source
            for part, attempt in zip(parts, attempts, strict=True)
            for found in (report(part.terms, attempt.text).met if part.terms else ())
        ]
        return Translation(
            one_line(text),
            sum(attempt.hypothesis.score for attempt in attempts),
            len(parts),
            all(attempt.hypothesis.finished for attempt in attempts),
            tuple(flag for attempt in attempts for flag in attempt.flags),
            met=tuple(met),
        )

    @property
    def longest(self) -> int:
        """The most source tokens, without the end, that are searched for at once."""
        return min(LONGEST, (self.engine.longest or LONGEST + 1) - 1)

    def search_ids(self, sources: Sequence[Ids]) -> list[Hypothesis]:
        """The best hypothesis for each source, in order."""
        return [hypotheses[0] for hypotheses in self._search(sources, self.search)]


def better(first: list[Attempt], second: Attempt | None) -> list[Attempt]:
    """The attempts of the first search, behind that of the second one where less is wrong with that."""
    if second is None or second.wrong >= first[0].wrong:
        return first
    return [second, *first[1:]]


def with_words(pieces: Iterable[tuple[str, Ids]]) -> list[tuple[str, Ids]]:
    """The pieces and their ids. Nothing but white space is not searched for: it stays behind the piece before it."""
    found: list[tuple[str, Ids]] = []
    for text, ids in pieces:
        if text.strip():
            found.append((text, ids))
        elif found:
            found[-1] = found[-1][0] + text, found[-1][1]
    return found


def one_line(text: str) -> str:
    """Without the one character that would make two lines of it."""
    return text.replace("\n", " ")
