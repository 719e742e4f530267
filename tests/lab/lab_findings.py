"""Run experiments of the lab with hardly any effort, each once for all tests of a process."""

import functools
from importlib import import_module

from dragoman_lab.experiment import Effort, Experiment, Findings


def experiment(name: str) -> Experiment:
    return import_module(f"dragoman_lab.{name.replace('-', '_')}").run


HARDLY_ANY = 0.01


def texts_of(findings: Findings) -> list[str]:
    """Return the texts of the setting, the claims, the tables and the captions."""
    cells = [cell for table in findings.tables.values() for row in table.rows for cell in row if isinstance(cell, str)]
    columns = [column for table in findings.tables.values() for column in table.columns]
    captions = [figure.caption for figure in findings.figures.values()]
    return [findings.setting, *findings.claims, *findings.tables, *columns, *cells, *captions]


@functools.cache
def findings(name: str, seed: int = 1) -> Findings:
    return experiment(name).run(Effort((seed,), HARDLY_ANY))
