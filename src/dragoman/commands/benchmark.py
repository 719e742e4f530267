"""dragoman benchmark"""

from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import tyro

from dragoman.commands import parse
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Measure speed on this machine; prints a table in Markdown. Run nothing beside it.

    $ dragoman benchmark train-step
    $ dragoman benchmark decoding-length --threads 2
    """

    name: tyro.conf.Positional[Literal["train-step", "decoding-length"]]
    "what to measure: a training step beside other toolkits; the cost of a token by output length"
    threads: int = 1
    "CPU threads"
    rounds: int = 5
    "how often each contender is timed"


def main(arguments: list[str]) -> None:
    options = parse(Options, "benchmark", arguments)
    if options.threads < 1 or options.rounds < 1:
        raise UsageError("threads and rounds must be at least 1")
    module = import_module(f"dragoman.benchmarks.{options.name.replace('-', '_')}")
    print(module.benchmark(options.threads, options.rounds))
