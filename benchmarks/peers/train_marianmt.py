"""Train MarianMT for some minutes and translate with it, in a process of its own, as a plain script would."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.peers.pytorch import DTYPES, MarianMT, padded_step
from benchmarks.peers.task import TrainingTask, grouped_batches
from benchmarks.peers.trainers import BEAM, MAX_OUTPUT, SENTENCES
from dragoman.config import TrainingConfig, update
from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import PAD
from dragoman.training.optimizer import learning_rate

LOG_EVERY = 200  # steps


class Trained(NamedTuple):
    """Steps and target tokens of a training, and what the model then translated."""

    steps: int
    tokens: int
    translations: list[Ids]


def train_marianmt(task: TrainingTask, settings: TrainingConfig, texts: Sequence[Ids]) -> Trained:
    """Train MarianMT on `task`, then translate the texts.

    Of the settings, minutes, rate, schedule, seed and the moving average of the weights count. Raise ImportError where
    the transformers library is not installed.
    """
    torch.manual_seed(settings.seed)
    model = MarianMT(task.model, task.vocabulary, "sdpa" if task.precision == "float32" else "eager")
    parameters: list[Tensor] = list(model.parameters())
    average = [parameter.detach().clone() for parameter in parameters]
    steps = tokens = 0

    def rate() -> float:
        return learning_rate(steps + 1, task.model.d_model, settings)

    step = padded_step(model, DTYPES[task.precision], rate=rate)
    batches, began = grouped_batches(task, settings.seed), time.monotonic()
    while (seconds := time.monotonic() - began) < 60 * (settings.minutes or 0):
        tokens += step(next(batches))
        steps += 1
        with torch.no_grad():  # as in our training: the first weights count for little
            torch._foreach_lerp_(average, parameters, 1 - min(settings.ema, steps / (10 + steps)))
        if steps % LOG_EVERY == 0:
            print(f"MarianMT: step {steps:,}, {tokens / seconds:,.0f} target tokens/s", file=sys.stderr)
    with torch.no_grad():
        torch._foreach_copy_(parameters, average)
    return Trained(steps, tokens, translate(model.eval(), texts))


@torch.inference_mode()
def translate(model: MarianMT, texts: Sequence[Ids]) -> list[Ids]:
    """Return the translations of the texts by beam search, in batches of similar length, in the order of the texts."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    translations: dict[int, Ids] = {}
    for start in range(0, len(order), SENTENCES):
        batch = order[start : start + SENTENCES]
        source = source_batch([texts[i] for i in batch])
        outputs = model.inner.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=BEAM,
            max_new_tokens=MAX_OUTPUT,
            length_penalty=1.0,
        )
        translations |= zip(batch, outputs.tolist(), strict=True)
    return [translations[i] for i in range(len(texts))]


def main() -> None:
    """Train on the task in the folder that the argument names, and print a Trained as JSON.

    The folder also has settings.json and texts.json.
    """
    folder = Path(sys.argv[1])
    task = TrainingTask.read(folder)
    torch.set_num_threads(task.threads)
    settings, texts = (json.loads((folder / f"{name}.json").read_text("ascii")) for name in ("settings", "texts"))
    print(json.dumps(train_marianmt(task, update(TrainingConfig(), settings, "settings.json"), texts)))
