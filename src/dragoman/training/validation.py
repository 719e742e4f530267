"""How good a model is: its loss on the dev pairs, and the scores of its greedy translations."""

import math
from dataclasses import dataclass

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import plan
from dragoman.data.corpus import Corpus
from dragoman.data.dataset import Pairs
from dragoman.data.tokenizer import Tokenizer
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.model import Model
from dragoman.training.distributed import ProcessGroup
from dragoman.training.signals import GracefulStop
from dragoman.training.step import Objective
from dragoman.translation.translator import NO_SAFEGUARDS, Translator

BLOCK = 64  # sentences that one process translates at a time
LOSS_TOKENS = 4096  # tokens in a batch, and in a sentence


@dataclass(frozen=True)
class Validation:
    loss: float  # nats per target token, end included, without label smoothing
    scores: Scores
    translations: list[str]


@torch.inference_mode()
def validate(
    model: Model, tokenizer: Tokenizer, pairs: Pairs, corpus: Corpus, ranks: ProcessGroup, stop: GracefulStop
) -> Validation | None:
    """The dev pairs in fixed blocks, shared out among the processes: any number of them finds the same.

    None where one of the processes was asked to stop before the end.
    """
    model.eval()
    loss = mean_loss(model, pairs, ranks, stop)
    texts = translated(model, tokenizer, corpus, ranks, stop)
    if any(ranks.gather(bool(stop))):
        return None
    return Validation(loss, evaluate(texts, [reference for _, reference in corpus.pairs]), texts)


def mean_loss(model: Model, pairs: Pairs, ranks: ProcessGroup, stop: GracefulStop) -> float:
    objective = Objective(model, 0.0)
    batches = plan(pairs.lengths, LOSS_TOKENS, 0, 0)
    mine: list[float] = []
    for number in range(ranks.rank, len(batches), ranks.size):
        if stop:
            break
        mine.append(float(objective(pairs.batch(batches[number]).to(ranks.device))))
    total = math.fsum(loss for losses in ranks.gather(mine) for loss in losses)
    return total / int(pairs.lengths[:, 1].sum())


def translated(
    model: Model, tokenizer: Tokenizer, corpus: Corpus, ranks: ProcessGroup, stop: GracefulStop
) -> list[str]:
    translator = Translator(model, tokenizer, SearchConfig(beam=1), NO_SAFEGUARDS)
    sources = [source for source, _ in corpus.pairs]
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
    mine: list[list[str]] = []
    for block in blocks[ranks.rank :: ranks.size]:
        if stop:
            break
        tags = [corpus.tags[index] for index in block]
        mine.append([found.text for found in translator.translate([sources[index] for index in block], tags)])
    texts = [""] * len(sources)
    for rank, found in enumerate(ranks.gather(mine)):
        for block, translations in zip(blocks[rank :: ranks.size], found, strict=False):
            for index, text in zip(block, translations, strict=True):
                texts[index] = text
    return texts


def better(found: Validation, stop_on: str, best: float, best_loss: float) -> tuple[bool, float]:
    """Whether that is the best so far, and its score, higher is better.

    Where the score says nothing, as BLEU in the first epochs or for scripts without spaces, the loss decides.
    """
    score = {"loss": -found.loss, "bleu": found.scores.bleu.value, "chrf": found.scores.chrf.value}[stop_on]
    return (score, -found.loss) > (best, -best_loss), score
