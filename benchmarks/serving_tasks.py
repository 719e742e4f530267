"""Describe what servers are asked in `python -m benchmarks serving`, and what they did meanwhile."""

import json
import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.clients import Answer, Plan, Request, ask
from benchmarks.server_process import PAIR, ServerProcess, our_server
from dragoman.data.tokenizers import SideTokenizer
from dragoman.errors import DragomanError, UsageError

LENGTH = 39  # tokens of a text, EOS included, where all have one length
TEXTS = 2000  # of one length, at most
WORD = re.compile(r"\w[\w'-]*")
LANGUAGES = dict(zip(("source", "target"), PAIR.split("-"), strict=True))
CUT = "=cut="  # between the parts of a form
UNCACHED = ("--cache", "0")
PATIENT = (*UNCACHED, "--max-wait", "60")  # refuses nobody


@dataclass(frozen=True)
class Setting:
    """What is served and asked for, and how long."""

    model: Path
    alike: list[str]  # texts of LENGTH tokens
    sentences: list[str]  # of a test set
    folder: Path  # for logs and documents
    threads: int  # of the native engine
    rounds: int
    seconds: float  # of a turn
    minutes: float  # of steady load
    requests: int  # of the soak

    def native(self, name: str, *flags: str) -> AbstractContextManager[ServerProcess]:
        """Run our server with the native engine within the block; its log has this name."""
        return our_server(self.model, self.folder / name, "--threads", str(self.threads), *flags)


def texts_of_length(tokens: int, sentences: Sequence[str], tokenizer: SideTokenizer) -> list[str]:
    """Return distinct runs of words of the sentences, without punctuation, that have so many tokens with EOS.

    Raise UsageError where there are none.
    """
    words = [word for sentence in sentences for word in WORD.findall(sentence)]
    counts = [len(ids) for ids in tokenizer.encode_all(words)]
    runs: dict[str, None] = {}
    for start in range(len(words)):
        end, count = start, 0
        while end < len(words) and count < tokens - 1:
            count += counts[end]
            end += 1
        if len(tokenizer.encode(text := " ".join(words[start:end]))) == tokens - 1:
            runs[text] = None
    if not runs:
        raise UsageError(f"the test set is too small: it has no run of words with {tokens} tokens")
    return Random(1).sample(list(runs), min(TEXTS, len(runs)))


def requests_for(texts: Sequence[str]) -> list[Request]:
    """Return a request for each text, in the form that our server and its peer understand."""
    return [Request("/translate", json.dumps({"q": text, **LANGUAGES})) for text in texts]


def document_of(sentences: Sequence[str]) -> Request:
    """Return the request to translate a document with a sentence in each line."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in LANGUAGES.items()]
    lines = "\n".join(sentences)
    parts.append(f'Content-Disposition: form-data; name="file"; filename="long.txt"\r\n\r\n{lines}')
    body = "".join(f"--{CUT}\r\n{part}\r\n" for part in parts) + f"--{CUT}--\r\n"
    return Request("/translate_file", body, f'multipart/form-data; boundary="{CUT}"')


@dataclass(frozen=True)
class Turn:
    """What a server did while it was asked."""

    answers: list[Answer]
    processor: float  # seconds of processor time

    @property
    def rate(self) -> float:
        """Return the answers a second."""
        return len(self.answers) / (max(answer.end for answer in self.answers) - self.answers[0].due)

    @property
    def times(self) -> list[float]:
        """Return the seconds that each answer took."""
        return [answer.seconds for answer in self.answers]


def take_turn(server: ServerProcess, plan: Plan) -> Turn:
    """Ask a server. Raise DragomanError where an answer is not 200."""
    before = server.processor_time()
    turn = Turn(ask(plan), server.processor_time() - before)
    wrong = [answer.status for answer in turn.answers if answer.status != 200]
    if wrong or not turn.answers:
        raise DragomanError(f"{len(wrong):,} of {len(turn.answers):,} requests failed; the first status: {wrong[:1]}")
    return turn


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as large as this share of all values; NaN where there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def milliseconds(seconds: float) -> str:
    """Return '12.3' for 0.0123, and '123' for 0.123."""
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.1f}"
