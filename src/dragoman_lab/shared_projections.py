"""One matrix for query, key and value, or one for each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean

import torch
from torch import Tensor

from dragoman.config import TransformerConfig
from dragoman.inspection.cost import cost
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.packing import Packing
from dragoman.model.transformer import Transformer
from dragoman_lab.ablation import share_projections
from dragoman_lab.drawing import LOSS, Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Learned, learn, learn_word_before, mean_and_extremes, reversing, small

VOCABULARY, LENGTH = 30, 12  # special words included; words of a sentence in which each names the one before
STEPS, BATCH, RATE, WINDOW = 1600, 32, 3e-3, 20
CONFIG = replace(small(32, heads=1), norm_first=True)

# Which projections are the query's own matrix.
SEPARATE, PAIR, ONE = "three matrices", "W^Q = W^K", "one matrix"
SHARED: dict[str, tuple[str, ...]] = {SEPARATE: (), PAIR: ("key",), ONE: ("key", "value")}


def learn_reversing(model: Transformer, steps: int, seed: int) -> Learned:
    """Train the model in place to reverse sentences of up to 10 words."""
    return learn(model, reversing(VOCABULARY), steps=steps, seed=seed, rate=lambda step: RATE, batch=BATCH)


def learn_previous_word(model: Transformer, steps: int, seed: int) -> Learned:
    """Train the model's encoder in place to name at each position, from the second on, the word before it."""
    return learn_word_before(model, 1, LENGTH, VOCABULARY, steps=steps, seed=seed, rate=RATE, tested=256)


@dataclass(frozen=True)
class Exercise:
    """Describe a task, and the model that learns it."""

    name: str
    config: TransformerConfig
    learn: Callable[[Transformer, int, int], Learned]  # model, steps, seed


TASKS = (
    Exercise("reverse", CONFIG, learn_reversing),
    Exercise("the word before", replace(CONFIG, decoder_layers=0), learn_previous_word),
)


@dataclass(frozen=True)
class Check:
    """Describe what was measured on the three projections of one layer."""

    moved: float  # permuted rows of x against permuted rows of Q, K and V: the largest difference
    gradients: dict[str, float]  # norms, by projection


def measure_projections(seed: int) -> Check:
    """Measure how far projections change with the order of the words, and the norm of the gradient that each one gets,
    in a fresh attention layer on random vectors.
    """
    torch.manual_seed(seed)
    layer = MultiHeadAttention(CONFIG.d_model, CONFIG.attention)
    x, order = torch.randn(LENGTH, CONFIG.d_model), torch.randperm(LENGTH)
    projections = {"W^Q": layer.query, "W^K": layer.key, "W^V": layer.value}
    moved = max((projection(x[order]) - projection(x)[order]).abs().max().item() for projection in projections.values())
    packing = Packing.full(x[None, :, 0])
    layer(x, packing, layer.project(x, packing), None).square().sum().backward()
    norms = {
        name: float(projection.weight.grad.norm())
        for name, projection in projections.items()
        if projection.weight.grad is not None
    }
    return Check(moved, norms)


def train_sharing(task: Exercise, names: tuple[str, ...], seed: int, steps: int) -> tuple[int, Learned]:
    """Train a fresh model on a task, with the projections of these names shared; return its number of parameters, and
    how it learned.
    """
    torch.manual_seed(seed)
    model = Transformer(task.config, VOCABULARY)
    share_projections(model, names)
    return cost(model).parameters, task.learn(model, steps, seed)


def last_loss(learned: Learned) -> float:
    """Return the mean loss of the last WINDOW steps; no batch comes twice, so these sentences were unseen."""
    return mean(learned.losses[-WINDOW:])


def claims(losses: dict[tuple[str, str], list[float]], measured: Check) -> Claims:
    """Return each claim and whether it holds. losses: of the last steps, by task and sharing, one for each seed."""
    end = {task.name: {way: mean(losses[task.name, way]) for way in SHARED} for task in TASKS}
    clearly = {task.name: max(losses[task.name, SEPARATE]) < 0.9 * min(losses[task.name, ONE]) for task in TASKS}
    gradients = measured.gradients
    norms = ", ".join(f"{name} {norm:.2g}" for name, norm in measured.gradients.items())
    return {
        "Task 'reverse': three matrices [learn|do not learn] clearly better than one, in each seed: the loss ends at "
        f"{end['reverse'][SEPARATE]:.3f} nats per token with three, {end['reverse'][PAIR]:.3f} with W^Q = W^K, "
        f"{end['reverse'][ONE]:.3f} with one for all three.": clearly["reverse"],
        "Task 'the word before': three matrices [learn|do not learn] clearly better than one, in each seed: the loss "
        f"ends at {end['the word before'][SEPARATE]:.3f} nats per token with three, {end['the word before'][PAIR]:.3f} "
        f"with W^Q = W^K, {end['the word before'][ONE]:.3f} with one for all three.": clearly["the word before"],
        f"Gradients [reach|do not reach] all three matrices ({norms}).": len(gradients) == 3
        and min(gradients.values()) > 0,
        "The matrices are [the same|not the same] at every position: if the words are reordered, so are [their|not "
        f"always their] queries, keys and values (largest difference {measured.moved:.0e}).": measured.moved < 1e-5,
    }


@experiment(
    "One matrix or three",
    "common teaching; section 3.2.2",
    "The inner product has nothing to learn, but the matrices before it have; and because query, key and value have "
    "three roles, they need three matrices rather than one. Each matrix is the same for all positions.",
)
def run(effort: Effort) -> Findings:
    """Train models with shared and separate projections on two tasks, and measure one layer."""
    steps = effort.scale(STEPS)
    runs = {
        (task.name, way): [train_sharing(task, names, seed, steps) for seed in effort.seeds]
        for task in TASKS
        for way, names in SHARED.items()
    }
    losses = {key: [last_loss(learned) for _, learned in same] for key, same in runs.items()}
    width = min(WINDOW, steps)

    def smooth(task: str, way: str) -> Tensor:
        return torch.tensor([learned.losses for _, learned in runs[task, way]]).unfold(1, width, 1).mean(-1)

    def panel(task: str) -> Panel:
        curves = {way: mean_and_range(range(width, steps + 1), smooth(task, way)) for way in SHARED}
        return Panel(curves, "step", LOSS, task, band=True)

    return Findings(
        "Two tasks: a Transformer with one layer on each side reverses sentences of up to 10 words; an encoder of one "
        f"layer names the word before each of {LENGTH} positions. One head, d_model {CONFIG.d_model}; {steps} steps of "
        f"{BATCH} fresh sentences, Adam at {RATE:g}, the same for all; all attention layers share their matrices in "
        f"the same way; {effort}. A model with shared matrices has fewer parameters. With W^Q = W^K, two words give "
        "each other the same score.",
        claims(losses, measure_projections(effort.seeds[0])),
        {
            "Learning with shared projections": Table(
                "task | projections | parameters | last loss (nats per token) | lowest seed | highest seed | accuracy",
                [
                    (*key, same[0][0], *mean_and_extremes(losses[key]), mean(learned.accuracy for _, learned in same))
                    for key, same in runs.items()
                ],
            )
        },
        {
            "shared-projections": Figure(
                f"The training loss, means over {width} steps; bands reach from the lowest to the highest seed.",
                lines(*(panel(task.name) for task in TASKS), sharey=True),
            )
        },
    )
