"""The map of the code, src/dragoman/README.md, is followed to the letter: each row of its last table is tried.

A copy of the package gets a new attention score, position scheme, schedule, corpus format and so on, in the files that
the row names and in no others. One process with that copy then trains, translates, evaluates, inspects and experiments.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_layout import LAYERS

PACKAGE = Path(__file__).parents[1] / "src" / "dragoman"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")

EXPERIMENT = """
from dragoman.lab.drawing import Panel, lines
from dragoman.lab.experiment import Claim, Experiment, Figure, Findings, Results, Table


def run(effort):
    counts = range(1, effort.of(8) + 1)
    table = Table("Doubles", "number | double", [(n, 2 * n) for n in counts])
    panel = Panel({"double": (counts, table.column("double"))}, "number", "double")
    return Findings(f"seeds {effort.seeds}", Results(two=2), [table], [Figure("doubles", "Doubles.", lines(panel))])


CLAIMS = (Claim("Two [is|is not] {two}.", lambda results: results.two == 2),)
EXPERIMENT = Experiment("Two", "nowhere", "Two is two.", CLAIMS, run)
"""

# For each row of the table: (file, text in it, what takes its place). '' stands for the end of the file.
CHANGES: dict[str, list[tuple[str, str, str]]] = {
    "attention": [
        (
            "model/attention.py",
            "",
            "\n\ndef even(query, key, value, mask, dropout):\n"
            "    return explicit_attention(0 * query, key, value, mask, dropout)\n",
        ),
        (
            "model/attention.py",
            '{"dot": fused_attention, "unscaled": unscaled_attention}[config.score]',
            '{"dot": fused_attention, "unscaled": unscaled_attention, "even": even}[config.score]',
        ),
        ("config/model.py", 'score: Literal["dot",', 'score: Literal["even", "dot",'),
    ],
    "positions": [
        (
            "model/positions.py",
            "POSITIONS: dict[str, type[Positions]] = {",
            "class Slope(Positions):\n"
            "    def embed(self, x, start):\n"
            "        return x + torch.arange(start, start + x.size(1), device=x.device)[:, None] / 100\n\n\n"
            'POSITIONS: dict[str, type[Positions]] = {\n    "slope": Slope,',
        ),
        ("config/model.py", 'positions: Literal["none",', 'positions: Literal["slope", "none",'),
    ],
    "schedule": [
        (
            "training/optimizer.py",
            '    if settings.schedule == "constant":\n',
            '    if settings.schedule == "halving":\n'
            "        return highest * 0.5 ** ((step - warmup) // settings.halve_every)\n"
            '    if settings.schedule == "constant":\n',
        ),
        ("config/training.py", 'schedule: Literal["paper",', 'schedule: Literal["halving", "paper",'),
        (
            "config/training.py",
            "    warmup: ",
            '    halve_every: Count = 1000\n    "steps after which schedule halving halves the rate"\n    warmup: ',
        ),
    ],
    "corpus format": [
        (
            "data/scsv.py",
            "",
            "from dragoman.data.corpus import Row, read_lines\n\n\n"
            "def read_scsv(path, on_problem):\n"
            "    for number, line in enumerate(read_lines(path, on_problem), start=1):\n"
            '        yield Row(number, *(line or ";").split(";"))\n',
        ),
        (
            "data/corpus.py",
            '        case ".tsv":\n',
            '        case ".scsv":\n'
            "            from dragoman.data.scsv import read_scsv\n\n"
            "            return read_scsv(file, on_problem)\n"
            '        case ".tsv":\n',
        ),
        ("data/spec.py", 'OF_PAIRS = (".tsv",', 'OF_PAIRS = (".scsv", ".tsv",'),
    ],
    "metric": [
        (
            "evaluation/metrics.py",
            "    sentences: int\n\n    def as_dict",
            "    sentences: int\n    shorter: float = 0.0\n\n    def as_dict",
        ),
        (
            "evaluation/metrics.py",
            "    return Scores(bleu_score, chrf_score, same / len(references), len(references))",
            "    shorter = sum(map(lambda a, b: len(a) < len(b), translations, references)) / len(references)\n"
            "    return Scores(bleu_score, chrf_score, same / len(references), len(references), shorter)",
        ),
    ],
    "search rule": [
        (
            "decoding/processors.py",
            "",
            "\n\nclass Only:\n"
            "    def __init__(self, token, eos):\n        self.allowed = [token, eos]\n\n"
            "    def __call__(self, log_p, tokens, sentence):\n"
            "        mask = torch.ones_like(log_p, dtype=torch.bool)\n"
            "        mask[:, self.allowed] = False\n"
            "        return log_p.masked_fill(mask, -math.inf)\n",
        ),
        (
            "decoding/torch_engine.py",
            "        if config.min_length:\n",
            "        if config.only_token is not None:\n"
            "            from dragoman.decoding.processors import Only\n\n"
            "            processors.append(Only(config.only_token, EOS))\n"
            "        if config.min_length:\n",
        ),
        (
            "config/search.py",
            "    min_length: ",
            '    only_token: int | None = None\n    "the only token that may be used"\n    min_length: ',
        ),
    ],
    "view of `inspect`": [
        (
            "inspection/views.py",
            "    model = translator.model\n",
            '    if view == "twice":\n        return attention_grid(inspection, kind, subwords=True)\n'
            "    model = translator.model\n",
        ),
        ("inspection/views.py", 'View = Literal["map",', 'View = Literal["twice", "map",'),
        ("commands/inspect.py", 'view: Literal["map",', 'view: Literal["twice", "map",'),
    ],
    "section of the page": [
        (
            "inspection/page.py",
            '        "links": word_links(inspection),\n',
            '        "links": word_links(inspection),\n        "length": len(inspection.target.text),\n',
        ),
        (
            "inspection/web/page.html",
            '  <section aria-labelledby="positions-title"',
            '  <section id="length"><h2 data-t="length.title"></h2><p></p></section>\n'
            '  <section aria-labelledby="positions-title"',
        ),
        ("inspection/web/strings.json", '{\n  "en": {\n', '{\n  "en": {\n    "length.title": "Length",\n'),
        ("inspection/web/strings.json", '  "ko": {\n', '  "ko": {\n    "length.title": "길이",\n'),
        (
            "inspection/web/page.js",
            "function render() {\n",
            'function render() {\n  at("#length p").textContent = String(data.length);\n',
        ),
    ],
    "experiment": [
        (
            "lab/my_claim.py",
            "",
            EXPERIMENT,
        ),
        ("lab/__init__.py", '    "The whole": {\n', '    "The whole": {\n        "my-claim": "whether two is two",\n'),
    ],
    "preset": [
        (
            "config/presets.py",
            '    "tiny": TINY,\n',
            '    "mini": Preset(replace(TINY.model, d_model=32), TINY.training, vocabulary=300),\n    "tiny": TINY,\n',
        ),
        ("config/training.py", 'PresetName = Literal["tiny",', 'PresetName = Literal["mini", "tiny",'),
    ],
    "document format": [
        (
            "documents/paragraphs.py",
            "",
            "from dragoman.documents.document import Document, Passage\n"
            "from dragoman.documents.encoding import decode\n\n\n"
            "def parse_paragraphs(data):\n"
            "    text, encoding = decode(data)\n"
            "    return Document(text, encoding, [Passage(0, len(text), (text,), list)])\n",
        ),
        (
            "documents/__init__.py",
            "PARSERS: dict[str, Callable[[bytes], Document]] = {\n",
            "from dragoman.documents.paragraphs import parse_paragraphs\n\n"
            'PARSERS: dict[str, Callable[[bytes], Document]] = {\n    ".par": parse_paragraphs,\n',
        ),
    ],
    "setting of a training": [
        (
            "config/training.py",
            "    epochs: ",
            '    mood: str = "calm"\n    "how the training feels"\n    epochs: ',
        ),
    ],
    "flag of a command": [
        (
            "commands/score.py",
            "    json: ",
            '    thanks: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False\n    "say thank you"\n    json: ',
        ),
        (
            "commands/score.py",
            '    options = parse(Options, "score", arguments)\n',
            '    options = parse(Options, "score", arguments)\n'
            '    if options.thanks:\n        print("thank you", file=sys.stderr)\n',
        ),
    ],
}

# Run with the copy in front of everything else: argument 1 is an empty folder.
SCRIPT = """
import contextlib, io, json, sys
from pathlib import Path
from dragoman.cli import main

folder, results = Path(sys.argv[1]), {}
words = "red green blue black white dog cat bear horse fox".split()
pairs = [f"{a} {b} {c};{c} {b} {a}" for a in words for b in words for c in words][::7]
(folder / "train.scsv").write_text("".join(pair + chr(10) for pair in pairs))
(folder / "text.par").write_text("red dog\\nblue cat")
train, run = str(folder / "train.scsv"), str(folder / "run")


def dragoman(*arguments, expected=0):
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, arguments)])
    text = "".join((stream.flush(), stream.buffer.getvalue().decode())[1] for stream in (out, err))
    assert code == expected, text
    return text


dragoman("train", "--train", train, "--dev", train, "--out", run, "--preset", "mini", "--quiet",
         "--model.attention.score", "even", "--model.positions", "slope", "--training.schedule", "halving",
         "--training.learning-rate", 0.01, "--training.warmup", 2, "--training.halve-every", 2,
         "--training.max-steps", 6, "--training.mood", "merry", "--training.validate-every", 6, "--training.threads", 1)
results["config"] = (folder / "run" / "config.toml").read_text()
results["metrics"] = (folder / "run" / "metrics.jsonl").read_text()
results["evaluate"] = json.loads(dragoman("evaluate", "-m", run, train, "--json", "--beam", 1, "--extra-length", 5))
from dragoman.model_folder import read_model

model, tokenizer = read_model(folder / "run")
(token, *_) = tokenizer.encode("red")
results["only"] = tokenizer.decode([token])
only = ["--only-token", token, "--min-length", 3, "--no-detect-faults"]
results["translate"] = dragoman("translate", "-m", run, "dog", *only)
dragoman("translate", "-m", run, "-i", folder / "text.par", "-o", folder / "out.par")
results["document"] = (folder / "out.par").read_text()
dragoman("inspect", "-m", run, "red dog", "--view", "twice", "--out", folder / "twice.svg")
results["figure"] = (folder / "twice.svg").read_text()
dragoman("inspect", "-m", run, "red dog", "--html", folder / "page.html")
results["page"] = (folder / "page.html").read_text()
results["lab"] = dragoman("lab", "my-claim", "--quick", "--out", folder / "lab")
results["doubles"] = (folder / "lab" / "tables" / "my-claim-1-doubles.csv").read_text()
results["drawn"] = (folder / "lab" / "figures" / "my-claim-doubles.svg").read_text()
view = dragoman("inspect", "-m", run, "red dog", "--view", "positions", "--out", folder / "no.svg", expected=2)
from dragoman.interop.ctranslate2.conversion import unknown_settings

results["refused"] = [view, *unknown_settings(model)]
results["score"] = dragoman("score", "-m", run, train, "--thanks")

import torch

x = torch.zeros(1, 3, 32)
slope = next(module for module in model.modules() if type(module).__name__ == "Slope")
results["embedded"] = slope.embed(x, 1)[0, :, 0].tolist()
kernel = next(module.kernel for module in model.modules() if hasattr(module, "kernel"))
results["attended"] = kernel(*torch.randn(3, 1, 1, 4, 8), None, 0.0)[0, 0].tolist()
results["piece"] = dragoman("info", run)
print(json.dumps(results))
"""


def rows() -> dict[str, str]:
    """Return the rows of the last table: what to change -> what the row says."""
    table = README.split("## Where do I change X?")[1]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)[1:])


def files(text: str) -> set[str]:
    """Return the files of the package that a row names."""
    return {
        file
        for file in re.findall(r"`([\w/]+\.(?:py|html|js|json))`", text)
        if not file.startswith(("tests/", "docs/"))
    }


def test_every_path_of_the_map_exists():
    new = {"lab/my_claim.py", "documents/paragraphs.py", "data/scsv.py"}
    for path in set(re.findall(r"`([\w/-]+(?:\.(?:py|html|js|json|md)|/))`", README)) - new:
        assert (PACKAGE / path).exists() or (PACKAGE.parents[1] / path).exists(), path


def test_the_folders_of_the_map_are_those_of_the_package():
    shown = set(re.findall(r"^\| `([\w/]+)/` \|", README, re.MULTILINE))
    real = {str(file.parent.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py")}
    assert shown - real == set()
    assert {folder for folder in real if "/" not in folder} - {"."} <= shown


def test_the_layers_of_the_map_are_those_that_imports_keep_to():
    shown = README.split("## Layers")[1].split("\n## ")[0]
    assert [set(line.split(", ")) for line in re.findall(r"^    (.+)$", shown, re.MULTILINE)] == LAYERS


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return what the commands say in a copy of the package with all changes."""
    folder = tmp_path_factory.mktemp("where")
    copy = folder / "src" / "dragoman"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for changes in CHANGES.values():
        for name, before, after in changes:
            file = copy / name
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            assert not before or text.count(before) == 1, f"{name} no longer has {before!r} once"
            file.write_text(text.replace(before, after) if before else text + after, encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(work)]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_row_is_tried():
    assert set(rows()) == set(CHANGES)


@pytest.mark.parametrize("row", CHANGES)
def test_a_row_names_the_files_to_touch_and_no_others(row: str):
    assert files(rows()[row]) == {file for file, _, _ in CHANGES[row]}


def rates(results: dict[str, object]) -> list[float]:
    steps = [json.loads(line) for line in results["metrics"].splitlines()]
    return [step["rate"] for step in steps if step["event"] == "step"]


# What shows that the change of a row works.
WORKS = {
    "attention": lambda r: 'score = "even"' in r["config"] and len({round(row[0], 5) for row in r["attended"]}) == 1,
    "positions": lambda r: 'positions = "slope"' in r["config"] and r["embedded"] == pytest.approx([0.01, 0.02, 0.03]),
    "schedule": lambda r: rates(r)[-1] == pytest.approx(0.01 / 4),
    "corpus format": lambda r: "train = [" in r["config"] and ".scsv" in r["config"],
    "metric": lambda r: 0 <= r["evaluate"]["shorter"] <= 1,
    "search rule": lambda r: r["only"] and r["translate"].replace(" ", "").startswith(3 * r["only"]),
    "view of `inspect`": lambda r: "<svg" in r["figure"],
    "section of the page": lambda r: all(
        part in r["page"] for part in ('id="length"', '"length.title": "Length"', "#length p")
    ),
    "experiment": lambda r: (
        "1 of 1 claims hold" in r["lab"] and r["doubles"].startswith("number,double\n1,2\n") and "<svg" in r["drawn"]
    ),
    "preset": lambda r: 'preset = "mini"' in r["config"] and "d_model = 32" in r["config"],
    "document format": lambda r: r["document"] != "",
    "setting of a training": lambda r: 'mood = "merry"' in r["config"],
    "flag of a command": lambda r: "thank you" in r["score"],
}


@pytest.mark.parametrize("row", CHANGES)
def test_what_a_row_adds_works(row: str, results: dict[str, object]):
    assert WORKS[row](results), results


def test_who_does_not_know_a_new_scheme_refuses_it_by_its_name(results: dict[str, object]):
    """The engine would translate as if there were no positions, and a figure would be of something else."""
    view, *settings = results["refused"]
    assert "no figure for positions = 'slope'" in view
    assert "positions = 'slope'" in settings
