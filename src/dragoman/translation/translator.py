"""Text in, text out. Ids and search are below, commands and servers above."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from dragoman import alignment
from dragoman.config import Device, SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.device import device_of
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model
from dragoman.model_folder import find_model, read_model
from dragoman.text import faults, placeholders
from dragoman.text.glossary import Glossary, TermMatch, report
from dragoman.text.segmentation import pieces
from dragoman.translation.annotate import Annotator
from dragoman.translation.coverage import rerank_by_coverage
from dragoman.translation.terms import token_boundaries, token_sequences

LONGEST = 512  # source tokens searched for at once; longer texts are translated in parts
WIDE_SPACE = re.compile(r"\s{3,}")  # no model has learned to read that
CAREFUL_BEAM, CAREFUL_NO_REPEAT = 4, 3  # of the second search, where the first one ended in nonsense


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # log-probability in nats, divided by the length penalty; the sum over parts; 0.0 for blank text
    segments: int = 1  # how many segments the source was cut into, because it was longer than the model takes
    finished: bool = True  # False: the model did not come to an end of its own
    flags: tuple[str, ...] = ()  # what is wrong with it, in words: 'loop', 'lost {name}', 'no brake pad'
    retried: bool = False  # whether it was searched for twice, because something was wrong with the first one
    terms_met: tuple[str, ...] = ()  # source terms of the glossary whose target terms it has
    alternatives: tuple["Translation", ...] = ()  # the next best, the best first


@dataclass(frozen=True)
class Safeguards:
    """What a translation is held to, beside being probable."""

    placeholders: bool = True  # placeholders, tags, addresses and code come back as they are, once each
    numbers: bool = False  # so do numbers with units
    faults: bool = True  # no loops, no copies, nothing empty or far too long
    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()  # no such words

    def __post_init__(self) -> None:
        if not all(map(str.strip, self.forbidden)):
            raise UsageError("a forbidden word must not be blank")


NO_SAFEGUARDS = Safeguards(placeholders=False, faults=False)


@dataclass(frozen=True)
class Segment:
    """As much of a text as is searched for at once."""

    text: str
    ids: Ids
    tag: Ids = field(default_factory=list)
    prefix: str = ""
    begins: Ids = field(default_factory=list)  # the ids of the prefix
    terms: tuple[TermMatch, ...] = ()


@dataclass(frozen=True)
class Candidate:
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
        safeguards: Safeguards = Safeguards(),
        engine: Engine | None = None,
    ):
        self.model, self.tokenizer, self.search, self.safeguards = model, tokenizer, search, safeguards
        self.engine = engine or TorchEngine(model, edges=token_boundaries(tokenizer))
        self.scripts: tuple[str, ...] = ()  # in which the target language is written, as `guards` names them

    @classmethod
    def load(
        cls,
        folder: str | Path,
        search: SearchConfig = SearchConfig(),
        safeguards: Safeguards = Safeguards(),
        ensemble: Sequence[str | Path] = (),
        device: Device = "auto",
    ) -> "Translator":
        """ensemble: further models, whose probabilities are averaged with those of the first.

        Raises DragomanError naming the file where a model folder is missing or damaged, and the folder where a model
        has another tokenizer than the first.
        """
        where = device_of(device)
        model, tokenizer = read_model(Path(folder))
        translator = cls(model.to(where), tokenizer, search, safeguards)
        if measured := alignment.Alignment.load(Path(folder)):
            translator.aligned_by = measured
        translator.scripts = faults.read_scripts(find_model(Path(folder)))
        others = [read_model(Path(other)) for other in ensemble]
        for name, (_, tokenizer) in zip(ensemble, others, strict=True):
            if (tokenizer.pieces, tokenizer.merges) != (translator.tokenizer.pieces, translator.tokenizer.merges):
                raise DragomanError(f"{name}: its tokenizer is not that of {folder}, so they cannot translate together")
        if others:
            models = [translator.model, *(other.to(where) for other, _ in others)]
            translator.engine = TorchEngine(*models, edges=token_boundaries(translator.tokenizer))
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
        parts: list[Segment] = []
        owned: list[range] = []  # the parts of each text
        for text, ids, tag, prefix in zip(texts, self.tokenizer.encode_all(texts), tags, prefixes, strict=True):
            start = len(parts)
            parts += self._parts(text, ids, self.tokenizer.tag_ids(tag), prefix) if text.strip() else []
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

    def _parts(self, text: str, ids: Ids, tag: Ids, prefix: str) -> Iterator[Segment]:
        """The text, or its sentences where it is longer than the model takes."""
        longest, cut = self.max_source_tokens - len(tag), [(text, ids)]
        if len(ids) > longest:
            text = WIDE_SPACE.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)
            texts = pieces(text, lambda piece: len(self.tokenizer.encode(piece)) <= longest)
            cut = with_words(zip(texts, self.tokenizer.encode_all(texts), strict=True))
        for number, (piece, of_piece) in enumerate(cut):
            begun = "" if number else prefix
            yield Segment(
                piece, of_piece, tag, begun, self.tokenizer.encode(begun) if begun else [], self._terms(piece)
            )

    def _terms(self, text: str) -> tuple[TermMatch, ...]:
        """Those of the glossary, but not inside of what has to come back as it is."""
        if not self.safeguards.glossary:
            return ()
        verbatim = placeholders.find(text, self.safeguards.numbers) if self.safeguards.placeholders else []
        return tuple(
            found
            for found in self.safeguards.glossary.find(text)
            if all(found.end <= one.start or one.end <= found.start for one in verbatim)
        )

    def _attempts(self, parts: Sequence[Segment], search: SearchConfig) -> list[list[Candidate]]:
        """What a search finds for each part, the best first."""
        found = self._search(
            [part.tag + part.ids for part in parts], search, [self._constraints(part) for part in parts]
        )
        return [
            [self._attempt(part, self.tokenizer.decode(hypothesis.tokens), hypothesis) for hypothesis in hypotheses]
            for part, hypotheses in zip(parts, found, strict=True)
        ]

    def _search(
        self, sources: Sequence[Ids], search: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """What the engine finds; with a coverage penalty, the best of all its beams by that, too."""
        if not search.coverage_penalty or self.aligned_by is None:
            return self.engine.search(sources, search, constraints)
        found = self.engine.search(sources, replace(search, n_best=search.beam, coverage_penalty=0.0), constraints)
        best = rerank_by_coverage(self.model, sources, found, search.coverage_penalty, self.aligned_by)
        return [some[: search.n_best] for some in best]

    def _constraints(self, part: Segment) -> Constraints:
        return Constraints(tuple(part.begins), token_sequences(part.terms, self.tokenizer), self._forbidden)

    @cached_property
    def _forbidden(self) -> tuple[tuple[int, ...], ...]:
        """Each forbidden word in the tokens it has after a space and at the beginning."""
        spelled = [form for word in self.safeguards.forbidden for form in (word, f" {word}")]
        return tuple(dict.fromkeys(tuple(ids) for ids in self.tokenizer.encode_all(spelled)))

    def _attempt(self, part: Segment, text: str, hypothesis: Hypothesis) -> Candidate:
        safeguards = self.safeguards
        flags: list[str] = []
        if safeguards.faults:
            flags += faults.faults(part.text, text, finished=hypothesis.finished, scripts=self.scripts)
        broken: list[str] = []
        if safeguards.placeholders:
            lost, invented = placeholders.compare(part.text, text, safeguards.numbers, part.prefix)
            broken = [f"lost {found}" for found in lost] + [f"invented {found}" for found in invented]
        flags += broken
        if part.terms:
            flags += [f"no {found.entry.source}" for found in report(part.terms, text).missed]
        flags += [f"has {word}" for word in safeguards.forbidden if word in text]
        if hypothesis.tokens[: len(part.begins)] != part.begins:
            flags.append("lost prefix")
        return Candidate(text, hypothesis, tuple(flags), len(broken))

    def _again(self, parts: list[Segment]) -> list[Candidate]:
        """A more careful search, with placeholders taken out before and put back after it."""
        search = replace(
            self.search,
            beam=max(self.search.beam, CAREFUL_BEAM),
            beam_groups=1,
            n_best=1,
            no_repeat_ngram=self.search.no_repeat_ngram or CAREFUL_NO_REPEAT,
            temperature=None,
            top_k=None,
            top_p=1.0,
        )
        taken_out = [
            placeholders.remove(part.text, self.safeguards.numbers) if self.safeguards.placeholders else (part.text, [])
            for part in parts
        ]
        ids_of = self.tokenizer.encode_all([text for text, _ in taken_out])
        plain = [replace(p, text=text, ids=ids) for p, (text, _), ids in zip(parts, taken_out, ids_of, strict=True)]
        written = [number for number, part in enumerate(plain) if any(map(str.isalnum, part.text))]
        found = dict(zip(written, self._attempts([plain[number] for number in written], search), strict=True))
        attempts = []
        for number, (part, bare, (_, taken)) in enumerate(zip(parts, plain, taken_out, strict=True)):
            if number not in found:  # nothing but placeholders: there is nothing to translate
                said = Candidate(f"{part.prefix} {bare.text}", Hypothesis([], 0.0), ())
                text = self._put_back(bare, said, taken).strip() if part.prefix else part.text
                attempts.append(replace(said, text=text))
                continue
            (attempt,) = found[number]
            attempts.append(self._attempt(part, self._put_back(bare, attempt, taken), attempt.hypothesis))
        return attempts

    def _put_back(self, bare: Segment, attempt: Candidate, taken: Sequence[placeholders.Removed]) -> str:
        """The translation with what was taken out of its source, and with nothing of that kind that it made up. As it
        had to begin, it does; what stands there already does not come twice.
        """
        if not self.safeguards.placeholders:
            return attempt.text
        begun = bare.prefix if attempt.text.startswith(bare.prefix) else ""
        text = attempt.text[len(begun) :].lstrip()
        begun = attempt.text[: len(attempt.text) - len(text)]
        there, left = Counter(placeholder.text for placeholder in placeholders.find(begun, self.safeguards.numbers)), []
        for one in taken:
            if there[one.text]:
                there[one.text] -= 1
            else:
                left.append(one)
        links = None
        if placeholders.find(text, self.safeguards.numbers):
            text = placeholders.remove(text, self.safeguards.numbers)[0]
        elif left and (of_all := self.annotator.links(bare.ids, attempt.hypothesis.tokens, bare.tag)):
            links = [(source, target - len(begun)) for source, target in of_all if target >= len(begun)]
        return begun + placeholders.restore(text, bare.text, left, links, self.safeguards.numbers)

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

    def _joined(self, parts: list[Segment], found: list[list[Candidate]], again: bool) -> Translation:
        """The best attempts of all parts together, then the second best ones, and so on."""
        ranks = max(map(len, found))
        best, *others = (
            self._translation(parts, [attempts[min(rank, len(attempts) - 1)] for attempts in found])
            for rank in range(ranks)
        )
        return replace(best, retried=again, alternatives=tuple(others))

    def _translation(self, parts: list[Segment], attempts: list[Candidate]) -> Translation:
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
            terms_met=tuple(met),
        )

    @property
    def max_source_tokens(self) -> int:
        """The most source tokens, without the end, that are searched for at once."""
        return min(LONGEST, (self.engine.max_positions or LONGEST + 1) - 1)

    def search_ids(self, sources: Sequence[Ids]) -> list[Hypothesis]:
        """The best hypothesis for each source, in order."""
        return [hypotheses[0] for hypotheses in self._search(sources, self.search)]


def better(first: list[Candidate], second: Candidate | None) -> list[Candidate]:
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
