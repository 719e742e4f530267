"""dragoman train"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.config import RunConfig, TrainingConfig, read_settings
from dragoman.config.presets import preset_run
from dragoman.config.recipes import recipe_names, settings_file
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Train a translator on sentence pairs.

    It needs pairs to learn from (--train) and pairs to validate on (--dev). Each may be several corpora: files of pairs
    in TSV, CSV, JSONL, Parquet, Arrow, TMX, PO, XLIFF, TS or XCSTRINGS, or a source file and a target file. Options
    such as weight=2 or tag=news may follow each corpus. Ctrl-C saves and stops; rerun the same command to resume.
    Settings come from the preset, then from a recipe or a file, then from flags, whose `training.` may be left out:
    --minutes 30.

    $ dragoman train --train pairs.tsv --dev dev.tsv
    $ dragoman train low-resource-30k --train pairs.tsv --dev dev.tsv
    $ dragoman train --train train.en train.ko --dev dev.en dev.ko --out runs/en-ko --preset tiny
    $ dragoman train run.toml --minutes 30
    $ torchrun --nproc_per_node 4 -m dragoman train run.toml
    """

    config: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RECIPE|FILE.toml]")] = None
    "a recipe, such as tiny or low-resource-30k (docs/training.md), or a file with any of these settings"
    run: Annotated[RunConfig, tyro.conf.arg(name="")] = field(default_factory=RunConfig)
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing while training"


def main(arguments: list[str]) -> None:
    """Run `dragoman train`: train into the run folder, or resume the run that is there."""
    arguments = [name_section(argument) for argument in arguments]
    if arguments and not arguments[0].startswith("-"):
        check_is_settings_file(arguments[0])
    start = defaults(arguments)
    options = parse(Options, "train", arguments, start)
    if options.config != start.config:
        check_is_settings_file(str(options.config))
        raise UsageError(f"the settings must come first: dragoman train {options.config} ...")
    run = complete_run(options)
    from dragoman.training.loop import open_journal, train
    from dragoman.training.prepare import other_entries

    with open_journal(run, options.quiet) as journal:
        if not options.run.out:
            journal.display.log(f"training into {run.out}")
        elif others := other_entries(Path(run.out)):
            journal.display.log(f"{run.out} has other files, such as {others[0]}; training writes beside them")
        train(run, journal)


def name_section(argument: str) -> str:
    """Return `--training.minutes` for `--minutes`, and so for all settings of training; other arguments unchanged."""
    name = argument.removeprefix("--").removeprefix("no-").partition("=")[0].replace("-", "_")
    is_setting = argument.startswith("--") and name in TrainingConfig.__dataclass_fields__
    return f"--training.{argument.removeprefix('--')}" if is_setting else argument


def check_is_settings_file(name: str) -> None:
    """Raise UsageError where `name`, in the place of the settings, is neither a recipe nor ends in .toml."""
    if (Path(name) / "config.toml").is_file():
        raise UsageError(f"{name} is a run: dragoman train {Path(name) / 'config.toml'} resumes it")
    if "." in name and not name.endswith(".toml"):
        raise UsageError(
            f"{name} is not a settings file (.toml); to train on pairs: dragoman train --train {name} --dev FILE"
        )
    settings_file(name)


def defaults(arguments: list[str]) -> Options:
    """Return the options before flags change them: those of the preset, changed by the TOML file.

    Both have to be known before the flags are parsed, as they are the defaults that `--help` shows. In fine-tuning, the
    model is the one to start from. Raise UsageError for an unknown preset or one of another model, and for a file that
    cannot be read or has wrong settings; DragomanError where the model to start from cannot be read.
    """
    first = next((argument for argument in arguments if argument != "--quiet"), "")
    config = Path(first) if first in recipe_names() else None
    for argument, before in zip(arguments, ["", *arguments], strict=False):
        if argument.endswith(".toml") and (before == "--quiet" or not before.startswith("--")):
            config = Path(argument)
    data = read_settings(settings_file(str(config))) if config else {}
    name = flag_value(arguments, "--preset") or data.get("preset")
    start, out = (
        flag_value(arguments, f"--{flag}") or data.get(key)
        for flag, key in (("init-from", "init_from"), ("out", "out"))
    )
    previous = None
    if start or (out and (Path(str(out)) / "config.toml").exists()):
        from dragoman.training.resume import previous_config

        previous = previous_config(Path(str(out))) if out else None
    if previous:  # a run is resumed without the model that it started from
        start = start or previous.init_from
    if not start:
        return Options(config=config, run=preset_run(name or "small", data, str(config)))
    from dragoman.training.fine_tuning import preset_of, start_config

    model = start_config(str(start), previous)
    preset = name or previous.preset if previous else preset_of(model, name, str(start))
    return Options(config=config, run=preset_run(preset, {"init_from": start, **data}, str(config), model))


def flag_value(arguments: list[str], name: str) -> str | None:
    """Return the value of the flag `name`, with its dashes, given as `--name value` or `--name=value`.

    None without it; the last value if it comes several times. The value is '' where nothing follows the flag.
    """
    value = None
    for argument, after in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == name:
            value = after
        elif argument.startswith(f"{name}="):
            value = argument.removeprefix(f"{name}=")
    return value


def complete_run(options: Options) -> RunConfig:
    """Return the run with a folder to write to: by default runs/CORPUS-PRESET. Raise UsageError without corpora."""
    run = options.run
    for name, what in (("train", "learn from"), ("dev", "validate on")):
        if not getattr(run, name):
            settings = Path(run.out) / "config.toml"
            resume = f"; to resume the run: dragoman train {settings}" if run.out and settings.is_file() else ""
            raise UsageError(
                f"--{name} is missing: a file with sentence pairs to {what}, source TAB target in each line{resume}"
            )
    if options.config == Path("fine-tune") and not run.init_from:
        raise UsageError("the recipe fine-tune needs the model to start from: --init-from FOLDER")
    if not run.out:
        run = replace(run, out=f"runs/{Path(run.train[0]).name.split('.')[0]}-{run.preset}")
    return run
