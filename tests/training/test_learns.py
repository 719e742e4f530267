"""The real model, loss, optimizer and search learn tasks whose answer is known."""

import time
from collections.abc import Callable

import pytest
import torch
from conftest import tiny_transformer

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch, Ids
from dragoman.model import Model, build
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner
from dragoman.training.optimizer import paper_rate
from dragoman_lab.tasks import exact_share

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
    """Train until so many unseen sentences come out exactly right, for so many steps at most."""
    torch.manual_seed(seed)
    model, settings = build(CONFIG, SYMBOLS), TrainingConfig(label_smoothing=0.1, precision="float32")
    learner = Learner(model, settings, ProcessGroup(torch.device("cpu")))
    reached, step = 0.0, 0
    while reached < good_enough and step < STEPS:
        step += 1
        ids = sentences(64, seed=STEPS * seed + step)
        batch = Batch.from_pairs(ids, [task(each) for each in ids])
        learner.update([batch], batch.tokens, paper_rate(step, CONFIG.d_model, 200), (seed, step))
        if step % 50 == 0:
            reached = exact(model, task)
    return model, reached


def exact(model: Model, task: Callable[[Ids], Ids]) -> float:
    """The share of unseen sentences of which greedy search gets every token right, the end included."""
    return exact_share(model, [(ids, task(ids)) for ids in sentences(200, seed=-1)])


@pytest.mark.parametrize(
    ("seed", "share"), [(1, 0.9), *(pytest.param(n, 0.99, marks=pytest.mark.slow) for n in (1, 2, 3))]
)
@pytest.mark.parametrize("name", ["copy", pytest.param("reverse", marks=pytest.mark.slow)])
def test_model_learns_to_copy_and_to_reverse_in_few_steps(name: str, seed: int, share: float):
    began = time.process_time()
    model, reached = learn(TASKS[name], share, seed)
    assert reached >= share
    assert time.process_time() - began < SECONDS
    other = TASKS["reverse" if name == "copy" else "copy"]
    assert exact(model, other) < 0.3  # what was learned is this task; one word in a sentence is the same in both
