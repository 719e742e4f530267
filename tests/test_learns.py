"""The real model, loss, optimizer and search learn tasks whose answer is known."""

import time
from collections.abc import Callable

import pytest
import torch
from conftest import tiny_transformer

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch, Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.search import OutputSpec, finish, greedy_search
from dragoman.model import Model, build
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner
from dragoman.training.optimizer import paper_rate

SYMBOLS, LONGEST = 16, 6
STEPS = 2000  # a quarter is enough
SECONDS = 60.0  # of computing; a limit by the clock would ask what else the machine does
CONFIG = tiny_transformer(d_model=32, heads=4, d_ff=64, dropout=0, norm_first=True)

TASKS: dict[str, Callable[[Ids], Ids]] = {"copy": lambda ids: ids, "reverse": lambda ids: ids[::-1]}


def sentences(count: int, seed: int) -> list[Ids]:
    random = torch.Generator().manual_seed(seed + 1)
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=random).tolist()
    return [torch.randint(3, SYMBOLS, (length,), generator=random).tolist() for length in lengths]


def learn(task: Callable[[Ids], Ids], good_enough: float, seed: int) -> tuple[Model, float]:
    """Train until the accuracy on unseen sentences is good enough, for so many steps at most."""
    torch.manual_seed(seed)
    model, settings = build(CONFIG, SYMBOLS), TrainingConfig(label_smoothing=0.1, precision="float32")
    learner = Learner(model, settings, ProcessGroup(torch.device("cpu")))
    reached, step = 0.0, 0
    while reached < good_enough and step < STEPS:
        step += 1
        ids = sentences(64, seed=STEPS * seed + step)
        batch = Batch.of(ids, [task(each) for each in ids])
        learner.update([batch], batch.tokens, paper_rate(step, CONFIG.d_model, 200), (seed, step))
        if step % 50 == 0:
            reached = accuracy(model, task)
    return model, reached


def accuracy(model: Model, task: Callable[[Ids], Ids]) -> float:
    """The share of tokens, ends included, that greedy search gets right in unseen sentences."""
    sources = sentences(200, seed=-1)
    limits = torch.tensor([len(ids) + 5 for ids in sources])
    found = finish(greedy_search(model.eval(), source_batch(sources), OutputSpec(BOS, EOS, limits)))
    right = total = 0
    for source, (hypothesis,) in zip(sources, found, strict=True):
        wanted = [*task(source), EOS]
        given = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
        right += sum(a == b for a, b in zip(wanted, given, strict=False))
        total += max(len(wanted), len(given))
    return right / total


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize("name", TASKS)
def test_it_learns_to_copy_and_to_reverse_in_few_steps(name: str, seed: int):
    began = time.process_time()
    model, reached = learn(TASKS[name], 0.995, seed)
    assert reached >= 0.99
    assert time.process_time() - began < SECONDS
    other = TASKS["reverse" if name == "copy" else "copy"]
    assert accuracy(model, other) < 0.7  # what was learned is this task and not the other
