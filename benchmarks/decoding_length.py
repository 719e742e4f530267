"""Measure whether the cost of a token grows with the number of tokens before it."""

import time

import torch

from dragoman.config.presets import SMALL
from dragoman.decoding.search import BeamSearch, OutputSpec, finish, greedy_search
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.inference.choice import prepare
from dragoman.model import build

VOCABULARY, SENTENCES, SOURCE = 8000, 32, 30
LENGTHS = (25, 50, 100, 200)
NO_EOS = -1  # no token has this id, so all outputs have the full length


def benchmark(threads: int, rounds: int) -> str:
    """Return a table in Markdown: milliseconds per output token of a whole batch, by output length.

    The model has random weights. Sets PyTorch's threads and seed.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = prepare(build(SMALL.model, VOCABULARY).eval(), "float32")
    source = torch.randint(3, VOCABULARY, (SENTENCES, SOURCE))
    times: dict[tuple[int, int], list[float]] = {}
    for turn in range(rounds + 1):
        for length in LENGTHS:
            output = OutputSpec(bos=1, eos=NO_EOS, max_lengths=torch.full((SENTENCES,), length), alpha=0.6)
            for beams in (1, 4):
                began = time.perf_counter()
                if beams == 1:
                    finish(greedy_search(model, source, output))
                else:
                    BeamSearch(model, source, output, beams).run()
                if turn:
                    times.setdefault((length, beams), []).append((time.perf_counter() - began) / length * 1000)
    lines = [
        f"Decoding, d_model 256, 3+3 layers, {VOCABULARY:,} words, batches of {SENTENCES} sentences; milliseconds per "
        f"token of the whole batch, the fastest of {rounds} interleaved rounds.",
        describe_machine() + ".",
        "",
        markdown_table(
            ["output tokens", "greedy", "beam 4"],
            [[f"{n}", *(f"{min(times[n, beams]):.1f}" for beams in (1, 4))] for n in LENGTHS],
        ),
    ]
    return "\n".join(lines)
