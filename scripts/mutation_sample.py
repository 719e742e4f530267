"""Plant random faults, one at a time, and show those that no test notices.

    python scripts/mutation_sample.py src/dragoman/model tests/model --faults 20

The sources are .py files and folders. Each fault is planted in a copy of the project: an operator, a comparison or a
condition becomes its opposite, a number another one, a statement is left out, or a value is not returned. Tests are
those that look at these sources; a fault in a line that they do not run counts as unnoticed, too.
"""

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yield each fault that can be planted: a node, its field, and the field's new value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPPOSITES:
            yield node, "op", OPPOSITES[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITES:
            yield node, "ops", [OPPOSITES[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", node.value + 1
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, "value", not node.value
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
            yield node, "value", ast.Constant(None)
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            for index, statement in enumerate(statements if isinstance(statements, list) else ()):
                if isinstance(statement, ast.AugAssign) or (
                    isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
                ):
                    yield node, field, [*statements[:index], ast.Pass(), *statements[index + 1 :]]


def run(root: Path, tests: list[str], seconds: float | None) -> bool:
    """Return whether the tests pass in a copy of the project; False where they take longer than `seconds`."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    environment = {"PYTHONPATH": "src", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Plant the faults, run the tests on each, and print what went unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="sources (.py files outside tests/, and folders) and tests")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tests = [name for name in options.files if "tests" in Path(name).parts]
    named = [Path(name) for name in options.files if name not in tests]
    sources = [file for path in named for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    candidates = [(file, number) for file in sources for number, _ in enumerate(changes(ast.parse(file.read_text())))]
    chosen = random.Random(options.seed).sample(candidates, min(options.faults, len(candidates)))

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__")
        shutil.copytree(".", root / "project", ignore=ignored)
        root /= "project"
        start = time.monotonic()
        if not run(root, tests, None):
            sys.exit("the tests fail without any fault")
        limit = 60 + 5 * (time.monotonic() - start)
        survivors = 0
        for file, number in chosen:
            tree = ast.parse(file.read_text())
            node, field, value = list(changes(tree))[number]
            before = ast.unparse(copy.deepcopy(node))
            setattr(node, field, value)
            ast.fix_missing_locations(tree)
            (root / file).write_text(ast.unparse(tree))
            noticed = not run(root, tests, limit)
            shutil.copyfile(file, root / file)
            survivors += not noticed
            line = getattr(node, "lineno", 0)
            if not noticed:
                after = f"{field}: {shorten(describe(value))}"
                print(f"unnoticed: {file}:{line}: {shorten(before)}  ->  {after}", flush=True)
        print(f"{len(chosen)} of {len(candidates):,} possible faults planted, {survivors} unnoticed")


def describe(value: object) -> str:
    """Return the new value of a field as code."""
    if isinstance(value, list):
        return "; ".join(describe(item) for item in value)
    return ast.unparse(value) or type(value).__name__ if isinstance(value, ast.AST) else repr(value)


def shorten(text: str) -> str:
    """Return the first line of a text, at most 100 characters."""
    return text.splitlines()[0][:100] if text else ""


if __name__ == "__main__":
    main()
