"""The map of the code, src/dragoman/README.md, is followed to the letter: each row of its last table is tried.

A copy of the package gets a new attention score, position scheme, schedule, corpus format and so on, in the files that
the row names and in no others. One process with that copy then trains, translates, evaluates, inspects and experiments.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_flags import FLAGS

PACKAGE = Path(__file__).parents[2] / "src" / "dragoman"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")

EXPERIMENT = """
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Figure, Findings, Table, experiment


@experiment("Two", "nowhere", "Two is two.")
def run(effort):
    counts = range(1, effort.scale(8) + 1)
    table = Table("number | double", [(n, 2 * n) for n in counts])
    panel = Panel({"double": (counts, table.column("double"))}, "number", "double")
    claims = {f"One, doubled, [is|is not] {table.rows[0][1]}.": table.rows[0][1] == 2}
    figures = {"doubles": Figure("Doubles.", lines(panel))}
    return Findings(f"seeds {effort.seeds}", claims, {"Doubles": table}, figures)
"""

SCSV = """from dragoman.data.lines import Row, read_lines


def read_scsv(path, on_problem):
    for number, line in enumerate(read_lines(path, on_problem), start=1):
        yield Row(number, *(line or ";").split(";"))
"""
SLOPE = """class Slope(Positions):
    def embed(self, x, start):
        return x + torch.arange(start, start + x.size(1), device=x.device)[:, None] / 100


"""
ONLY = """

class Only:
    def __init__(self, token, eos):
        self.allowed = [token, eos]

    def __call__(self, log_p, tokens, sentence):
        mask = torch.ones_like(log_p, dtype=torch.bool)
        mask[:, self.allowed] = False
        return log_p.masked_fill(mask, -math.inf)
"""
PARAGRAPHS = """from dragoman.documents.document import Document, Passage
from dragoman.documents.encoding import decode


def parse_paragraphs(data):
    text, encoding = decode(data)
    return Document(text, encoding, [Passage(0, len(text), (text,), list)])
"""

# For each row of the table: (file, text in it with a ^ where something is inserted, what is inserted there). A text
# without ^ is empty and stands for the end of the file. `fmt: off` keeps an insertion on the line of its place.
# fmt: off
CHANGES: dict[str, list[tuple[str, str, str]]] = {
    "attention": [
        ("model/attention.py", "", "\n\ndef even(query, key, value, mask, dropout):\n"
            "    return explicit_attention(0 * query, key, value, mask, dropout)\n"),
        ("model/attention.py", '            self.kernel = {^"dot": fused_attention,', '"even": even, '),
        ("config/model.py", 'score: Literal[^"dot",', '"even", '),
    ],
    "positions": [
        ("model/positions.py", "^POSITIONS: dict[str, type[Positions]] = {", SLOPE),
        ("model/positions.py", "POSITIONS: dict[str, type[Positions]] = {^", '\n    "slope": Slope,'),
        ("config/model.py", 'Positions = Literal["none",^ "sinusoidal"', ' "slope",'),
    ],
    "schedule": [
        ("training/optimizer.py", '^    if settings.schedule == "constant":\n',
            '    if settings.schedule == "halving":\n'
            "        return highest * 0.5 ** ((step - warmup) // settings.halve_every)\n"),
        ("config/training.py", 'schedule: Literal[^"paper",', '"halving", '),
        ("config/training.py", "^    warmup: ",
            '    halve_every: Count = 1000\n    "steps after which the rate is halved"\n'),
    ],
    "corpus format": [
        ("data/scsv.py", "", SCSV),
        ("data/formats.py", '^        case ".tsv":\n', '        case ".scsv":\n'
            "            from dragoman.data.scsv import read_scsv\n\n            return read_scsv(file, on_problem)\n"),
        ("data/spec.py", 'OF_PAIRS = (^".tsv",', '".scsv", '),
    ],
    "metric": [
        ("evaluation/metrics.py", "class Scores:\n    \"\"\"Report what `evaluate` measures of a test set.\"\"\"\n\n^",
            "    shorter: float\n"),
        ("evaluation/metrics.py", "    return Scores(^",
            "sum(map(lambda a, b: len(a) < len(b), translations, references)) / len(references), "),
    ],
    "search rule": [
        ("decoding/processors.py", "", ONLY),
        ("decoding/torch_engine.py", "^        if config.min_length:\n", "        if config.only_token is not None:\n"
            "            from dragoman.decoding.processors import Only\n\n"
            "            processors.append(Only(config.only_token, EOS))\n"),
        ("config/search.py", "^    min_length: ",
            '    only_token: int | None = None\n    "the only token that may be used"\n'),
    ],
    "view of `inspect`": [
        ("inspection/views.py", "^    model = translator.model\n",
            '    if view == "twice":\n        return attention_grid(inspection, kind, subwords=True)\n'),
        ("inspection/views.py", 'View = Literal[\n    ^"map",', '"twice", '),
        ("commands/inspect.py", 'view: Literal[\n        ^"map",', '"twice", '),
    ],
    "section of the page": [
        ("inspection/page.py", '^        "links": word_links(inspection),\n',
            '        "length": len(inspection.target.text),\n'),
        ("inspection/web/page.html", '^  <section aria-labelledby="positions-title"',
            '  <section id="length"><h2 data-t="length.title"></h2><p></p></section>\n'),
        ("inspection/web/page.json", '{\n  "en": {\n^', '    "length.title": "Length",\n'),
        ("inspection/web/page.json", '  "ko": {\n^', '    "length.title": "길이",\n'),
        ("inspection/web/page.js", "function render() {\n^", '  at("#length p").textContent = String(data.length);\n'),
    ],
    "experiment": [
        ("../dragoman_lab/my_claim.py", "", EXPERIMENT),
        ("../dragoman_lab/__init__.py", '    "The whole model": {\n^', '        "my-claim": "whether two is two",\n'),
    ],
    "preset": [
        ("config/presets.py", '^    "tiny": TINY,\n',
            '    "mini": Preset(replace(TINY.model, d_model=32), TINY.training, vocabulary=300),\n'),
        ("config/training.py", 'PresetName = Literal[^"tiny",', '"mini", '),
    ],
    "document format": [
        ("documents/paragraphs.py", "", PARAGRAPHS),
        ("documents/__init__.py", "^PARSERS: dict[str, Callable[[bytes], Document]] = {\n",
            "from dragoman.documents.paragraphs import parse_paragraphs\n\n"),
        ("documents/__init__.py", "PARSERS: dict[str, Callable[[bytes], Document]] = {\n^",
            '    ".par": parse_paragraphs,\n'),
    ],
    "training setting": [
        ("config/training.py", "^    epochs: ", '    mood: str = "calm"\n    "how the training feels"\n'),
    ],
    "flag of a command": [
        ("commands/score.py", "^    json: ",
            '    thanks: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False\n    "say thank you"\n'),
        ("commands/score.py", '    options = parse(Options, "score", arguments)\n^',
            '    if options.thanks:\n        print("thank you", file=sys.stderr)\n'),
    ],
}
# fmt: on

# Run with the copy in front of everything else: argument 1 is an empty folder.
SCRIPT = """
import contextlib, io, json, sys
from pathlib import Path
from dragoman.cli import main

folder, results = Path(sys.argv[1]), {}
words = "red green blue black white dog cat bear horse fox".split()
pairs = [f"{a} {b} {c};{c} {b} {a}" for a in words for b in words for c in words][::7]
for name, some in {"train": pairs, "dev": pairs[:9]}.items():
    (folder / f"{name}.scsv").write_text("".join(pair + chr(10) for pair in some))
(folder / "text.par").write_text("red dog\\nblue cat")
train, dev, run = str(folder / "train.scsv"), str(folder / "dev.scsv"), str(folder / "run")


def dragoman(*arguments, expected=0):
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, arguments)])
    text = "".join((stream.flush(), stream.buffer.getvalue().decode())[1] for stream in (out, err))
    assert code == expected, text
    return text


dragoman("train", "--train", train, "--dev", dev, "--out", run, "--preset", "mini", "--quiet",
         "--model.attention.score", "even", "--model.positions", "slope", "--training.schedule", "halving",
         "--training.learning-rate", 0.01, "--training.warmup", 2, "--training.halve-every", 2,
         "--training.max-steps", 6, "--training.mood", "merry", "--training.validate-every", 6, "--training.threads", 1)
results["config"] = (folder / "run" / "config.toml").read_text()
results["metrics"] = (folder / "run" / "metrics.jsonl").read_text()
said = dragoman("evaluate", "-m", run, dev, "--json", "--beam", 1, "--extra-length", 5)
results["evaluate"] = json.loads(said.splitlines()[0])  # the next line is of texts that were translated twice
from dragoman.model_folder import read_model

model, (tokenizer, _) = read_model(folder / "run")
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
dragoman("inspect", "-m", run, "red dog", "--view", "positions", "--out", folder / "slope.svg")
results["positions figure"] = (folder / "slope.svg").read_text()
from dragoman.interop.ctranslate2.conversion import unknown_settings

results["refused"] = unknown_settings(model.config)
results["score"] = dragoman("score", "-m", run, dev, "--thanks")

import torch

x = torch.zeros(1, 3, 32)
slope = next(module for module in model.modules() if type(module).__name__ == "Slope")
results["embedded"] = slope.embed(x, 1)[0, :, 0].tolist()
kernel = next(module.kernel for module in model.modules() if hasattr(module, "kernel"))
results["attended"] = kernel(*torch.randn(3, 1, 1, 4, 8), None, 0.0)[0, 0].tolist()
results["piece"] = dragoman("info", run)
print(json.dumps(results))
"""


def rows() -> dict[str, tuple[str, str]]:
    """Return the rows of the last table: what to change -> what to touch, and how to try it."""
    table = README.split("## Where do I change X?")[1]
    return {
        change: (touch, attempt)
        for change, touch, attempt in re.findall(r"^\| (.+?) \| (.+) \| (.+) \|$", table, re.MULTILINE)[1:]
    }


def files(text: str) -> set[str]:
    """Return the files of the package that a row names."""
    return set(re.findall(r"`((?!tests/|docs/)(?:\.\./)?[\w/]+\.(?:py|html|js|json))`", text))


def test_paths_of_the_map_exist():
    new = {"../dragoman_lab/my_claim.py", "documents/paragraphs.py", "data/scsv.py"}
    for path in set(re.findall(r"`((?:\.\./)?[\w/-]+(?:\.(?:py|html|js|json|md)|/))`", README)) - new:
        assert (PACKAGE / path).exists() or (PACKAGE.parents[1] / path).exists(), path


def test_folders_of_the_map_are_those_of_the_package():
    shown = set(re.findall(r"^\| `([\w/]+)/` \|", README, re.MULTILINE))
    real = {str(file.parent.relative_to(PACKAGE)) for kind in ("py", "toml") for file in PACKAGE.rglob(f"*.{kind}")}
    assert shown - real == set()
    assert {folder for folder in real if "/" not in folder} - {"."} <= shown


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return what the commands say in a copy of the package with all changes."""
    folder = tmp_path_factory.mktemp("where")
    copy = folder / "src" / "dragoman"
    shutil.copytree(PACKAGE.parent, copy.parent)
    for name, place, inserted in itertools.chain.from_iterable(CHANGES.values()):
        file = copy / name
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        before, _, after = place.partition("^")
        assert not place or text.count(before + after) == 1, f"{name} no longer has {before + after!r} once"
        changed = text.replace(before + after, before + inserted + after) if place else text + inserted
        file.write_text(changed, encoding="utf-8")
    (folder / "work").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, "."]
    options = {"cwd": folder / "work", "env": environment, "capture_output": True, "text": True, "encoding": "utf-8"}
    done = subprocess.run(command, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_rows_of_the_map_are_all_tried():
    assert set(rows()) == set(CHANGES)


@pytest.mark.parametrize("row", CHANGES)
def test_row_names_the_files_to_touch_and_no_others(row: str):
    assert files(rows()[row][0]) == {file for file, _, _ in CHANGES[row]}


@pytest.mark.parametrize("row", CHANGES)
def test_row_names_a_command_that_shows_the_change(row: str):
    command, *words = rows()[row][1].split("`")[1].removeprefix("dragoman ").split()
    flags = {word for word in words if word.startswith("--")} - {"--FLAG", "--training.NAME"}
    assert flags <= {*FLAGS[command].split()}


# What shows that the change of a row works.
WORKS = {
    "attention": lambda r: 'score = "even"' in r["config"] and len({round(row[0], 5) for row in r["attended"]}) == 1,
    # Drawn by what it adds, and refused by the other engine, which would translate as if there were no positions.
    "positions": lambda r: (
        'positions = "slope"' in r["config"]
        and r["embedded"] == pytest.approx([0.01, 0.02, 0.03])
        and "slope positions of the encoder" in r["positions figure"]
        and "positions = 'slope'" in r["refused"]
    ),
    "schedule": lambda r: float(re.findall(r'"rate": ([^,}]+)', r["metrics"])[-1]) == pytest.approx(0.01 / 4),
    "corpus format": lambda r: "train = [" in r["config"] and ".scsv" in r["config"],
    "metric": lambda r: 0 <= r["evaluate"]["shorter"] <= 1,
    "search rule": lambda r: r["only"] and r["translate"].replace(" ", "").startswith(3 * r["only"]),
    "view of `inspect`": lambda r: "<svg" in r["figure"],
    "section of the page": lambda r: all(p in r["page"] for p in ('id="length"', '"length.title": "Len', "#length p")),
    "experiment": lambda r: (
        "1 of 1 claims hold" in r["lab"] and "<svg" in r["drawn"] and r["doubles"].startswith("number,double\n1,2\n")
    ),
    "preset": lambda r: 'preset = "mini"' in r["config"] and "d_model = 32" in r["config"],
    "document format": lambda r: r["document"] != "",
    "training setting": lambda r: 'mood = "merry"' in r["config"],
    "flag of a command": lambda r: "thank you" in r["score"],
}


@pytest.mark.slow
def test_additions_of_the_map_rows_work(results: dict[str, object]):
    """One test, so that the copy is made and tried in one of the processes that test."""
    assert set(WORKS) == set(CHANGES)
    assert [row for row, works in WORKS.items() if not works(results)] == [], results
