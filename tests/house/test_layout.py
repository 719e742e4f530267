"""The layers of the package: no file imports from a layer above its own, and no modules import each other."""

import ast
import itertools
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from dragoman.cli import COMMANDS, ELSEWHERE

PACKAGE = Path(__file__).parents[2] / "src" / "dragoman"

MAP = (PACKAGE / "README.md").read_text(encoding="utf-8").split("## Layers")[1].split("\n## ")[0]
# From the bottom to the top, as the map has them. A file may import from its own folder and from lower layers.
LAYERS = [set(line.split(", ")) for line in re.findall(r"^    (.+)$", MAP, re.MULTILINE)]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
LAB = PACKAGE.parent / "dragoman_lab"
LAB_FILES = sorted(LAB.rglob("*.py"))


def module_of(file: Path) -> str:
    """'.../dragoman/model/__init__.py' -> 'dragoman.model'."""
    return ".".join(("dragoman", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


SOURCES = {module_of(file): file.read_text(encoding="utf-8") for file in FILES}


def part(module: str) -> str:
    """'dragoman.model.attention' -> 'model', 'dragoman.data.corpus', which the map has, itself; '' for dragoman."""
    names = module.split(".")[1:]
    return next((name for length in (2, 1) if (name := ".".join(names[:length])) in LEVEL), ".".join(names[:1]))


def imported_modules(source: str) -> set[str]:
    """The modules of dragoman that a file imports anywhere in it, also inside functions and as strings."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = {f"{node.module}.{name.name}" for name in node.names}
            modules |= names & SOURCES.keys() or {str(node.module)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and part(node.value) in LEVEL:
            modules.add(node.value)
    return {module for module in modules if module.split(".")[0] == "dragoman"}


def imported(source: str) -> set[str]:
    """The parts of dragoman that a file imports; '' if it imports dragoman itself."""
    return {part(module) for module in imported_modules(source)}


def upward(name: str, source: str) -> set[str]:
    """The imports of a file that go up or sideways; dragoman itself stands above everything."""
    others = {other for other in imported(source) if other.split(".")[0] != name.split(".")[0]}
    return {other for other in others if LEVEL.get(other, len(LEVEL)) >= LEVEL[name]}


@pytest.mark.parametrize("module", sorted(SOURCES.keys() - {"dragoman"}))
def test_imports_never_go_upward(module: str):
    assert upward(part(module), SOURCES[module]) == set()


def test_package_itself_imports_at_once_only_what_is_lowest():
    """The public names are imported when they are used: the rest of the file is for type checkers, or is lazy."""
    now = [node for node in ast.parse(SOURCES["dragoman"]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imported("\n".join(map(ast.unparse, now))) == {"runtime", "version"}


def circle(sources: Mapping[str, str]) -> list[str]:
    """Modules that import each other in a circle, wherever in them; [] if there are none."""
    try:
        TopologicalSorter({module: imported_modules(source) for module, source in sources.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_do_not_import_each_other():
    assert circle({module: source for module, source in SOURCES.items() if module != "dragoman"}) == []


def test_circle_inside_a_function_is_seen():
    """The control for the test above."""
    late = "def read():\n    from dragoman.data.corpus import read_corpus"
    lines = f"{SOURCES['dragoman.data.lines']}\n{late}"
    assert "dragoman.data.lines" in circle({**SOURCES, "dragoman": "", "dragoman.data.lines": lines})


@pytest.mark.parametrize(
    "line",
    [
        "import dragoman.training.loop",
        "from dragoman.decoding.search import BeamSearch",
        "from dragoman import inspection",
        "from dragoman import Translator",
        "import dragoman",
        "def late():\n    from dragoman.translation.translator import Translator",
        "import_module('dragoman.commands.train')",
    ],
)
def test_import_upward_is_seen(line: str):
    """The control for the test above."""
    assert upward("model", line)
    assert not upward("__main__", line) - {""}


def test_module_in_a_layer_of_its_own_is_seen():
    """Corpora are read above documents, although lines are read below them."""
    assert upward("documents", "from dragoman.data.corpus import read_corpus") == {"data.corpus"}
    assert upward("data", "from dragoman.documents import read_document") == {"documents"}
    assert not upward("data.formats", "from dragoman.documents import read_document")


def lab_names(source: str) -> list[str]:
    """Return the names of the lab and of its models in a file: in imports, strings, comments, names of our own."""
    return re.findall(r"dragoman_lab|(?i:ablation)", source)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_lab_is_known_to_the_table_of_commands_alone(file: Path):
    expected = ["dragoman_lab"] if file == PACKAGE / "cli.py" else []
    assert lab_names(file.read_text(encoding="utf-8")) == expected


def test_command_of_the_lab_is_in_the_table():
    assert ELSEWHERE == {"lab": "dragoman_lab.command"}
    assert ELSEWHERE.keys() <= COMMANDS.keys()


@pytest.mark.parametrize(
    "line",
    [
        "import dragoman_lab.masks",
        "def late():\n    from dragoman_lab import EXPERIMENTS",
        "import_module(f'dragoman_lab.{name}')",
        "if isinstance(config, AblationConfig): ...",
        "KINDS = {'ablation': TransformerConfig}",
    ],
)
def test_name_of_the_lab_is_seen(line: str):
    """The control for the test above."""
    assert lab_names(line)
    assert not lab_names("from dragoman.commands import label  # available in the laboratory")


@pytest.mark.parametrize("file", LAB_FILES, ids=lambda file: file.name)
def test_lab_needs_no_server_and_only_its_command_reads_flags(file: Path):
    names = imported(file.read_text(encoding="utf-8"))
    assert names & {"server", "commands", "cli"} == ({"commands"} if file.name == "command.py" else set())


def test_layers_cover_every_file():
    assert {part(module) for module in SOURCES} - {""} == set(LEVEL)


def test_modules_outside_of_the_folders_are_few():
    outside = {file.stem for file in PACKAGE.glob("*.py")}
    assert outside == {"__init__", "__main__", "cli", "console", "errors", "version"}


@pytest.mark.parametrize("other", ["decoding", "inspection", "training", "translation", "model_folder", "text"])
def test_model_knows_nothing_of_what_is_done_with_it(other: str):
    for file in (PACKAGE / "model").glob("*.py"):
        assert other not in imported(file.read_text(encoding="utf-8"))


def test_search_knows_no_text_and_no_model():
    """It asks for start, step and select, whatever has them. Only the ways in know settings, devices and batches."""
    ways_in = {"engine.py", "parts.py", "torch_engine.py", "forced.py", "pool.py", "rows.py"}
    for file in (PACKAGE / "decoding").glob("*.py"):
        source = file.read_text(encoding="utf-8")
        others = {"config", "data", "errors", "inference", "runtime"} if file.name in ways_in else set()
        assert imported(source) <= {"decoding", "model", *others}
        assert "Transformer" not in source
        assert "Recurrent" not in source


def test_commands_do_not_import_torch_before_their_flags_are_read():
    """At the top of a file only; the test of --help measures what comes of it."""
    light = "config/*.py errors.py cli.py __init__.py __main__.py commands/*.py commands/*/__init__.py".split()
    heavy = set("torch numpy tokenizers safetensors sacrebleu matplotlib babel transformers".split())
    lab = [LAB / "__init__.py", LAB / "command.py"]
    for file in itertools.chain(lab, *(PACKAGE.glob(pattern) for pattern in light)):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
        names |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert not {name.split(".")[0] for name in names} & heavy, file


def test_public_names_are_imported_when_they_are_used():
    import dragoman

    assert all(getattr(dragoman, name).__name__ == name for name in dragoman.__all__)
    assert {*dir(dragoman)} == {*dragoman.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragoman.nothing


SAFE_YAML = {"parse", "SafeLoader", "CSafeLoader", "YAMLError", "MarkedYAMLError"}


def unsafe_yaml(source: str) -> set[str]:
    """The names of PyYAML in a file that could build more than strings, and loaders that are not safe."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=modules):
                names |= {module.name for module in modules if re.match(r"_?yaml\.", module.name)}
                names |= {module.name for module in modules if "yaml" in module.name and module.asname}
            case ast.ImportFrom(module=str(module)) if re.match(r"_?yaml\b", module):
                names |= {name.name for name in node.names}
            case ast.Attribute(value=ast.Name(id="yaml"), attr=name):
                names.add(name)
            case ast.keyword(arg="Loader", value=value) if "Safe" not in ast.unparse(value):
                names.add("Loader")
    return names - SAFE_YAML


@pytest.mark.parametrize(
    "line",
    [
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.SafeLoader)",  # safe, but builds what a word is not: dates, truths
        "yaml.unsafe_load(text)",
        "yaml.full_load(text)",
        "yaml.parse(text, Loader=yaml.Loader)",
        "yaml.parse(text, Loader=loader)",
        "from yaml import load",
        "from yaml.constructor import UnsafeConstructor",
        "import yaml.constructor",
        "import yaml as y",
    ],
)
def test_unsafe_loader_of_yaml_is_seen(line: str):
    """The control for the test below."""
    assert unsafe_yaml(line)
    assert not unsafe_yaml("import yaml\nyaml.parse(text, Loader=yaml.SafeLoader)")


def test_package_never_runs_what_it_reads():
    """No pickle, no evaluation of strings: weights are safetensors, everything else is JSON, TOML or text.

    Pickles of others are read in one place, which is run as a process of its own, and there only tensors are.
    """
    forbidden = {"pickle", "marshal", "shelve", "dill", "joblib"}
    for file in FILES + LAB_FILES:
        assert unsafe_yaml(file.read_text(encoding="utf-8")) == set(), file
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    assert not {name.name.split(".")[0] for name in names} & forbidden, file
                case ast.ImportFrom(module=str(module)):
                    assert module.split(".")[0] not in forbidden, file
                case ast.Call(func=called, keywords=options) if ast.unparse(called) == "torch.load":
                    assert file.name == "pickled_process.py"
                    assert "weights_only=True" in map(ast.unparse, options)
                case ast.Call(func=called):
                    assert ast.unparse(called) not in {"eval", "exec", "torch.save", "__import__"}, file
