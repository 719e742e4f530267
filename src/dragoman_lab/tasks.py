"""Draw tasks whose answers are known, and learn them: the same batches for every model that is compared.

Shapes: B sentences, S source tokens, T target tokens, BOS and EOS included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, ModelConfig, TransformerConfig
from dragoman.data.batches import Batch, Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS, SPECIAL
from dragoman.decoding.search import OutputSpec, finish, greedy_search
from dragoman.model import Model, build
from dragoman.model.transformer import Transformer
from dragoman.training.optimizer import adam, paper_rate

Pair = tuple[Ids, Ids]
Rate = Callable[[int], float]


def small(d_model: int, layers: int = 1, decoder_layers: int | None = None, heads: int = 4) -> TransformerConfig:
    """Return a Transformer's settings without dropout, with feed-forward networks twice as wide as d_model. layers: on
    each side, unless decoder_layers is given.
    """
    return TransformerConfig(
        d_model=d_model,
        encoder_layers=layers,
        decoder_layers=layers if decoder_layers is None else decoder_layers,
        attention=AttentionConfig(heads=heads),
        feed_forward=FeedForwardConfig(d_ff=2 * d_model),
        dropout=0.0,
    )


@dataclass(frozen=True)
class Task:
    """Describe pairs drawn at random: `draw` makes one. `vocabulary` includes the special tokens, which never occur in
    a pair.
    """

    name: str
    vocabulary: int
    draw: Callable[[np.random.Generator], Pair]

    def pairs(self, count: int, seed: int) -> list[Pair]:
        """Return `count` pairs; the same seed gives the same ones."""
        random = np.random.default_rng(seed)
        return [self.draw(random) for _ in range(count)]


def random_words(random: np.random.Generator, vocabulary: int, length: int) -> Ids:
    """Return the ids of `length` random words. `vocabulary` includes the special tokens, which are not drawn."""
    return random.integers(len(SPECIAL), vocabulary, length).tolist()


def copying(vocabulary: int = 30, shortest: int = 1, longest: int = 10) -> Task:
    """Return the task whose target is the source: `shortest` to `longest` random words. `vocabulary` includes the
    special tokens, so there are len(SPECIAL) fewer words.
    """

    def draw(random: np.random.Generator) -> Pair:
        ids = random_words(random, vocabulary, int(random.integers(shortest, longest + 1)))
        return ids, ids

    return Task("copy", vocabulary, draw)


def reversing(vocabulary: int = 30, shortest: int = 1, longest: int = 10) -> Task:
    """Return the task whose target is the source from its end to its beginning: `shortest` to `longest` random words.
    `vocabulary` includes the special tokens, so there are len(SPECIAL) fewer words.
    """
    copy = copying(vocabulary, shortest, longest)

    def draw(random: np.random.Generator) -> Pair:
        ids, _ = copy.draw(random)
        return ids, ids[::-1]

    return Task("reverse", vocabulary, draw)


def recalling(distance: int, vocabulary: int = 20) -> Task:
    """Return the task whose target is the first word of the source, `distance` words before its last one; all words are
    random. `vocabulary` includes the special tokens, so there are len(SPECIAL) fewer words.
    """

    def draw(random: np.random.Generator) -> Pair:
        ids = random_words(random, vocabulary, distance + 1)
        return ids, ids[:1]

    return Task(f"recall over {distance} words", vocabulary, draw)


def warm_up(peak: float, steps: int) -> Rate:
    """Return a learning rate by step, from 1, that rises linearly to `peak` in so many steps and stays there."""
    return lambda step: peak * min(1.0, step / steps)


@dataclass(frozen=True)
class Learned:
    """Describe how a model learned."""

    losses: list[float]  # nats per target token, one per step
    accuracy: float  # share of unseen target tokens, EOS included, that are right given the words before them


def learn(
    model: Model, task: Task, *, steps: int, seed: int, rate: Rate | None = None, batch: int = 64, clip: float = 1.0
) -> Learned:
    """Train `model` in place on `steps` batches of fresh pairs of `task`; return the losses and the accuracy on 256
    unseen pairs. rate: by step, from 1; default: the paper's with a warm-up of 100 steps; batch: pairs; clip: largest
    norm of the gradient, 0: any. Leaves the model in eval mode.
    """
    rate = rate or (lambda step: paper_rate(step, model.config.d_model, 100))
    random = np.random.default_rng(seed)

    def loss() -> Tensor:
        return loss_and_hits(model, [task.draw(random) for _ in range(batch)])[0]

    losses = minimise(model.train(), loss, steps, rate, clip)
    return Learned(losses, accuracy(model, task.pairs(256, seed + 1_000_000)))


def learn_word_before(
    model: Transformer, distance: int, length: int, vocabulary: int, *, steps: int, seed: int, rate: float, tested: int
) -> Learned:
    """Train the encoder of `model` in place to name at each position the word `distance` before it, on batches of 32
    random sentences of `length` words; return the losses and the accuracy on `tested` new sentences. `vocabulary`
    includes the special tokens.
    """
    random = np.random.default_rng(seed)

    def loss_and_hits(sentences: int) -> tuple[Tensor, Tensor]:
        ids = torch.from_numpy(random.integers(len(SPECIAL), vocabulary, (sentences, length)))
        logits = model.output(model.start(ids).memory).unflatten(0, ids.shape)[:, distance:].flatten(0, 1)
        labels = ids[:, :-distance].flatten()
        return F.cross_entropy(logits, labels), logits.argmax(-1) == labels

    losses = minimise(model, lambda: loss_and_hits(32)[0], steps, lambda step: rate)
    with torch.no_grad():
        return Learned(losses, float(loss_and_hits(tested)[1].double().mean()))


def minimise(model: Model, loss: Callable[[], Tensor], steps: int, rate: Rate, clip: float = 0.0) -> list[float]:
    """Take `steps` steps of Adam on the weights of `model`, in place; return the losses. loss: called once for each
    step; rate: by step, from 1; clip: largest norm of the gradient, 0: any. The model keeps its mode, train or eval.
    """
    optimizer, losses = adam(model), []
    for step in range(1, steps + 1):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


def learn_with_seeds(
    config: ModelConfig, task: Task, *, steps: int, seeds: Sequence[int], rate: Rate, batch: int = 64, clip: float = 1.0
) -> list[Learned]:
    """Train a fresh model of `config` on `task` with each seed, as `learn` does; return what it returns, in the order
    of the seeds.
    """
    runs = []
    for seed in seeds:
        torch.manual_seed(seed)
        model = build(config, task.vocabulary)
        runs.append(learn(model, task, steps=steps, seed=seed, rate=rate, batch=batch, clip=clip))
    return runs


def make_batch(pairs: Sequence[Pair]) -> Batch:
    """Return the pairs as one padded batch."""
    return Batch.from_pairs(*map(list, zip(*pairs, strict=True)))


def loss_and_hits(model: Model, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of the target tokens, EOS included, in nats, and for each of them whether it was
    the most probable one, given the right words before it.
    """
    batch = make_batch(pairs)
    logits, labels = model(batch.source, batch.target, batch.real), batch.labels[batch.real]
    return F.cross_entropy(logits, labels), logits.argmax(-1) == labels


@torch.no_grad()
def accuracy(model: Model, pairs: Sequence[Pair]) -> float:
    """Return the share, 0 to 1, of target tokens, EOS included, that are the most probable ones given the right words
    before them. Leaves the model in eval mode.
    """
    return float(loss_and_hits(model.eval(), pairs)[1].double().mean())


def exact_share(model: Model, pairs: Sequence[Pair]) -> float:
    """Return the share, 0 to 1, of pairs whose target greedy search gives token for token up to EOS. Leaves the model
    in eval mode.
    """
    sources = [source for source, _ in pairs]
    limits = torch.tensor([len(target) + 5 for _, target in pairs])
    hypotheses = finish(greedy_search(model.eval(), source_batch(sources), OutputSpec(BOS, EOS, limits)))
    right = (h.finished and h.tokens == target for (h,), (_, target) in zip(hypotheses, pairs, strict=True))
    return sum(right) / len(pairs)


def mean_and_extremes(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, the lowest and the highest of some values, one for each seed."""
    return fmean(values), min(values), max(values)
