"""Run a measurement and print its tables in Markdown: `python -m benchmarks NAME ...`, or `make benchmark-NAME`.

`--keep WHAT --machine NAME` also writes the tables into `results/`; `page` writes them into docs/benchmarks.md.
"""

import argparse
import contextlib
import io
import runpy
import sys
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import tyro

from benchmarks.options import MEASUREMENTS, check
from benchmarks.results import keep
from dragoman.errors import DragomanError, UsageError, listed

# Modules that read their own flags and print what they measure while they do.
SCRIPTS = (
    *("compare-ctranslate2", "compare-exports", "compare-fine-tuning", "compare-search-speed", "compare-segmenters"),
    *("compare-waiting", "detection-accuracy", "glossary-quality", "measure-import", "several-sentences"),
    *("term-forms", "page"),
)


class Copy(io.StringIO):
    """Standard output, of which a copy is kept."""

    def write(self, text: str) -> int:
        """Print the text at once, and keep it."""
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


def parse(name: str, arguments: list[str]) -> dict[str, Any]:
    """Return the options of a measurement by name. Raise UsageError where one is missing or has no sensible value."""
    options: Any = MEASUREMENTS[name]
    given = {{"-m": "--model"}.get(flag := argument.partition("=")[0], flag) for argument in arguments}
    needed = [f"--{field.name}" for field in fields(options) if field.default is MISSING]
    if not given & {"-h", "--help"} and (missing := [flag for flag in needed if flag not in given]):
        raise UsageError(
            f"{name} needs {listed(missing)}, which this repository does not contain; "
            f"see python -m benchmarks {name} --help"
        )
    parsed = tyro.cli(
        options, args=arguments, prog=f"python -m benchmarks {name}", config=(tyro.conf.AvoidSubcommands,)
    )
    return check(parsed)


def run(name: str, arguments: list[str]) -> dict[str, Any]:
    """Measure, print the tables, and return the settings, none of a script.

    Raise DragomanError where measuring fails, UsageError for wrong arguments.
    """
    module = f"benchmarks.{name.replace('-', '_')}"
    if name in MEASUREMENTS:
        settings = parse(name, arguments)
        print(import_module(module).benchmark(**settings))
        return settings
    if name in SCRIPTS:
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return {}
    raise UsageError(f"choose from {', '.join((*MEASUREMENTS, *SCRIPTS))}, not '{name}'")


def main(arguments: list[str]) -> int:
    """Run a measurement. Return 0: done; 1: it failed, 2: the request was wrong, which standard error explains."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--keep", metavar="WHAT")
    parser.add_argument("--machine", metavar="NAME")
    kept, (name, *others) = parser.parse_known_args(arguments or ["--help"])
    try:
        if bool(kept.keep) != bool(kept.machine):
            raise UsageError("--keep needs --machine, its name in docs/benchmarks.md, and the other way round")
        copy = Copy()
        with contextlib.redirect_stdout(copy if kept.keep else sys.stdout):
            settings = run(name, others)
        if kept.keep:
            files = keep(copy.getvalue(), kept.keep, kept.machine, [name, *others], settings)
            print(f"kept in {listed([str(file.relative_to(Path.cwd())) for file in files])}", file=sys.stderr)
    except (DragomanError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"benchmarks: {' '.join(reason.split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
