"""The whole system through its commands: train, translate, score, evaluate, distill, on two tasks with known answers.

Copying strings of digits takes seconds to learn and leaves no excuse; the phrasebook is language.
"""

import io
import json
import random
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conftest import write_tsv

from dragoman.cli import main
from dragoman.data.corpus import Pair
from dragoman.demo.phrasebook import phrasebook

COMMON = "--preset tiny --training.threads 1 --training.device cpu --training.precision float32 --quiet"
SMALL = "--model.d-model 64 --model.feed-forward.d-ff 128 --model.dropout 0"
SHORT = "--training.label-smoothing 0 --training.warmup 100 --training.batch-tokens 512"


@dataclass(frozen=True)
class Task:
    """A corpus, how to train on it, and what the teacher and the student have to reach on unseen sentences."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    teacher: str
    student: str
    bleu: float
    perplexity: float


def digits(count: int, chance: random.Random) -> list[Pair]:
    texts = [" ".join(chance.choices("0123456789", k=chance.randint(1, 8))) for _ in range(count)]
    return [(text, text) for text in texts]


def copying() -> Task:
    chance = random.Random(1)
    train = digits(1500, chance)
    known = set(train)
    dev, test = ([pair for pair in digits(150, chance) if pair not in known][:count] for count in (30, 60))
    settings = f"{SMALL} {SHORT} --training.validate-every 1000"
    # A decoder of one layer learns to copy soonest where attention over the source knows positions.
    small = "--model.encoder-layers 1 --model.feed-forward.d-ff 64 --model.positions rotary-across"
    student = f"{settings} --training.max-steps 160 {small}"
    teacher = f"{settings} --training.max-steps 80 --model.decoder-layers 1"
    return Task(train, dev, test, teacher, student, bleu=98.0, perplexity=1.05)


def phrases() -> Task:
    book = phrasebook("en", "de", per_template=32, seed=1)
    train = "--vocabulary 2500 --training.max-steps 1200 --training.validate-every 600"
    student = "--training.max-steps 600 --training.validate-every 600 --model.encoder-layers 2"
    return Task(book.train, book.dev[:60], book.test[:120], train, student, bleu=90.0, perplexity=1.2)


@dataclass(frozen=True)
class System:
    """A task, its files, and the folders of a trained teacher and of a model that has made a single step."""

    task: Task
    folder: Path
    teacher: str
    untrained: str
    test: str

    def corpora(self) -> list[str]:
        return ["--train", str(self.folder / "train.tsv"), "--dev", str(self.folder / "dev.tsv")]


def run(*arguments: object) -> tuple[str, str]:
    """Standard output and standard error of a command that succeeds."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    assert code == 0, err.getvalue()
    return out.getvalue(), err.getvalue()


@pytest.fixture(
    scope="module", params=[copying, pytest.param(phrases, marks=pytest.mark.slow)], ids=lambda task: task.__name__
)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> System:
    torch.set_num_threads(1)
    task, folder = request.param(), tmp_path_factory.mktemp("system")
    for name in ("train", "dev", "test"):
        write_tsv(folder / f"{name}.tsv", getattr(task, name))
    found = System(task, folder, str(folder / "teacher"), str(folder / "untrained"), str(folder / "test.tsv"))
    settings = f"{COMMON} {task.teacher}".split()
    run("train", *found.corpora(), "--out", found.teacher, *settings)
    run("train", *found.corpora(), "--out", found.untrained, *settings, "--training.max-steps", 1)
    return found


def translations(model: str, texts: Sequence[str], folder: Path) -> list[tuple[str, float]]:
    """What `translate` writes for each text: words and the log-probability of the whole."""
    (folder / "source.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    flags = "--output-format jsonl --length-penalty 0 --no-detect-faults --no-placeholders --quiet".split()
    run("translate", "-m", model, "-i", folder / "source.txt", "-o", folder / "out.jsonl", *flags)
    lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    return [(record["translation"], record["score"]) for record in map(json.loads, lines)]


def bleu(model: str, test: str) -> float:
    return json.loads(run("evaluate", "-m", model, test, "--json")[0])["bleu"]["value"]


def perplexity(model: str, pairs: str) -> float:
    return float(run("score", "-m", model, pairs)[1].split()[1])


def test_trained_model_reaches_its_bar_and_an_untrained_one_does_not(system: System):
    assert bleu(system.teacher, system.test) >= system.task.bleu > bleu(system.untrained, system.test)
    bar = system.task.perplexity
    assert perplexity(system.teacher, system.test) <= bar < perplexity(system.untrained, system.test)


def test_lines_in_a_batch_and_alone_have_the_same_words_and_scores(system: System, tmp_path: Path):
    texts = [source for source, _ in system.task.test[:5]]
    together = translations(system.teacher, texts, tmp_path)
    alone = [translations(system.teacher, [text], tmp_path)[0] for text in texts]
    assert [text for text, _ in together] == [text for text, _ in alone]
    assert [score for _, score in together] == pytest.approx([score for _, score in alone], abs=1e-4)
    # The control: another model gives the same lines other scores.
    other = translations(system.untrained, texts, tmp_path)
    assert [score for _, score in together] != pytest.approx([score for _, score in other], abs=1e-1)


def test_score_agrees_with_the_scores_of_translate(system: System, tmp_path: Path):
    texts = [source for source, _ in system.task.test]
    found = translations(system.teacher, texts, tmp_path)
    pairs = write_tsv(tmp_path / "pairs.tsv", [(text, other) for text, (other, _) in zip(texts, found, strict=True)])
    scores = [[float(line.split()[0]) for line in run("score", "-m", model, pairs)[0].splitlines()]
              for model in (system.teacher, system.untrained)]  # fmt: skip
    assert scores[0] == pytest.approx([score for _, score in found], abs=1e-3)
    assert scores[1] != pytest.approx([score for _, score in found], abs=1e-1)  # the control


@pytest.mark.slow
def test_student_reaches_the_bar_of_its_teacher(system: System):
    student = system.folder / "student"
    given = ["--teacher", system.teacher, *system.corpora(), "--test", system.test, "--out", student]
    run("distill", *given, *COMMON.split(), *system.task.student.split(), "--beam", 1)
    rows = json.loads((student / "students.json").read_text(encoding="utf-8"))["rows"]
    found = {row["model"]: row["scores"]["bleu"]["value"] for row in rows if row["engine"] == "native"}
    assert min(found.values()) >= system.task.bleu > bleu(str(student / "start"), system.test)  # the control: untrained
