"""A translator whose search finds what a test dictates."""

from collections.abc import Callable, Sequence

from conftest import TINY

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.model import build
from dragoman.text import placeholders
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translator import Translator

Speech = Callable[[str, SearchConfig], str]  # the output for a source and the settings of a search

SPEECHES: dict[str, Speech] = {
    "the source": lambda text, _: text,
    "nothing": lambda text, _: "",
    "everything twice": lambda text, _: f"{text} {text}",
    "the words without placeholders": lambda text, _: placeholders.remove(text)[0],
    "something made up": lambda text, _: "%s <i>lorem {x} ipsum</i> https://other.example",
    "less at first, and then without an end": lambda text, search: (
        "Der Hund " * 60 if search.no_repeat_ngram else "Der Hund"
    ),
    "the words backwards": lambda text, _: " ".join(reversed(text.split())),
}


class DictatedEngine:
    """Find what a speech makes of each source, behind the prefix if asked to honour it, and count the searches."""

    max_positions: int | None = None

    def __init__(self, tokenizer: Tokenizer, speech: Speech, honour_prefix: bool = False):
        self.tokenizer, self.speech, self.honour_prefix, self.searches = tokenizer, speech, honour_prefix, 0

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        self.searches += len(sources)
        outputs = [self.tokenizer.encode(self.speech(self.tokenizer.decode(ids), config)) for ids in sources]
        if self.honour_prefix:
            outputs = [[*own.prefix, *ids] for own, ids in zip(constraints or [], outputs, strict=True)]
        return [[Hypothesis(ids, -1.0)] for ids in outputs]


def dictated(
    tokenizer: Tokenizer, speech: Speech, safeguards: Safeguards = Safeguards(), honour_prefix: bool = False
) -> Translator:
    """Return a translator that says what `speech` makes of each source."""
    model = build(TINY, len(tokenizer)).eval()
    engine = DictatedEngine(tokenizer, speech, honour_prefix)
    return Translator(model, tokenizer, SearchConfig(beam=1), safeguards, engine)
