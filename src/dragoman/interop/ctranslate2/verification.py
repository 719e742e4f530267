"""Prove that a copy in CTranslate2 translates as the model itself does."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.interop.ctranslate2.conversion import import_ctranslate2
from dragoman.interop.ctranslate2.engine import CTranslate2Engine, token_count
from dragoman.model import Model

SAMPLES, SAMPLE_LENGTH = 16, 16  # made-up sources that a new copy has to translate as the model does
TOLERANCE = 1e-3  # nats for each token: less than this is rounding


def verify_copy(model: Model, engine: CTranslate2Engine, sample: Sequence[Ids], folder: Path) -> None:
    """Raise DragomanError where greedy searches of `engine`, in float32, and of `model` give different words or scores.

    sample: sources to translate; some made-up ones are translated, too.
    """
    vocabulary, made = len(engine.source_pieces), random.Random(0)
    max_length = min(SAMPLE_LENGTH, (engine.max_positions or SAMPLE_LENGTH + 1) - 1)
    sources = [
        [made.randrange(EOS + 1, vocabulary) for _ in range(made.randint(1, max_length))] for _ in range(SAMPLES)
    ]
    sources += [list(ids) for ids in sample if ids]
    greedy = SearchConfig(beam=1, extra_length=SAMPLE_LENGTH, length_penalty=0)
    ours, theirs = TorchEngine(model).search(sources, greedy), engine.search(sources, greedy)
    for source, (one,), (other,) in zip(sources, ours, theirs, strict=True):
        if one.tokens == other.tokens:
            same = abs(one.score - other.score) < TOLERANCE * token_count(one)
        else:
            same = is_tie(model, source, one.tokens, other.tokens)
        if not same:
            raise DragomanError(
                f"{folder}: CTranslate2 {import_ctranslate2().__version__} does not translate as the model itself does "
                f"(for the source ids {source}): use the native engine"
            )


@torch.inference_mode()
def is_tie(model: Model, source: Ids, one: Ids, other: Ids) -> bool:
    """Return whether two different outputs differ first in tokens of the same probability.

    Between these, rounding decides. one, other: their ids without EOS.
    """
    pairs = zip([*one, EOS], [*other, EOS], strict=False)
    position, tokens = next((position, list(pair)) for position, pair in enumerate(pairs) if pair[0] != pair[1])
    device = next(model.parameters()).device
    target = torch.tensor([[BOS, *one[:position]]], device=device)
    log_p = model(source_batch([source]).to(device), target)[0, -1].log_softmax(-1)[tokens]
    return bool((log_p[0] - log_p[1]).abs() < TOLERANCE)
