"""How good a model is: its loss on the dev pairs, and the scores of its greedy translations."""

import math
from dataclasses import dataclass

import torch

from dragoman.batches import plan
from dragoman.config import SearchConfig
from dragoman.corpus import Corpus
from dragoman.dataset import Pairs
from dragoman.evaluation import Scores, evaluate
from dragoman.model import Model
from dragoman.tokenizer import Tokenizer
from dragoman.training.ranks import Ranks
from dragoman.training.step import Objective
from dragoman.translator import Translator

BLOCK = 64  # sentences that one process translates at a time
LOSS_TOKENS = 4096  # tokens in a batch


@dataclass(frozen=True)
class Validation:
    loss: float  # nats per target token, end included, without label smoothing
    scores: Scores
    translations: list[str]


@torch.inference_mode()
def validate(model: Model, tokenizer: Tokenizer, pairs: Pairs, corpus: Corpus, ranks: Ranks) -> Validation:
    """The dev pairs in fixed blocks, shared out among the processes: any number of them finds the same."""
    model.eval()
    return Validation(mean_loss(model, pairs, ranks), *translated(model, tokenizer, corpus, ranks))


def mean_loss(model: Model, pairs: Pairs, ranks: Ranks) -> float:
    objective = Objective(model, 0.0)
    batches = plan(pairs.lengths, max(LOSS_TOKENS, int(pairs.lengths.max())), 0, 0)
    mine = [
        float(objective(pairs.batch(batches[number]).to(ranks.device)))
        for number in range(ranks.rank, len(batches), ranks.size)
    ]
    total = math.fsum(loss for losses in ranks.gather(mine) for loss in losses)
    return total / int(pairs.lengths[:, 1].sum())


def translated(model: Model, tokenizer: Tokenizer, corpus: Corpus, ranks: Ranks) -> tuple[Scores, list[str]]:
    translator = Translator(model, tokenizer, SearchConfig(beam=1))
    sources, references = zip(*corpus.pairs, strict=True)
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
    mine: list[list[str]] = []
    for block in blocks[ranks.rank :: ranks.size]:
        tags = [corpus.tags[index] for index in block]
        mine.append([found.text for found in translator.translate([sources[index] for index in block], tags)])
    texts = [""] * len(sources)
    for rank, found in enumerate(ranks.gather(mine)):
        for block, translations in zip(blocks[rank :: ranks.size], found, strict=True):
            for index, text in zip(block, translations, strict=True):
                texts[index] = text
    return evaluate(texts, list[str](references)), texts


def better(found: Validation, stop_on: str, best: float, best_loss: float) -> tuple[bool, float]:
    """Whether that is the best so far, and its score, higher is better.

    Where the score says nothing, as BLEU in the first epochs or for scripts without spaces, the loss decides.
    """
    score = {"loss": -found.loss, "bleu": found.scores.bleu.value, "chrf": found.scores.chrf.value}[stop_on]
    return (score, -found.loss) > (best, -best_loss), score
