"""Text in, text out. Ids and search are below, commands and servers above."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from dragoman.batches import Ids, source_batch
from dragoman.config import SearchConfig
from dragoman.decoding.search import Hypothesis, beam_search, greedy_search
from dragoman.folder import read_model
from dragoman.model import Model
from dragoman.tokenizer import BOS, EOS, Tokenizer

LONGEST = 512  # source tokens searched for at once; longer texts are translated in parts

# Rows of a batch times its longest source: bounds memory, not results.
SEARCH_TOKENS = 4096


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # log-probability in nats, divided by the length penalty; the sum over parts; 0.0 for blank text
    parts: int = 1  # how many parts the source was cut into, because it was longer than LONGEST
    finished: bool = True  # False: the model did not come to an end of its own


class Translator:
    """A model, its tokenizer and how to search."""

    def __init__(self, model: Model, tokenizer: Tokenizer, search: SearchConfig = SearchConfig()):
        self.model, self.tokenizer, self.search = model, tokenizer, search

    @classmethod
    def load(cls, folder: str | Path, search: SearchConfig = SearchConfig()) -> "Translator":
        """Raises DragomanError naming the file where the model folder is missing or damaged."""
        return cls(*read_model(Path(folder)), search)

    def translate(self, texts: Sequence[str], tags: Sequence[str] | None = None) -> list[Translation]:
        """One translation per text, in order. Blank text stays as it is; line breaks inside a text become spaces.

        `tags`, one for each text, are those that the model was trained with; '' for none. Raises DragomanError naming
        the tags that there are.
        """
        return self._translate_block(list(texts), tags or [""] * len(texts))

    def stream(self, texts: Iterable[str], chunk: int = 1024, tag: str = "") -> Iterator[Translation]:
        """The same for any number of texts with one tag, `chunk` of them in memory at a time."""
        texts = iter(texts)
        while block := list(islice(texts, chunk)):
            yield from self._translate_block(block, [tag] * len(block))

    def _translate_block(self, texts: list[str], tags: Sequence[str]) -> list[Translation]:
        written = [index for index, text in enumerate(texts) if text.strip()]
        ids = self.tokenizer.encode_all([texts[index] for index in written])
        owners: list[int] = []
        parts: list[Ids] = []
        for index, sentence in zip(written, ids, strict=True):
            tag = self.tokenizer.front(tags[index])
            longest = self.longest - len(tag)
            for start in range(0, len(sentence), longest):
                owners.append(index)
                parts.append(tag + sentence[start : start + longest])
        found: dict[int, list[Hypothesis]] = {index: [] for index in written}
        for index, hypothesis in zip(owners, self.search_ids(parts), strict=True):
            found[index].append(hypothesis)
        return [self._joined(text, found.get(index)) for index, text in enumerate(texts)]

    def _joined(self, text: str, found: list[Hypothesis] | None) -> Translation:
        if not found:
            return Translation(one_line(text), 0.0)
        words = " ".join(self.tokenizer.decode(hypothesis.tokens) for hypothesis in found)
        return Translation(one_line(words), sum(h.score for h in found), len(found), all(h.finished for h in found))

    @property
    def longest(self) -> int:
        """The most source tokens, without the end, that are searched for at once."""
        return min(LONGEST, (self.model.config.longest or LONGEST + 1) - 1)

    def search_ids(self, sources: Sequence[Ids]) -> list[Hypothesis]:
        """The best hypothesis for each source, in order; similar lengths are searched for together."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        best: dict[int, Hypothesis] = {}
        start = 0
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * (len(sources[order[end]]) + 1) <= self.batch_tokens:
                end += 1
            batch = order[start:end]
            for index, hypothesis in zip(batch, self._search_batch([sources[i] for i in batch]), strict=True):
                best[index] = hypothesis
            start = end
        return [best[index] for index in range(len(sources))]

    @property
    def batch_tokens(self) -> int:
        return SEARCH_TOKENS // self.search.beam

    def _search_batch(self, sources: list[Ids]) -> list[Hypothesis]:
        search, device = self.search, next(self.model.parameters()).device
        source = source_batch(sources).to(device)
        most = self.model.config.longest
        lengths = [len(ids) + search.extra_length for ids in sources]
        limits = torch.tensor([min(length, most or length) for length in lengths], device=device)
        if search.beam == 1:
            return greedy_search(self.model, source, bos=BOS, eos=EOS, max_lengths=limits, alpha=search.length_penalty)
        found = beam_search(
            self.model,
            source,
            beams=search.beam,
            alpha=search.length_penalty,
            bos=BOS,
            eos=EOS,
            max_lengths=limits,
            n_best=1,
        )
        return [hypotheses[0] for hypotheses in found]


def one_line(text: str) -> str:
    """Without the one character that would make two lines of it."""
    return text.replace("\n", " ")
