"""dragoman info"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import folders_first, parse, print_json
from dragoman.config import PresetName
from dragoman.config.fields import MAX_SIZE
from dragoman.config.presets import PRESETS
from dragoman.errors import UsageError

# A package of each extra that changes what commands can do.
EXTRAS = (
    "ctranslate2",
    "transformers",
    "onnxruntime",
    "matplotlib",
    "babel",
    "starlette",
    "sentencepiece",
    "py3langid",
    "faiss-cpu",
)


@dataclass(frozen=True)
class Options:
    """Show what a model is, what it can do, and what it costs: layers, vocabulary, languages, engines, parameters.

    $ dragoman info runs/en-ko
    $ dragoman info --preset base --vocabulary 37000
    $ dragoman info --preset base --diagram base.svg
    $ dragoman info --system
    """

    model: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[FOLDER]")] = None
    "model folder, run folder or hub:USER/NAME; -m FOLDER is the same"
    preset: PresetName | None = None
    "describe a preset instead of a model"
    vocabulary: int | None = None
    "size of the preset's vocabulary; default: what the preset suggests"
    diagram: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "draw the architecture from the model's modules: .svg, .png or .pdf"
    system: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "show this machine instead: what searches compute with, in which types, and which extras are installed"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman info`: print the card of a model and what it costs, and draw its architecture if asked for."""
    options = parse(Options, "info", folders_first(arguments))
    if [options.model, options.preset, options.system or None].count(None) != 2:
        raise UsageError("give a model folder, a preset or --system: dragoman info --preset base")
    if options.system:
        if options.diagram or options.vocabulary is not None:
            raise UsageError("--diagram and --vocabulary are for a model or a preset, not for --system")
        show_system(options.json)
        return

    from dragoman.inspection.cost import cost
    from dragoman.inspection.figure import check_format, save
    from dragoman.inspection.plots.architecture import architecture_figure
    from dragoman.inspection.summary import Summary
    from dragoman.model import outline

    if options.diagram:
        check_format(options.diagram)
    if options.preset:
        preset = PRESETS[options.preset]
        if options.vocabulary is not None and not 1 <= options.vocabulary <= MAX_SIZE:
            raise UsageError(f"--vocabulary must be from 1 to {MAX_SIZE:,}, not {options.vocabulary}")
        summary = Summary(preset.model, options.vocabulary or preset.vocabulary)
        model = outline(summary.config, summary.vocabulary)
    else:
        from dragoman.console import escape_controls
        from dragoman.model_folder import fetch_model, read_model
        from dragoman.training.card import read_card

        if options.vocabulary is not None:
            raise UsageError("--vocabulary is for --preset; a model has its own")
        if options.model in PRESETS and not Path(options.model).exists():
            raise UsageError(f"{options.model} is a preset: dragoman info --preset {options.model}")
        folder = fetch_model(Path(str(options.model)))
        model, tokenizers = read_model(folder)
        summary = Summary.read(folder, model.config, tokenizers)
        if not options.json:
            print(escape_controls(read_card(folder)))
    costs = cost(model)
    if options.json:
        print_json({**asdict(costs), **summary.as_dict()})
    else:
        print(f"{summary}\n\n{costs}")
    if options.diagram:
        name = options.preset or Path(str(options.model)).resolve().name
        save(architecture_figure(model, name), options.diagram)
        if not options.json:
            print(f"\n{options.diagram}")


def show_system(as_json: bool) -> None:
    """Print what this machine offers."""
    import importlib.metadata
    import platform

    import torch

    from dragoman.evaluation.timing import describe_machine
    from dragoman.inference.native import find_library
    from dragoman.inference.products import resolve_type, supported_types
    from dragoman.version import __version__

    library, cpu = find_library(), torch.device("cpu")
    installed = {each.name.lower(): each.version for each in importlib.metadata.distributions()}
    system = {
        "version": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "machine": describe_machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "searches": f"PyTorch: {library}" if isinstance(library, str) else f"C++ for {library.level}",
        "types": f"{', '.join(supported_types())}; auto is {resolve_type('auto', cpu)}",
        "extras": ", ".join(f"{name} {installed[name]}" for name in EXTRAS if name in installed) or "none",
    }
    if as_json:
        print_json(system)
    else:
        print("\n".join(f"{name:10}{value}" for name, value in system.items()))
