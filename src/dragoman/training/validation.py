"""Validate a model: its loss on the dev pairs, and the scores of its greedy translations."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import plan_batches
from dragoman.data.corpus import Corpus
from dragoman.data.dataset import Pairs
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.parts import EngineInParts
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.model import Model
from dragoman.runtime.device import TIMES_AT_ONCE, wide_products
from dragoman.training.distributed import ProcessGroup
from dragoman.training.loss import Objective
from dragoman.training.memory import return_freed_memory
from dragoman.training.signals import GracefulStop
from dragoman.translation.engines import torch_engine
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

MAX_TOKENS = 4096  # of a sentence
# In a batch for the loss; a pair with more is alone in one. On a CPU they are few: their memory comes on top of
# training's.
LOSS_TOKENS = {"cpu": 1024, "cuda": 32768}
# What one process translates at a time, and the tokens of all its sources; on a GPU, TIMES_AT_ONCE as many.
BLOCK, SEARCH_TOKENS = 64, 4096


@dataclass(frozen=True)
class Validation:
    """The loss in nats per target token (EOS included, labels not smoothed), the scores, and the translations."""

    loss: float
    scores: Scores
    translations: list[str]


@torch.inference_mode()
def validate(
    model: Model,
    tokenizers: Tokenizers,
    pairs: Pairs,
    corpus: Corpus,
    group: ProcessGroup,
    stop: GracefulStop,
    show: Callable[[float], None],
) -> Validation | None:
    """Return loss, scores and translations of the dev pairs; None where a process was asked to stop before the end.

    pairs, corpus: the same dev pairs as ids and as texts. show: told from time to time how much is translated, from 0
    to 1. All processes must call this; they share fixed blocks of pairs, so their number changes no result. A model
    whose loss is not finite cannot translate, so its translations are empty. Leaves the model in eval mode.
    """
    model.eval()
    show(0.0)
    return_freed_memory()  # training has kept it in blocks of other sizes than are needed here
    loss = mean_loss(model, pairs, group, stop)
    texts = [""] * len(corpus.pairs)
    if math.isfinite(loss):
        texts = translate_all(model, tokenizers, corpus, group, stop, show)
    return_freed_memory()
    if any(group.gather(bool(stop))):
        return None
    return Validation(loss, evaluate(texts, [reference for _, reference in corpus.pairs]), texts)


@wide_products()
def mean_loss(model: Model, pairs: Pairs, group: ProcessGroup, stop: GracefulStop) -> float:
    """Return the loss of the pairs in nats per target token, labels not smoothed; the model must be in eval mode.

    All processes must call this. The result means nothing where `stop` ends it early.
    """
    objective = Objective(model, 0.0)
    batches = plan_batches(pairs.lengths, LOSS_TOKENS[group.device.type], 0, 0)
    losses: list[float] = []
    for number in range(group.rank, len(batches), group.size):
        if stop:
            break
        losses.append(float(objective(pairs.batch(batches[number]).to(group.device))))
    total = math.fsum(chain.from_iterable(group.gather(losses)))
    return total / int(pairs.lengths[:, 1].sum())


def translate_all(
    model: Model,
    tokenizers: Tokenizers,
    corpus: Corpus,
    group: ProcessGroup,
    stop: GracefulStop,
    show: Callable[[float], None],
) -> list[str]:
    """Return the greedy translations of all sources in their order; empty ones where `stop` ends it early.

    All processes must call this. show: as for `validate`.
    """
    times = TIMES_AT_ONCE.get(group.device.type, 1)
    # A dev pair may be a whole book, and a process has to end some seconds after it is asked to.
    engine = EngineInParts(torch_engine([model], tokenizers.target), lambda *_: end_if(stop), SEARCH_TOKENS * times)
    translator = Translator(model, tokenizers, SearchConfig(beam=1, split="none"), NO_SAFEGUARDS, engine)
    sources = [source for source, _ in corpus.pairs]
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    blocks = [order[start : start + BLOCK * times] for start in range(0, len(order), BLOCK * times)]
    translated: list[list[str]] = []
    local_blocks = blocks[group.rank :: group.size]
    for number, block in enumerate(local_blocks):
        if stop:
            break
        show(number / len(local_blocks))
        tags, target_tags = ([of_corpus[index] for index in block] for of_corpus in (corpus.tags, corpus.target_tags))
        with contextlib.suppress(Stopped):
            translations = translator.translate([sources[index] for index in block], tags, target_tags=target_tags)
            translated.append([translation.text for translation in translations])
    texts = [""] * len(sources)
    for rank, rank_blocks in enumerate(group.gather(translated)):
        for block, block_texts in zip(blocks[rank :: group.size], rank_blocks, strict=False):
            for index, text in zip(block, block_texts, strict=True):
                texts[index] = text
    return texts


class Stopped(Exception):
    """A search was given up, because this process was asked to stop."""


def end_if(stop: GracefulStop) -> None:
    """Raise Stopped where this process was asked to stop."""
    if stop:
        raise Stopped


def is_better(validation: Validation, stop_on: str, best: float, best_loss: float) -> tuple[bool, float]:
    """Return whether the validation is better than the best so far, and its score by `stop_on`; higher is better.

    best, best_loss: score and loss of the best so far. Where scores are equal, as BLEU is 0 in the first epochs, the
    loss decides. A loss that is not finite is never better.
    """
    scores = validation.scores
    score = {"loss": -validation.loss, "bleu": scores.bleu.value, "chrf": scores.chrf.value}[stop_on]
    return math.isfinite(validation.loss) and (score, -validation.loss) > (best, -best_loss), score
