"""Run experiments of the lab with hardly any effort, each once for all tests of a process."""

import functools
from importlib import import_module

from dragoman.lab.experiment import Effort, Experiment, Findings


def experiment(name: str) -> Experiment:
    return import_module(f"dragoman.lab.{name.replace('-', '_')}").run


HARDLY_ANY = 0.01


@functools.cache
def findings(name: str, seed: int = 1) -> Findings:
    return experiment(name).run(Effort((seed,), HARDLY_ANY))
