"""The layers of the package: no file imports from a layer above its own."""

import ast
import itertools
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "dragoman"

MAP = (PACKAGE / "README.md").read_text(encoding="utf-8").split("## Layers")[1].split("\n## ")[0]
# From the bottom to the top, as the map has them. A file may import from its own folder and from lower layers.
LAYERS = [set(line.split(", ")) for line in re.findall(r"^    (.+)$", MAP, re.MULTILINE)]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def part(module: str) -> str:
    """'dragoman.model.attention' -> 'model'; '' for dragoman itself, whose names are imported when they are used."""
    return ".".join(module.split(".")[1:2])


def imported(source: str, known: set[str]) -> set[str]:
    """The parts of dragoman that a file imports anywhere in it, also inside functions and as strings."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {part(name.name) for name in node.names if name.name.split(".")[0] == "dragoman"}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            if node.module == "dragoman":
                found |= {name.name for name in node.names if name.name in known}
            elif node.module and node.module.startswith("dragoman."):
                found.add(part(node.module))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("dragoman."):
            found |= {name for name in [part(node.value)] if name in known}
    return found - {""}


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def upward(name: str, source: str) -> set[str]:
    """The imports of a file that go up or sideways."""
    return {other for other in imported(source, set(LEVEL)) if other != name and LEVEL[other] >= LEVEL[name]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_nothing_imports_upward(file: Path):
    if file != PACKAGE / "__init__.py":  # whose names are imported when they are used
        assert upward(name_of(file), file.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "line",
    [
        "import dragoman.training.loop",
        "from dragoman.decoding.search import BeamSearch",
        "from dragoman import inspection",
        "def late():\n    from dragoman.translation.translator import Translator",
        "import_module('dragoman.commands.train')",
    ],
)
def test_an_import_upward_is_seen(line: str):
    """The control for the test above."""
    assert upward("model", line)
    assert not upward("__main__", line)


def test_every_file_has_its_layer():
    assert {name_of(file) for file in FILES} - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("other", ["decoding", "inspection", "training", "translation", "model_folder", "text"])
def test_the_model_knows_nothing_of_what_is_done_with_it(other: str):
    for file in (PACKAGE / "model").glob("*.py"):
        assert other not in imported(file.read_text(encoding="utf-8"), set(LEVEL))


def test_search_knows_no_text_and_no_model():
    """It asks for start, step and select, whatever has them. Only the ways in know settings, devices and batches."""
    ways_in = {"engine.py", "parts.py", "torch_engine.py", "forced.py", "pool.py", "rows.py"}
    for file in (PACKAGE / "decoding").glob("*.py"):
        source = file.read_text(encoding="utf-8")
        others = {"config", "data", "device", "errors", "inference"} if file.name in ways_in else set()
        assert imported(source, set(LEVEL)) <= {"decoding", "model", *others}
        assert "Transformer" not in source
        assert "Recurrent" not in source


def test_commands_do_not_import_torch_before_their_flags_are_read():
    """At the top of a file only; the test of --help measures what comes of it."""
    light = "config/*.py errors.py cli.py __init__.py __main__.py commands/*.py commands/*/__init__.py".split()
    heavy = set("torch numpy tokenizers safetensors sacrebleu matplotlib babel transformers".split())
    for file in itertools.chain.from_iterable(PACKAGE.glob(pattern) for pattern in light):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
        names |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert not {name.split(".")[0] for name in names} & heavy, file


def test_the_public_names_are_imported_when_they_are_used():
    import dragoman

    assert all(getattr(dragoman, name).__name__ == name for name in dragoman.__all__)
    assert {*dir(dragoman)} == {*dragoman.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragoman.nothing


def test_nothing_in_the_package_runs_what_it_reads():
    """No pickle, no evaluation of strings: weights are safetensors, everything else is JSON, TOML or text.

    Pickles of others are read in one place, which is run as a process of its own, and there only tensors are.
    """
    forbidden = {"pickle", "marshal", "shelve", "yaml", "dill", "joblib"}
    for file in FILES:
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
