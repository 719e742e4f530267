"""The command line: results on standard output, everything else on standard error, and no traceback for any input."""

import contextlib
import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, Ran, write_tsv
from hostile import CODECS, packed
from processes import Command, wait_for

from dragoman.cli import COMMANDS, main
from dragoman.config import RunConfig, SearchConfig
from dragoman.config.languages import LanguagePair, parse_pair
from dragoman.data.corpus import Pair
from dragoman.data.lines import read_lines
from dragoman.data.tokenizer import EOS, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import UsageError
from dragoman.inspection.summary import Summary
from dragoman.model import build
from dragoman.model_folder import verify_files, write_model
from dragoman.storage.writing import new_folder
from dragoman.text.extent import SourceExtent
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.translator import Translator

Corpus = tuple[str, str]

SOURCE = str(Path(__file__).parents[2] / "src")


def process(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Runs a command as users do."""
    command = [sys.executable, "-m", "dragoman", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=environment, **{**pipes, **options})  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """The folder of a model that ends at once, so that many lines take little time."""
    torch.manual_seed(0)
    model = build(replace(TINY, output_bias=True), len(tokenizer))
    with torch.no_grad():
        model.output.bias[EOS] = 9.0  # type: ignore[index]
    folder = tmp_path_factory.mktemp("models") / "brief"
    with new_folder(folder) as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# brief\n")
    return folder


# Requests that are wrong, one line for each.

SMALL = """--preset tiny --model.d-model 16 --model.attention.heads 2 --model.encoder-layers 1
--model.decoder-layers 1 --model.positions learned --model.max-length 20"""
QUICK = "--preset tiny --quiet --training.max-steps 1 --training.threads 1"
BAD = [
    # how it is wrong, exit code (0: 1 or 2), what the line says
    ("fly", 2, "unknown command 'fly'; choose from demo, check, split, wish, forecast, train"),
    ("tranlate x.txt", 2, "unknown command 'tranlate'; did you mean 'translate'?"),
    ("train", 2, "--train is missing"),
    ("train --train {train}", 2, "--dev is missing"),
    ("train --train missing.tsv --dev {dev}", 1, "missing.tsv: no such file"),
    ("train --train {train} --dev missing.tsv", 1, "missing.tsv: no such file"),
    ("train --train {train} --dev empty.tsv", 1, "empty.tsv: no sentence pairs"),
    ("train --train one-column.tsv --dev {dev}", 1, "one-column.tsv:1: no tab"),
    ("train --train latin1.tsv --dev {dev}", 1, "latin1.tsv:2: not UTF-8 at byte 1"),
    ("train --train three two --dev {dev}", 1, "three has 3 lines, two has 2"),
    ("train --train a b c --dev {dev}", 2, "not 3 files"),
    ("train --train . --dev {dev}", 1, ".: a folder; name the files in it"),
    ("evaluate -m {brief} .", 1, ".: a folder; name the files in it"),
    ("train --train {train} --dev {dev} --vocabulary 90000", 2, "larger than this text supports"),
    ("train --train {train} --dev {dev} --vocabulary 5", 2, "vocabulary must be at least 300"),
    ("train --train {train} --dev {dev} --training.epochs 0", 2, "epochs must be at least 1"),
    ("train --train {train} --dev {dev} --training.seed -1", 2, "seed must be at least 0"),
    ("train --train {train} --dev {dev} --training.max-tokens 3", 1, "every pair is longer than 3 tokens"),
    ("train --train {train} --dev {dev} --model.attention.heads 7", 2, "is not divisible by 7 heads"),
    ("train --train {train} --dev {dev} --model.positions rotary --model.d-model 36", 0, "rotary"),
    ("train --train {train} --dev {dev} --out empty.tsv", 1, "empty.tsv: this is a file, and a folder is needed"),
    ("train --train {train} --dev {dev} --out empty.tsv/run", 1, "empty.tsv/run: part of this path is a file"),
    ("train --preset huge", 2, "huge"),
    ("train --quiet {train}", 2, "is not a settings file (.toml); to train on pairs: dragoman train --train"),
    ("info tiny", 2, "tiny is a preset: dragoman info --preset tiny"),
    ("train missing.toml", 2, "missing.toml: no such file"),
    ("train folder.toml", 0, "folder.toml: "),
    ("train unknown.toml", 2, "unknown.toml: training: unknown setting 'warm_up', did you mean 'warmup'?"),
    ("train broken.toml", 2, "broken.toml: not valid TOML"),
    ("train preset.toml", 2, "preset"),
    ("translate -m missing x", 1, "missing: no such model folder"),
    ("serve -m english={brief}", 2, "'english' is not a language pair, such as en-de"),
    ("serve -m english={brief}:ko", 2, "'english' is not a language pair, such as en-de"),
    ("inspect x -m {brief} --view masques", 2, "not 'masques'; did you mean 'masks'?"),
    ("translate -m . x", 1, ".: not a model folder: it has no manifest.json; did you mean damaged?"),
    ("translate -m folder.toml x", 1, "folder.toml: not a model folder: it has no manifest.json\n"),
    ("translate -m {train} x", 1, "a file; name the model folder that it is in"),
    ("translate -m missing x --output-format json", 2, "must be one of jsonl, nbest, text, tsv, not 'json'"),
    ("backtranslate -m missing --text /dev/null --out a.tsv", 2, "/dev/null: the text is read more than once"),
    ("translate -m {damaged} x", 1, "model.safetensors: damaged"),
    ("translate -m {brief} --input missing.txt", 1, "missing.txt: No such file"),
    ("translate -m {brief} --input folder.toml", 1, "folder.toml: "),
    ("translate -m {brief} --output no/such/folder x", 2, "no/such/folder: the folder no/such does not exist"),
    ("translate -m {brief} --output empty.tsv/out.txt x", 2, "empty.tsv/out.txt: empty.tsv is not a folder"),
    ("translate -m {brief} -o a.mo x", 2, "a.mo: MO files are compiled: write a .po, then compile it with msgfmt"),
    ("translate -m {brief} -o . x", 2, ".: a folder; give the name of a file"),
    ("translate -m {brief} -o / x", 2, "/: a folder; give the name of a file"),
    ("inspect -m missing --out . x", 2, ".: a folder; give the name of a file"),
    ("inspect -m missing --html folder.html x", 2, "folder.html: a folder; give the name of a file"),
    ("insight . --out folder.html", 2, "folder.html: a folder; give the name of a file"),
    ("plot . --out folder.html", 2, "folder.html: a folder; give the name of a file"),
    ("info --preset tiny --diagram .", 2, ".: a folder; give the name of a file"),
    ("translate -m {brief} --patience 1e-300 x", 2, "--patience must be at least 0.001, not 1e-300"),
    ("translate -m {brief} --beam-groups 2 --diversity-penalty 1e39 x", 2, "--diversity-penalty must be at most 1,000"),
    ("translate -m {brief} --beam 0 x", 2, "beam must be at least 1"),
    ("translate -m {brief} -i - x", 2, "give text or --input, not both"),
    (
        "translate -m {brief} -i a.doc",
        2,
        "a.doc: a word processor's file: save it as .docx or .odt to translate",
    ),
    ("translate -m {brief} -i a.TMX.gz", 2, "a.TMX.gz: has translations already"),
    ("translate -m {brief} -i empty.tsv -o a.pdf", 2, "a.pdf: cannot be written; lines become .txt, .tsv or .jsonl"),
    ("translate -m {brief} -i a.md -o a.jsonl", 2, "a.jsonl: a document keeps its format, .md; to translate its lines"),
    ("translate -m {brief} -i a.md -o a.txt", 2, "a.txt: a document keeps its format, .md; to translate its lines"),
    ("translate -m {brief} -i a.md -o a.html", 2, "a.html: a document keeps its format, so --output must end in .md"),
    ("translate -m {brief} -i utf-16.txt -o new.txt", 1, "utf-16.txt: text in UTF-16: convert it to UTF-8 (iconv"),
    ("translate -m {brief} x --n-best 9", 2, "--n-best 9 needs a --beam of at least 9, not 4"),
    ("translate -m {brief} x --beam-groups 3", 2, "--beam 4 cannot be divided evenly into --beam-groups 3"),
    ("translate -m {brief} x --diversity-penalty 1", 2, "--diversity-penalty is for groups of hypotheses: choose"),
    ("translate -m {brief} x --top-k 5", 2, "--top-k and --top-p are for sampling: choose a --temperature"),
    ("translate -m {brief} x --seed 3", 2, "--seed is for sampling: choose a --temperature"),
    ("evaluate -m {brief} {dev} --seed 3", 2, "--seed is for sampling"),
    ("backtranslate -m {brief} --text a.txt --out a.tsv --seed 3", 2, "--seed is for sampling"),
    ("inspect -m {brief} x --seed 3", 2, "--seed is for sampling"),
    ("inspect -m {brief} x --n-best 3", 2, "inspect has no flag --n-best"),
    ("inspect -m {brief} x --split none", 2, "inspect has no flag --split"),
    ("translate -m {brief} -i a.html --output-format jsonl", 2, "a.html: a document keeps its format; to translate"),
    ("translate -m {brief} -i a.html --input-format tsv", 2, "to translate its lines: --as-lines"),
    ("translate -m {brief} -o a.json x", 2, "a.json: a document keeps its format, so --input must be .json, too"),
    ("translate -m {brief} -i cut.txt.gz", 1, "cut.txt.gz: damaged or truncated"),
    ("translate -m {brief} -i cut.po.gz", 1, "cut.po.gz: damaged or truncated"),
    ("backtranslate -m {brief} --text a.pdf --out a.tsv", 2, "a.pdf: a PDF has letters and their places"),
    ("check a.srt", 2, "a.srt: subtitles, in one language: dragoman translate --input reads it"),
    ("check page.HTML.gz", 2, "page.HTML.gz: a web page, in one language: dragoman translate --input reads it"),
    ("check a.md --dev b.tsv", 2, "a.md: Markdown, in one language: dragoman translate --input reads it"),
    ("check a.mo", 2, "a.mo: a compiled catalogue: turn it into .po with msgunfmt"),
    ("score -m {brief} a.xlsx.gz", 2, "a.xlsx.gz: a spreadsheet: save it as .csv"),
    ("evaluate -m missing {dev}", 1, "missing: no such model folder"),
    ("evaluate -m {brief} missing.tsv", 1, "missing.tsv: no such file"),
    ("evaluate -m {brief} three two", 1, "three has 3 lines, two has 2"),
    ("evaluate -m {brief}", 2, "give a test set"),
    ("evaluate -m {brief} {dev} --n-best 2", 2, "evaluate has no flag --n-best; see dragoman evaluate --help"),
    ("evaluate -m {brief} {dev} --output no/such/folder", 0, "no/such/folder"),
    ("translate -m {brief} --source-lang en x", 2, "translate has no flag --source-lang; a model has its languages; "),
    ("evaluate -m {brief} --batch-size=8 {dev}", 2, "has no flag --batch-size; batches are as large as is fast; leave"),
    ("split {train} --out parts --seed 3", 2, "split has no flag --seed; the same pairs are always split in the same "),
    ("check --train {train}", 2, "check has no flag --train; name the corpora without a flag"),
    (
        "train --train empty.tsv,empty.tsv --dev {dev}",
        1,
        "no such file; two files are separated by a space: empty.tsv ",
    ),
    ("evaluate {dev}", 2, "give what to measure: a model (-m FOLDER), or a file of translations (--translations FILE)"),
    ("evaluate -m {brief} --translations empty.tsv {dev}", 2, "give what to measure: a model (-m FOLDER), or a file "),
    ("evaluate --translations empty.tsv -o out.txt {dev}", 2, "--ensemble and --output need a model"),
    ("evaluate --translations empty.tsv --beam 2 {dev}", 2, "the flags of a search need a model"),
    ("evaluate --translations three {dev}", 1, "three: 3 lines, but the test set has "),
    ("evaluate --translations empty.tsv {dev}", 2, "empty.tsv: --translations reads plain text, one translation per"),
    ("evaluate -m {brief} --against-file empty.tsv {dev}", 2, "empty.tsv: --against-file reads plain text, one trans"),
    ("train --resume --train {train}", 2, "train has no flag --resume; the same command resumes a run; leave it out"),
    ("check empty.tsv,empty.tsv", 1, "no such file; two files are separated by a space: empty.tsv empty.tsv"),
    ("split empty.tsv,empty.tsv --out parts", 1, "no such file; two files are separated by a space: empty.tsv empt"),
    ("train --steps 20", 2, "train has no flag --steps; did you mean --training.max-steps?"),
    ("train --lr 1 --train {train}", 2, "train has no flag --lr; did you mean --training.learning-rate?"),
    ("train --batch-size=64", 2, "train has no flag --batch-size; did you mean --training.batch-tokens?"),
    ("train --source-lang en --target-lang es", 2, "train has no flag --source-lang; did you mean --languages?"),
    ("distill -m runs/mine", 2, "distill has no flag -m; did you mean --teacher?"),
    ("translate --num-beams 8 x", 2, "translate has no flag --num-beams; did you mean --beam?"),
    ("translate -m {brief} -i a.md -o b.md --n-best 2", 2, "--n-best 2 is for lines; a document has one translation"),
    ("translate --alternatives 3 x", 2, "translate has no flag --alternatives; did you mean --n-best?"),
    ("translate --max-lenght 9 x", 2, "translate has no flag --max-lenght; did you mean --extra-length?"),
    ("train --num-beam 4", 2, "train has no flag --num-beam; see dragoman train --help"),
    ("translate --num-beam 4", 2, "translate has no flag --num-beam; did you mean --beam?"),
    ("evaluate --alternatives 3", 2, "evaluate has no flag --alternatives; see dragoman evaluate --help"),
    ("translate --gpu 0 x", 2, "translate has no flag --gpu; did you mean --device?"),
    ("train --dropout 0.2", 2, "train has no flag --dropout; did you mean --model.dropout?"),
    ("train --model.dropuot 0.2", 2, "did you mean --model.dropout?"),
    ("train -o runs/new", 2, "train has no flag -o; did you mean --out?"),
    ("translate --zzz x", 2, "translate has no flag --zzz; see dragoman translate --help"),
    ("info", 2, "give a model folder, a preset or --system"),
    ("info {brief} --preset base", 2, "give a model folder, a preset or --system"),
    ("info missing", 1, "missing: no such model folder"),
    ("info --preset base --vocabulary 0", 2, "--vocabulary must be from 1 to"),
    ("benchmark -m {brief} --sentences -3", 2, "--sentences must be at least 1, not -3"),
    ("benchmark -m {brief} --rounds 0", 2, "--rounds must be at least 1, not 0"),
    ("benchmark -m {brief} --beam 0", 2, "--beam must be at least 1"),
    ("benchmark -m {brief} missing.tsv", 1, "missing.tsv: no such file"),
    ("info {brief} --vocabulary 400", 2, "--vocabulary is for --preset"),
    (
        "inspect -m {brief} text --out picture.jpg",
        2,
        "picture.jpg: a figure's name must end in one of .svg, .png, .pdf",
    ),
    ("inspect -m {brief} text --out picture", 2, "picture: a figure's name must end in"),
    ("inspect -m missing text", 1, "missing: no such model folder"),
    ("inspect -m {brief} text --layer 2", 2, "layer 2: the model has layers 1 to 1"),
    ("inspect -m {brief} text --head 0", 2, "head 0: the model has heads 1 to 2"),
    ("inspect -m {brief} text --out empty.tsv/picture.svg", 0, "empty.tsv"),
    # Further cases of mistakes that are above.
    pytest.param("translate --num_beams 8 x", 2, "did you mean --beam?", marks=pytest.mark.slow),
    pytest.param(
        "train --max-lenght 9 x",
        2,
        "train has no flag --max-lenght; did you mean --model.max-length?",
        marks=pytest.mark.slow,
    ),
    pytest.param("train --attention-dropout 0.2", 2, "did you mean --model.attention.dropout?", marks=pytest.mark.slow),
    pytest.param("train --model-dropout 0.2", 2, "did you mean --model.dropout?", marks=pytest.mark.slow),
    pytest.param(
        "translate --alternativs=3 x",
        2,
        "translate has no flag --alternativs; did you mean --n-best?",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "translate --beam_size=4 x",
        2,
        "translate has no flag --beam_size; did you mean --beam?",
        marks=pytest.mark.slow,
    ),
    pytest.param("inspect -m {brief} text --out folder.svg", 0, "folder.svg", marks=pytest.mark.slow),
    pytest.param(
        "train {train} {dev}",
        2,
        "is not a settings file (.toml); to train on pairs: dragoman train --train",
        marks=pytest.mark.slow,
    ),
]


def test_help_names_a_command_before_or_after_it(capsys: pytest.CaptureFixture[str]):
    shown = []
    for arguments in (["help", "split"], ["split", "--help"], ["help"], ["help", "nothing"]):
        with contextlib.suppress(SystemExit):
            main(arguments)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2] == shown[3]


@pytest.mark.parametrize(("lines", "others"), [("x\n", False), ('x\n{"text": "a"}\n', True)])
def test_lines_that_cannot_be_read_are_told_from_all_others(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, others: bool
):
    (tmp_path / "a.jsonl").write_text(lines)
    assert main(["translate", "-m", str(trained), "-i", str(tmp_path / "a.jsonl"), "--beam", "1"]) == 1
    error = capsys.readouterr().err
    assert "1 line could not be read, listed above" in error
    assert ("all others were translated" in error) == others


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("translate -m x y --output-format json", "--output-format must be one of jsonl, nbest, text, tsv, not 'json'"),
        ("train --minutes four", "--training.minutes must be a number, not 'four'"),
        ("train --batch-tokens x", "--training.batch-tokens must be a whole number or auto, not 'x'"),
        ("translate -m", "-m/--model needs a value"),
        ("translate x", "translate needs -m FOLDER (model folder, run folder or hub:USER/NAME)"),
        (f"translate {'x' * 300}", "translate needs -m FOLDER (model folder, run folder or hub:USER/NAME)"),
        ("upload x", "upload needs hub:USER/NAME (its name on the Hub; an existing model gets a new version)"),
        ("upload", "upload needs MODEL and hub:USER/NAME"),
        ("export x", "export needs OUT and --to {dragoman,ctranslate2,onnx,huggingface,web}"),
        ("translate . x", "translate needs -m in front of its model folder: -m ."),
        ("split x", "split needs --out FOLDER (folder for train.tsv, dev.tsv and test.tsv)"),
        ("info a b", "info does not take 'b'"),
        ("benchmark x", "benchmark needs -m FOLDER (model folder, run folder or hub:USER/NAME)"),
    ],
)
def test_wrong_flags_get_one_sentence(dragoman, line: str, says: str, monkeypatch: pytest.MonkeyPatch):
    hint = "did you mean 'jsonl'?" if "json" in line else f"see dragoman {line.split()[0]} --help"
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        ran = dragoman(*line.split())
        assert (ran.code, ran.out, ran.err) == (2, "", f"dragoman: {says}; {hint}\n")


@pytest.mark.parametrize(
    ("line", "code", "says"), BAD, ids=[row.values[0] if hasattr(row, "values") else row[0] for row in BAD]
)
def test_plot_answers_a_wrong_request_in_one_clear_line(
    dragoman, corpus: Corpus, brief: Path, tmp_path: Path, line: str, code: int, says: str
):
    write_bad_files(tmp_path)
    damaged = shutil.copytree(brief, tmp_path / "damaged")
    with (damaged / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    names = {"train": corpus[0], "dev": corpus[1], "brief": brief, "damaged": damaged}
    arguments = line.format(**names).split()
    if "--train" in arguments:
        arguments += QUICK.split()
    ran = dragoman(*arguments)
    assert ran.code in ([code] if code else [1, 2])
    assert ran.out == ""
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 1


def test_folder_of_checkpoints_leads_to_the_best_model_of_the_run(dragoman, brief: Path, tmp_path: Path):
    run = tmp_path / "run"
    for name in ("best", "checkpoints/step-00000100", "checkpoints/step-00000200"):
        shutil.copytree(brief, run / name)
    ran = dragoman("translate", "-m", run / "checkpoints", "x")
    assert ran.err.endswith(f"it has no manifest.json; did you mean {run}/best?\n")
    shutil.rmtree(run / "best")
    ran = dragoman("translate", "-m", run / "checkpoints", "x")
    assert ran.err.endswith(f"it has no manifest.json; did you mean {run}/checkpoints/step-00000100?\n")


def write_bad_files(folder: Path) -> None:
    (folder / "empty.tsv").touch()
    (folder / "one-column.tsv").write_text("only one\n")
    (folder / "latin1.tsv").write_bytes(b"one\teins\n\xe9t\xe9\tsommer\n")
    (folder / "utf-16.txt").write_text("a cat\n", encoding="utf-16")
    for name in ("cut.txt.gz", "cut.po.gz"):
        (folder / name).write_bytes(gzip.compress(b"a cat\n" * 9)[:-9])
    (folder / "three").write_text("a\nb\nc\n")
    (folder / "two").write_text("a\nb\n")
    (folder / "unknown.toml").write_text("[training]\nwarm_up = 5\n")
    (folder / "broken.toml").write_text("[training\n")
    (folder / "preset.toml").write_text('preset = ["tiny"]\n')
    (folder / "folder.toml").mkdir()
    (folder / "folder.html").mkdir()
    (folder / "folder.svg").mkdir()


WRONG_FLAGS = """train --training.epochs three; train --no-such-flag; train --training.epochs; translate; translate -m;
translate -m x --beam 1.5; evaluate; inspect -m x; inspect; info --preset huge; info a b; demo --to fr; benchmark;
benchmark nothing"""


@pytest.mark.parametrize("line", re.split(r";\s+", WRONG_FLAGS))
def test_flag_that_is_wrong_ends_with_code_2(dragoman, line: str):
    ran = dragoman(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("dragoman: ")
    assert (ran.err.count("\n"), set("│╭╰") & set(ran.err)) == (1, set())


# Help.


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-h"]], ids=str)
def test_help_lists_the_commands(dragoman, arguments: list[str]):
    ran = dragoman(*arguments)
    assert ran.code == 0
    assert all(f"  {name} " in ran.out for name in COMMANDS)
    assert dragoman("--version").out.startswith("dragoman ")


HELP = """
import os, sys, time
import rich.console, tyro

print(time.process_time(), file=sys.stderr, flush=True)
from dragoman.cli import COMMANDS, main

for command in COMMANDS:  # each in a process that has imported nothing but these libraries and the command line
    if os.fork():
        assert os.wait()[1] == 0, command
        continue
    print(f"dragoman {command}: ", flush=True)
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert not end.code
    sys.stdout.flush()
    assert not {"torch", "numpy"} & set(sys.modules)
    print(time.process_time(), file=sys.stderr, flush=True)  # of this process alone
    os._exit(0)
"""


def test_help_answers_at_once_and_without_torch():
    """In three times the processor time of the libraries that read flags and print; torch takes ten times theirs.

    On a busy machine a command may take longer once, but not three times.
    """
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    slow = set(COMMANDS)
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", HELP], env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        libraries, *commands = map(float, ran.stderr.split())
        slow &= {name for name, seconds in zip(COMMANDS, commands, strict=True) if seconds > 3 * libraries}
        for command in COMMANDS:
            assert f"usage: dragoman {command}" in ran.stdout.split(f"dragoman {command}: ")[1]
        if not slow:
            break
    assert slow == set()


# Translating.

HOSTILE = [
    b"The dog sees 2 red cats.",
    b"",
    b"   ",
    b"\xff\xfe not utf-8",
    b"cut off \xe2\x82",
    b"a\rb",
    b"carriage return\r",
    b"\r",
    "line\u2028separator\u2029and\x85next\x0bline\x0cfeed\x1c\x1d\x1e".encode(),
    b"a\0b",
    b"\0",
    "\ufeffmark".encode(),
    "emoji 👩‍👩‍👧 \u202eabc".encode(),
    b"</s><pad><0x0A>",
    "\U0010ffff\U000e0001".encode(),
    b"x" * 3000,
]


CARELESS = ("--no-detect-faults", "--no-placeholders")


FORMATS = """
import sys
from dragoman.cli import main

formats = {"pyarrow", "markdown_it", "defusedxml", "polib", "dragoman.data.csv"}
for arguments in (sys.argv[2:], ["-i", "a.md"]):
    code = main(["translate", "-m", sys.argv[1], *arguments])
    print("ended with", code, "formats", formats & {*sys.modules}, file=sys.stderr)
    assert "sympy" not in sys.modules  # of PyTorch's compiler, for which nobody should wait
"""


@pytest.fixture(scope="module")
def lines_and_a_document(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str], list[str]]:
    """What a process prints that translates standard input, all HOSTILE lines, and then a document without text.

    The output, the errors of the lines, and those of the document, each with how it ended and which formats of
    documents were loaded then.
    """
    (folder := tmp_path_factory.mktemp("document")).joinpath("a.md").touch()
    command = [sys.executable, "-c", FORMATS, trained, "--beam", "1", "--extra-length", "5", *CARELESS]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        command, input=b"\n".join(HOSTILE), cwd=folder, env=environment, capture_output=True, check=False
    )
    told = ran.stderr.decode().splitlines()
    assert ran.returncode == 0, told
    (end, _) = [number for number, line in enumerate(told, start=1) if line.startswith("ended with")]
    return ran.stdout, told[:end], told[end:]


def test_translate_writes_a_line_for_every_line(
    lines_and_a_document: tuple[bytes, list[str], list[str]], trained: Path
):
    out, (*told, ended), _ = lines_and_a_document
    assert ended.startswith("ended with 0 ")
    lines = out.decode().removesuffix("\n").split("\n")
    assert len(lines) == len(HOSTILE)
    assert lines[1:3] == ["", "   "]
    first = Translator.load(trained, SearchConfig(beam=1), NO_SAFEGUARDS).translate([HOSTILE[0].decode()])
    assert lines[0] == first[0].text
    assert told[:2] == [f"line {number}: not UTF-8; undecodable bytes are replaced" for number in (4, 5)]
    assert told[2] == "2 lines not in UTF-8; a file in Latin-1 is converted by: iconv -f latin1 -t utf-8"
    assert len(told) == 4
    assert told[3].startswith("line 16: a sentence of more than 512 tokens is ")


def test_lines_load_no_formats_of_documents(lines_and_a_document: tuple[bytes, list[str], list[str]]):
    """The control is a document after them, in the same process."""
    _, (*_, lines), (*_, document) = lines_and_a_document
    assert lines == "ended with 0 formats set()"
    assert document.startswith("ended with 0 formats {")


def test_line_feed_at_the_end_starts_no_line(dragoman, brief: Path, tmp_path: Path):
    data = b"\n".join(HOSTILE)
    for written_data, lines in ((data, 16), (data + b"\n", 16), (data + b"\n\n", 17), (b"", 0)):
        (tmp_path / "in").write_bytes(written_data)
        ran = dragoman("translate", "-m", brief, "-i", "in", "--beam", "1")
        assert (ran.code, ran.out.count("\n")) == (0, lines)


def typed(model: Path, keys: list[bytes], output: str = "") -> str:
    """Return what a terminal shows where these keys are pressed, each at a new prompt; `output` is a redirection."""
    ours, theirs = os.openpty()
    command = f"exec {sys.executable} -m dragoman translate -m {model} --beam 1 --output-format jsonl {output}"
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    shown = b""
    with subprocess.Popen(
        ["sh", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        for number, key in enumerate(keys, start=1):
            while shown.count(b"> ") < number:
                shown += os.read(ours, 1000)
            os.write(ours, key)
        with contextlib.suppress(OSError):  # the end of the terminal
            while more := os.read(ours, 1000):
                shown += more
    os.close(ours)
    assert running.returncode == 0, shown
    return shown.decode()


@pytest.mark.slow
def test_lines_that_are_typed_can_be_edited_and_recalled(brief: Path, tmp_path: Path):
    """Arrow up brings back the last line, arrow left goes back in it: not where the output is a file."""
    shown = typed(brief, [b"The dog\n", b"\x1b[A\x1b[D\x1b[D\x1b[DX\n", b"\x04"])
    assert re.findall(r'"text": "([^"]*)"', shown) == ["The dog", "The Xdog"]
    out = tmp_path / "out"
    assert typed(brief, [b"The dog\n", b"\x04"], f"> {out}").count("> ") == 2
    assert json.loads(out.read_text(encoding="utf-8"))["text"] == "The dog"


@pytest.mark.slow
def test_reader_that_has_seen_enough_is_no_error(brief: Path):
    blank = written(brief.parent / "blank", f"{' ' * 1000}\n" * 500)  # comes back as it is: more than a pipe holds
    run = process("translate", "-m", brief, "--input", blank)
    assert run.stdout.readline()  # type: ignore[union-attr]
    run.stdout.close()  # type: ignore[union-attr]
    assert run.stderr.read() == b""  # type: ignore[union-attr]
    assert run.wait() == 0


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info", "--help"]], ids=" ".join)
def test_nobody_listening_is_no_error(arguments: list[str]):
    ear, mouth = os.pipe()
    os.close(ear)
    run = process(*arguments, stdout=mouth)
    os.close(mouth)
    assert run.stderr.read() == b""  # type: ignore[union-attr]
    assert run.wait() == 0


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_command_line_texts_give_one_line_each_and_need_no_input(
    dragoman, trained: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", None)
    ran = dragoman("translate", "-m", trained, "The dog sees 2 cats.", "", "The dog\nsees", "\n", "\nThe bear.\n")
    assert (ran.code, ran.out.count("\n"), ran.out.split("\n")[1]) == (0, 5, "")
    ran = dragoman("translate", "-m", trained)
    assert ran.code == 2
    assert "there is no standard input: give text or --input" in ran.err


def test_file_is_translated_into_a_file_but_not_into_itself(dragoman, trained: Path, tmp_path: Path):
    texts = ["The dog sees 2 cats.", "", "The bear."]
    written(tmp_path / "in", "".join(f"{text}\n" for text in texts))
    assert dragoman("translate", "-m", trained, "-i", "in", "-o", "out", "--no-placeholders") == Ran(0, "", "")
    safeguards = Safeguards(placeholders=False)
    expected = [found.text for found in Translator.load(trained, safeguards=safeguards).translate(texts)]
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n") == [*expected, ""]
    assert dragoman("translate", "-m", trained, "-i", "in", "-o", "in").code in (0, 2)
    assert (tmp_path / "in").read_bytes().count(b"\n") == 3


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (partial(signal.raise_signal, signal.SIGINT), 130), (partial(signal.raise_signal, signal.SIGTERM), 143),
        (no_room, 1), (None, 0),
    ],
    ids=["Ctrl-C", "SIGTERM", "full disk", "none"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_stopped_translation_leaves_the_old_file_and_a_part(
    dragoman, brief: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[[], None] | None, code: int
):
    """The control is the translation that nothing stops."""
    Path("in").write_text(" \n" * 2000)  # in two blocks
    Path(name).write_text("old")
    work, calls = Translator.translate, count(1)

    def translate(*arguments: Any) -> Any:
        if next(calls) == 2 and fault:
            fault()
        return work(*arguments)

    monkeypatch.setattr(Translator, "translate", translate)
    ran = dragoman("translate", "-m", brief, "-i", "in", "-o", name)
    part = Path(f"{name}.part")
    assert ran.code == code
    assert "Traceback" not in ran.err
    if not fault:
        assert [len(list(read_lines(name))), part.exists()] == [2000, False]
        return
    assert Path(name).read_text() == "old"
    assert f"{name}: not finished; the first 1,024 lines are in {part}\n" in ran.err
    shutil.copy(part, copy := f"copy{Path(name).suffix}")
    assert list(read_lines(copy)) == [" "] * 1024


def test_files_that_are_read_are_not_written(dragoman, brief: Path):
    """Under whatever name, and neither by way of the part."""
    Path("in").write_text(" \n")
    Path("terms").write_text("a\tb\n")
    Path("symbolic").symlink_to("in")
    os.link("in", "hard")
    os.link("in", "other.part")
    for flags in ("-i in -o in", "-i in -o symbolic", "-i hard -o in", "-i in -o other", "x --glossary terms -o terms"):
        ran = dragoman("translate", "-m", brief, *flags.split())
        assert ran.code == 2, flags
        assert "are the same file" in ran.err
    with Path("in").open() as source, Path("in").open("a") as more:
        for run in (process("translate", "-m", brief, "-o", "hard", stdin=source),
                    process("translate", "-m", brief, stdin=source, stdout=more)):  # fmt: skip
            assert b"are the same file" in run.communicate(timeout=60)[1]
            assert run.returncode == 2
    assert Path("in").read_text() == " \n"
    assert dragoman("translate", "-m", brief, "-i", "in", "-o", "another").code == 0  # the control
    assert Path("another").read_text() == " \n"


def test_fields_that_the_output_has_too_are_left_out_with_a_message(dragoman, brief: Path):
    """Once for each field. The control: what is not written is not missed."""
    rows = [{"text": "a", "n": 1}, {"text": "b", "score": 9, "words": 2}, {"text": "c", "words": 3, "flags": 1}]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "fields left out from here on, as the output uses their names: {}; rename them to keep them"
    ran = dragoman("translate", "-m", brief, "-i", "in.jsonl", "-o", "out.jsonl")
    assert f"line 2: {said.format('score, words')}\nline 3: {said.format('flags')}\n" in ran.err
    written = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row.get(name) for row, name in zip(written, ("n", "words", "words"), strict=True)] == [1, None, None]
    assert (written[1]["score"] == 9, written[2].get("flags") == 1) == (False, False)
    Path("in.jsonl").write_text('{"translation": "a"}\n')
    ran = dragoman("translate", "-m", brief, "-i", "in.jsonl", "-o", "out.jsonl", "--text-key", "translation")
    assert f"line 1: {said.format('translation')}\n" in ran.err
    Path("words.jsonl").write_text('{"words": "a"}\n')
    flags = ("translate", "-m", brief, "-i", "words.jsonl", "-o", "out.jsonl", "--text-key", "words")
    assert "left out" not in dragoman(*flags).err
    assert f"line 1: {said.format('words')}\n" in dragoman(*flags, "--word-scores").err
    assert "left out" not in dragoman("translate", "-m", brief, "-i", "in.jsonl", "-o", "out").err


@pytest.mark.parametrize(
    ("arguments", "way", "said"),
    [
        pytest.param("translate --quiet -m {brief} x", ">&-", b"standard output: ", marks=pytest.mark.slow),
        ("--version", ">&-", b"standard output: "),
        ("--version", ">/dev/full", b"standard output: No space"),
        ("--version", ">/dev/full unbuffered", b"standard output: No space"),
        ("--version", "2>&-", b""),
    ],
)
def test_closed_or_full_output_is_named_in_one_sentence(brief: Path, arguments: str, way: str, said: bytes):
    way, *unbuffered = way.split()
    command = f"{sys.executable} -m dragoman {arguments.format(brief=brief)} {way}"
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    environment["PYTHONUNBUFFERED"] = "1" if unbuffered else ""
    ran = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr.count(b"\n")) == ((1, 1) if said else (0, 0)), ran.stderr
    assert said in ran.stderr
    assert bool(ran.stdout) == (not said)


# The others.


def test_training_says_what_it_does_and_leaves_a_model(dragoman, corpus: Corpus, tmp_path: Path):
    flags = f"{SMALL} --training.max-steps 2 --training.threads 1".split()
    ran = dragoman("train", "--train", corpus[0], "--dev", corpus[1], "--out", "run", *flags)
    assert (ran.code, ran.out) == (0, "")
    assert "finished: all 2 steps done" in ran.err
    verify_files((tmp_path / "run" / "best").resolve())
    again = dragoman("train", "--train", corpus[0], "--dev", corpus[1], "--out", "run", *flags, "--quiet")
    assert again == Ran(0, "", "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dev", "nowhere.tsv"), "nowhere.tsv: no such file"),
        (("--dev", "bad.tsv"), "bad.tsv:2: no tab"),
        (("--vocabulary", "2"), "vocabulary"),
        (("--training.max-tokens", "1"), "every pair is longer than 1 token"),
    ],
)
def test_first_training_that_is_refused_leaves_nothing_behind(
    dragoman, corpus: Corpus, tmp_path: Path, flags: tuple[str, ...], message: str
):
    (tmp_path / "bad.tsv").write_text("a\tb\nc\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for out in ((), ("--out", "new/er"), ("--out", "mine")):
        ran = dragoman("train", "--train", corpus[0], "--dev", corpus[1], "--preset", "tiny", *flags, *out)
        assert ran.code in (1, 2)
        assert message in ran.err
        assert sorted(tmp_path.rglob("*")) == before


def test_training_says_what_else_a_folder_has_and_overwrites_no_settings(dragoman, corpus: Corpus, tmp_path: Path):
    """What other people have in the folder stays as it is; a run in a folder of its own is the control."""
    corpora = ["--train", corpus[0], "--dev", corpus[1], "--training.max-steps", "1", *SMALL.split()]
    for folder in ("mine", "settings", "new"):
        (tmp_path / folder).mkdir()
    written(tmp_path / "mine" / "notes.txt", "mine")
    said = "mine has other files, such as notes.txt; training writes beside them"
    assert said in dragoman("train", *corpora, "--out", "mine").err
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    for _ in range(2):  # the second time, there is a run
        assert "other files" not in dragoman("train", *corpora, "--out", "new").err
    settings = written(tmp_path / "settings" / "config.toml", 'preset = "tiny"  # mine')
    ran = dragoman("train", settings, *corpora, "--out", "settings")
    assert (ran.code, ran.err) == (
        1,
        "dragoman: settings/config.toml: training would overwrite it; choose another --out\n",
    )
    assert [*map(Path.read_text, (tmp_path / "settings").iterdir())] == ['preset = "tiny"  # mine']


def test_tags_that_no_training_pair_has_are_reported(dragoman, corpus: Corpus):
    """Of each side: a tag of sources is not one of targets. The control is the tag that they have."""
    train, dev = corpus
    dev_corpora = [dev, "tag=news", dev, "tag=law", dev, "target-tag=news"]
    short = ["--training.max-steps", "1", *SMALL.split()]
    ran = dragoman("train", "--train", train, "tag=news", "--dev", *dev_corpora, *short)
    said = [line.split("no training pair has ")[1] for line in ran.err.splitlines() if "no training pair has " in line]
    assert said == [
        f"the tag {tag!r} on its {side}, as those of {dev} have: the model learns nothing about it"
        for side, tag in (("source", "law"), ("target", "news"))
    ]


def test_folder_may_have_the_flag_that_it_has_elsewhere(dragoman, trained: Path):
    """In every place; the control is a flag that takes several words, which would take the folder as one of them."""
    for arguments in (["-m", trained], ["--model", trained], [f"--model={trained}"]):
        assert dragoman("info", "--json", *arguments) == dragoman("info", trained, "--json")
    shown = dragoman("insight", "--pairs", "missing.tsv", "-m", trained)
    assert (shown.code, shown.err) == (1, dragoman("insight", trained, "--pairs", "missing.tsv").err)
    assert "give a run folder" in dragoman("plot", "-m").err
    drawn = dragoman("plot", "-m", trained, "-m", "missing", "--out", "curves.svg")
    assert "missing: no such run folder" in drawn.err


def test_settings_of_training_need_no_section(dragoman, corpus: Corpus, tmp_path: Path):
    corpora = ["--train", corpus[0], "--dev", corpus[1], *SMALL.split(), "--quiet"]
    short = "--max-steps 1 --minutes=2.5 --threads 1 --seed 3 --no-deterministic"
    assert dragoman("train", *corpora, "--out", "a", *short.split()).code == 0
    full = short.replace("--", "--training.")
    assert dragoman("train", *corpora, "--out", "b", *full.split()).code == 0
    first, second = ((tmp_path / name / "config.toml").read_text() for name in "ab")
    assert first.replace('out = "a"', 'out = "b"') == second
    assert "minutes = 2.5" in first
    for wrong in (["--minute", "2"], ["--heads", "2"]):  # the control
        assert dragoman("train", *corpora, *wrong).code == 2


def test_settings_come_from_the_preset_then_the_file_then_the_flags(dragoman, corpus: Corpus, tmp_path: Path):
    corpora = f'preset = "tiny"\ntrain = "{corpus[0]}"\ndev = "{corpus[1]}"\nout = "run"\n'
    sections = "[model]\nd_model = 32\nattention.heads = 2\nencoder_layers = 1\ndecoder_layers = 1\n"
    sections += "[training]\nmax_steps = 1\nwarmup = 7\nthreads = 1\n"
    written(tmp_path / "run.toml", corpora + sections)
    assert dragoman("train", "run.toml", "--quiet", "--training.warmup", "9").code == 0
    settings = (tmp_path / "run" / "config.toml").read_text()
    assert "d_ff = 512" in settings  # the preset
    assert "d_model = 32" in settings  # the file
    assert "warmup = 9" in settings  # the flag
    flags = "--quiet --training.max-steps 1 --out elsewhere"
    assert dragoman("train", *flags.split(), "run.toml").code == 0  # the file may come last
    assert (tmp_path / "elsewhere" / "best").is_dir()


def test_evaluation_gives_scores_with_signatures_and_the_translations(dragoman, trained: Path, pairs: list[Pair]):
    write_tsv(Path("test.tsv"), [pairs[0], ("", "x"), *pairs[1:10]])
    ran = dragoman("evaluate", "-m", trained, "test.tsv")
    assert (ran.code, ran.err.splitlines()[0]) == (0, "test.tsv: skipped pairs with an empty side: 1 (line 2)")
    bleu, chrf, exact = ran.out.splitlines()
    assert re.fullmatch(r"BLEU [\d.]+   nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:.+", bleu)
    assert re.fullmatch(r"chrF2 [\d.]+   nrefs:1\|.+version:.+", chrf)
    assert re.fullmatch(r"exact match \d+\.\d % of \d+ sentences", exact)
    ran = dragoman("evaluate", "-m", trained, "test.tsv", "--json", "--output", "out.txt", "--tokenize", "char")
    scores = json.loads(ran.out)
    assert scores["sentences"] == Path("out.txt").read_bytes().count(b"\n") == 10
    assert "tok:char" in scores["bleu"]["signature"]
    assert 0 <= scores["exact"] <= 1
    # Of a file: the same, and others for another file, with which it is compared.
    of_file = dragoman("evaluate", "--translations", "out.txt", "test.tsv", "--json", "--tokenize", "char")
    assert of_file.out == ran.out
    Path("right.txt").write_text("".join(f"{target}\n" for _, target in pairs[:10]), encoding="utf-8")
    ran = dragoman("evaluate", "--translations", "right.txt", "test.tsv", "--against-file", "out.txt", "--json")
    both = json.loads(ran.out)
    assert (both["bleu"]["value"], both["exact"], both["against"]["name"]) == (100, 1, "out.txt")


def test_info_counts_the_parameters_of_a_model_and_of_base(dragoman, trained: Path):
    """Section 5.1: a vocabulary of about 37,000; Table 3 rounds to 65 million parameters."""
    ran = dragoman("info", "--preset", "base", "--vocabulary", "37000")
    assert (ran.code, ran.err) == (0, "")
    assert "63,045,632   parameters" in ran.out
    counted = json.loads(dragoman("info", "--preset", "base", "--vocabulary", "37000", "--json").out)
    assert counted["parameters"] == 63_045_632
    counted = json.loads(dragoman("info", trained, "--json").out)
    assert counted["parameters"] == sum(p.numel() for p in Translator.load(trained).model.parameters())
    assert "On " in dragoman("info", trained).out  # the model card


def test_info_tells_what_a_model_can(dragoman, trained: Path):
    def rows(*arguments: object) -> dict[str, str]:
        lines = dragoman("info", *arguments).out.splitlines()
        return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines if re.match(r"[a-z ]+ {2,}\S", line))

    extent, tokenizer = SourceExtent.load(trained / "best"), Translator.load(trained).tokenizers.source
    assert extent is not None
    found = rows(trained)
    assert (
        found.items()
        >= {
            "model": "Transformer, layers 1 + 1, d_model 16, heads 2, d_ff 32, positions sinusoidal",
            "vocabulary": f"{len(tokenizer):,} subwords",
            "scripts": "Latin to Hangul",
            "reads at once": f"up to 1 sentence, {extent.tokens} tokens (95 % of the training sources were no longer)",
            "engines": "native, ctranslate2",
        }.items()
    )
    log = (trained / "train.log").read_text(encoding="utf-8")
    assert "engines for this model: native, ctranslate2" in log
    told = json.loads(dragoman("info", trained, "--json").out)
    assert (told["config"]["d_model"], told["vocabulary"], told["extent"]["sentences"]) == (16, len(tokenizer), 1)
    assert (told["scripts"], told["engines"], told["tags"]) == (["HANGUL"], ["native", "ctranslate2"], [])
    small = rows("--preset", "small")
    assert small["engines"].startswith("native; ctranslate2 lacks positions = 'rotary-across': train")
    assert not {"languages", "scripts", "reads at once"} & {*small}  # no training has recorded anything
    assert (told["languages"], "languages" in found) == (None, False)
    summary = replace(
        Summary.read(trained / "best", TINY, Tokenizers.from_tokenizer(tokenizer)), languages=parse_pair("en-pt-BR")
    )
    assert re.search(r"^languages +en to pt-BR$", str(summary), re.MULTILINE)
    assert summary.as_dict()["languages"] == {"source": "en", "target": "pt-BR"}
    assert rows("--preset", "lstm")["model"] == "LSTM, layers 2 + 2, d_model 384, attention dot"


@pytest.mark.parametrize("text", ["costs $5 or $6, $x$", "$\\frac$ a\0b 100 % _ ^ \\ 日本 😀 &<>"])
def test_inspection_draws_any_text(dragoman, brief: Path, text: str):
    ran = dragoman("inspect", "-m", brief, text, "--translation", text, "--out", "picture.svg")
    assert ran.code == 0, ran.err
    assert Path("picture.svg").is_file()


@pytest.mark.parametrize("view", ["map", "masks"])
def test_figure_without_a_name_is_named_after_its_view(dragoman, brief: Path, tmp_path: Path, view: str):
    Path("attention.svg").touch()
    ran = dragoman("inspect", "-m", brief, "The dog", "--view", view)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"{view}.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"attention.svg", f"{view}.svg"}
    assert not Path("attention.svg").read_bytes()


def test_standard_input_in_utf_16_is_refused(dragoman, brief: Path, monkeypatch: pytest.MonkeyPatch):
    Path("in").write_text("a cat\n", encoding="utf-16")
    with Path("in").open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        ran = dragoman("translate", "-m", brief)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("dragoman: standard input: text in UTF-16: convert it to UTF-8")


def test_inspection_draws_an_empty_translation_and_refuses_blank_text(dragoman, brief: Path):
    ran = dragoman("inspect", "-m", brief, "The dog", "--out", "picture.svg")
    assert (ran.code, ran.out) == (0, "\npicture.svg\n")
    assert Path("picture.svg").is_file()
    refused = Ran(2, "", "dragoman: there is no text to translate\n")
    assert dragoman("inspect", "-m", brief, "  ", "--out", "picture.svg") == refused


def test_ctrl_c_stops_a_training_that_can_go_on(corpus: Corpus, tmp_path: Path):
    """As a user does it: in another process, with the real signal."""
    flags = f"{SMALL} --training.threads 1 --training.save-every 1 --training.batch-tokens 1000"
    arguments = ["train", "--train", corpus[0], "--dev", corpus[1], "--out", str(tmp_path / "run"), *flags.split()]
    command = Command(arguments, tmp_path / "log")
    wait_for((tmp_path / "run" / "last").exists)
    command.send(signal.SIGINT)
    assert command.code() == 130, command.said
    assert "Traceback" not in command.said
    assert "the same command resumes the run" in command.said
    verify_files((tmp_path / "run" / "last").resolve())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--glossary terms.tsv --temperature 1", "--glossary needs a plain beam search"),
        ("--glossary terms.tsv --beam-groups 2", "--glossary needs a plain beam search"),
        ("--word-scores --output-format jsonl --ensemble other", "--word-scores needs a single model"),
        ("--translate-key title -i page.json --as-lines", "--translate-key needs an --input in"),
        ("--translate-key title -i page.json --as-lines --output-format jsonl", "--translate-key needs an --input in"),
        (
            "--translate-key b -i a.csv",
            "has a; --translate-key chooses a column, by its name or its number",
        ),
        ("-i a.csv", "or use columns 'source' and 'target'; --translate-key chooses a column"),
        ("--forbid dog --forbid  x", "a forbidden word must not be blank"),
        ("--length-penalty 100", "--length-penalty must be at most 10.0, not 100.0"),
        ("--length-penalty nan", "--length-penalty must be at least -10.0, not nan"),
        ("--temperature 1e-40", "temperature must be at least 0.001, not 1e-40"),
    ],
)
def test_impossible_flags_are_refused_before_anything_is_written(dragoman, trained: Path, flags: str, said: str):
    Path("terms.tsv").write_text("dog\tHund\n")
    Path("page.json").write_text('{"title": "The dog"}')
    Path("a.csv").write_text("a\nThe dog\n")
    ran = dragoman("translate", "-m", trained, "-o", "out", *(flag.strip("\t") for flag in flags.split(" ")))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not Path("out").exists()


def test_flag_that_may_be_given_often_leaves_the_text_alone(dragoman, trained: Path):
    free = dragoman("translate", "-m", trained, "The dog")
    first, second = free.out.split()[:2]
    ran = dragoman("translate", "-m", trained, "--forbid", first, "--forbid-exact", second, "The dog")
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert first not in ran.out
    assert second not in ran.out


@pytest.mark.parametrize(
    ("name", "line"), [("a.jsonl", '{"text": "The dog"}'), ("a.TSV", "The dog\tDer Hund"), ("a.txt", "The dog")]
)
def test_name_of_the_input_says_what_a_line_is(dragoman, trained: Path, name: str, line: str):
    Path(name).write_text(f"{line}\n")
    command = ("translate", "-m", trained, "--beam", "1")
    assert dragoman(*command, "-i", name).out == dragoman(*command, "The dog").out
    assert dragoman(*command, "-i", name, "--input-format", "text").out == dragoman(*command, line).out


def test_name_of_the_output_says_how_lines_are_written_and_packed(dragoman, trained: Path):
    """The words are those of the plain command; the control is that without a name, or against it, they stay plain."""
    Path("in.txt").write_text("The dog sees 2 cats.\n\nThe bear.\n", encoding="utf-8")
    for name in ("in.txt.gz", "in.txt.zst"):
        Path(name).write_bytes(packed(Path("in.txt").read_bytes(), CODECS[name[6:]]))

    def lines(*flags: str) -> list[str]:
        ran = dragoman("translate", "-m", trained, "--quiet", "--beam", "1", *flags)
        assert ran.code == 0
        if flags[-1] == "-":
            return ran.out.splitlines()
        assert not ran.out
        return [line for line in read_lines(flags[-1]) if line is not None]

    plain = lines("-i", "in.txt", "-o", "-")
    translator = Translator.load(trained, SearchConfig(beam=1))
    assert plain == [found.text for found in translator.translate(["The dog sees 2 cats.", "", "The bear."])]
    for name in ("in.txt.gz", "in.txt.zst"):
        assert lines("-i", name, "-o", "-") == plain
    for name in ("out", "out.txt.gz", "out.zst"):
        assert lines("-i", "in.txt", "-o", name) == plain
    for name in ("out.tsv", "out.TSV", "out.tsv.gz"):
        assert [line.split("\t")[1] for line in lines("-i", "in.txt.gz", "-o", name)] == plain
    for name in ("out.jsonl", "out.jsonl.zst"):
        assert [json.loads(line)["translation"] for line in lines("-i", "in.txt", "-o", name)] == plain
    assert lines("-i", "in.txt", "--output-format", "text", "-o", "forced.jsonl") == plain
    assert Path("out.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert Path("out.tsv.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_packed_document_is_one_too(dragoman, trained: Path):
    text = '{"title": "The dog", "id": 7}'
    Path("a.json").write_text(text)
    Path("a.json.gz").write_bytes(gzip.compress(text.encode()))
    assert dragoman("translate", "-m", trained, "-i", "a.json.gz", "-o", "b.json.zst").code == 0
    (line,) = read_lines("b.json.zst")
    assert line == dragoman("translate", "-m", trained, "-i", "a.json").out
    assert line != text


def test_text_that_is_the_name_of_a_file_gets_a_hint(dragoman, brief: Path):
    Path("notes.txt").touch()
    ran = dragoman("translate", "-m", brief, "notes.txt")
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert "notes.txt is also a file here; to translate what is in it: --input notes.txt" in ran.err
    for text in ("other.txt", "x" * 9_999, "a\0b"):
        assert "--input" not in dragoman("translate", "-m", brief, "--beam", "1", text).err


def test_document_is_not_begun_where_it_cannot_be_written(dragoman, trained: Path, monkeypatch: pytest.MonkeyPatch):
    Path("page.json").write_text('{"title": "The dog"}')
    monkeypatch.setattr("dragoman.translation.translator.Translator.translate", None)  # any call would be a traceback
    ran = dragoman("translate", "-m", trained, "-i", "page.json", "-o", "missing/page.json")
    assert ran.code == 2
    assert "missing/page.json" in ran.err


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '{"title": "The dog",\n"body"}', ":2"), ("a.csv", 'text\n"The dog', ":2"),
        ("a.xlf", "<xliff>The dog", ":1"), ("a.po", "The dog\n", ":1"),
    ],
)  # fmt: skip
def test_document_that_cannot_be_read_is_an_error(dragoman, brief: Path, name: str, text: str, line: str):
    """The control is a document without texts, which is written as it is."""
    Path(name).write_text(text)
    Path(out := f"out{Path(name).suffix}").write_text("old")
    ran = dragoman("translate", "-m", brief, "-i", name, "-o", out)
    assert (ran.code, ran.err.count("\n"), Path(out).read_text()) == (1, 1, "old")
    assert f"dragoman: {name}{line}: not " in ran.err
    empty = {"a.json": "[]", "a.csv": "", "a.xlf": "<xliff/>", "a.po": 'msgid ""\nmsgstr "Language: ko\\n"\n'}[name]
    Path(name).write_text(empty)
    assert dragoman("translate", "-m", brief, "-i", name, "-o", out).code == 0
    assert Path(out).read_text() == empty


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n", [3, 7]),
        ("a.md", "# {}\n\n{}\n", [1, 3]), ("a.html", "<p>{}</p>\n\n\n<p>{}</p>", [1, 4]),
        ("a.json", '[{{"b": "{}",\n"c":\n"{}"}}]', [1, 3]), ("a.csv", "id,text\n1,{}\n2,{}\n", [2, 3]),
        ("a.po", 'msgid "{}"\nmsgstr ""\n\nmsgctxt "x"\nmsgid "{}"\nmsgstr ""\n', [2, 6]),
    ],
)  # fmt: skip
def test_flagged_texts_of_a_document_are_logged_with_their_line(
    dragoman, brief: Path, name: str, text: str, lines: list[int]
):
    """The same text in two lines: the model says too little of it."""
    source = "The dog sees the cat and the bear and the cat sees the bear"
    Path(name).write_text(text.format(source, source))
    ran = dragoman("translate", "-m", brief, "-i", name, "-o", f"out{Path(name).suffix}")
    flagged = [line for line in ran.err.splitlines() if source in line]
    assert flagged == [f"{name}:{line}: '{source}': translation flagged: too short" for line in lines]


def test_messages_of_a_catalogue_are_counted(dragoman, trained: Path):
    entries = ("", "a"), ("The dog", ""), ("The cat", ""), ("The bear", "der Bär"), ("42", "")
    text = "\n".join(f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in entries)
    Path("a.po").write_text(f'{text}\n#, fuzzy\nmsgid "A cat"\nmsgstr "Kater"\n')
    ran = dragoman("translate", "-m", trained, "-i", "a.po", "-o", "b.po")
    assert "a.po: 2 messages translated, 1 translated before, 1 fuzzy\n" in ran.err
    ran = dragoman("translate", "-m", trained, "-i", "b.po", "-o", "c.po")
    assert "b.po: 0 messages translated, 3 translated before, 1 fuzzy\n" in ran.err
    assert Path("b.po").read_bytes() == Path("c.po").read_bytes()


def test_units_of_xliff_are_counted(dragoman, trained: Path):
    units = "<source>The dog</source>", "<source>The cat</source><target>Katze</target>"
    body = "".join(f"<trans-unit>{unit}</trans-unit>" for unit in units)
    Path("a.xlf").write_text(f'<xliff version="1.2"><file><body>{body}</body></file></xliff>')
    ran = dragoman("translate", "-m", trained, "-i", "a.xlf", "-o", "b.xlf")
    assert "a.xlf: 1 unit translated, 1 translated before\n" in ran.err


@pytest.mark.parametrize("pair", [LanguagePair("en", "de"), None])
def test_page_gets_the_language_that_the_model_records(
    dragoman, trained: Path, monkeypatch: pytest.MonkeyPatch, pair: LanguagePair | None
):
    monkeypatch.setattr("dragoman.commands.translate.document.read_languages", lambda folder: pair)
    Path("a.html").write_text('<html lang="en-GB"><p>The dog</p></html>')
    dragoman("translate", "-m", trained, "-i", "a.html", "-o", "b.html")
    assert Path("b.html").read_text().startswith('<html lang="de"><p>' if pair else '<html lang="en-GB"><p>')


def test_windows_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["--version"]) == 1
    assert capsys.readouterr().err.endswith("use the Windows Subsystem for Linux (WSL)\n")


# What only a command line, an environment or a small machine can have.


def test_names_that_config_toml_cannot_record_are_refused_before_anything_is_written(
    dragoman, corpus: tuple[str, str], tmp_path: Path
):
    name = os.fsdecode(b"caf\xe9.tsv")
    shutil.copy(corpus[0], tmp_path / name)
    for given in (["--train", name], ["--train", corpus[0], "--out", name]):
        ran = dragoman("train", *given, "--dev", corpus[1], *QUICK.split())
        assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
        assert "is not a name in UTF-8" in ran.err
    with pytest.raises(UsageError, match="not a name in UTF-8"):
        RunConfig(out="a\0b")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("size", ["2", "two", "-1", ""])
def test_environment_that_torchrun_did_not_make_is_refused_in_a_sentence(
    dragoman, corpus: tuple[str, str], monkeypatch: pytest.MonkeyPatch, size: str
):
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.delenv("RANK", raising=False)
    ran = dragoman("train", "--train", corpus[0], "--dev", corpus[1], *QUICK.split())
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert "WORLD_SIZE" in ran.err
    assert ("RANK" in ran.err) == (size == "2")


def test_model_too_large_for_any_machine_is_refused_with_its_size(dragoman, corpus: tuple[str, str]):
    ran = dragoman("train", "--train", corpus[0], "--dev", corpus[1], *QUICK.split(), "--model.d-model", "65536")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
    assert "weights is too large: training needs" in ran.err
