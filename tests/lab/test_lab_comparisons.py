"""Comparisons on real sentence pairs: what differs, what is trained, and what is said of it."""

import csv
import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dragoman.cli import main
from dragoman.config import SearchConfig, TransformerConfig
from dragoman.evaluation.metrics import LengthGroup
from dragoman.inspection.figure import pyplot
from dragoman.model import build
from dragoman.training.checkpoint import lock_folder
from dragoman.translation.translator import Translator
from dragoman_lab import COMPARISONS, comparing, comparisons
from dragoman_lab.comparing import Trained, Variant
from dragoman_lab.comparisons import BASE, CELLS
from dragoman_lab.experiment import Effort, Sentences
from dragoman_lab.report import load

VARIANTS = [(name, label) for name in COMPARISONS for label in comparisons.COMPARISONS[name].variants]
WORDS = ["one", "two", "three", "four", "five"], ["eins", "zwei", "drei", "vier", "fünf"]


def variant(name: str, label: str) -> Variant:
    return comparisons.COMPARISONS[name].variants[label]


def differences(one: Any, other: Any) -> set[str]:
    return {spec.name for spec in fields(one) if getattr(one, spec.name) != getattr(other, spec.name, None)}


# What is compared.


def test_list_and_the_comparisons_are_the_same():
    assert list(COMPARISONS) == list(comparisons.COMPARISONS)


def test_folder_holds_one_kind_of_run():
    """Comparisons share runs by the name of their folder."""
    found: dict[str, Variant] = {}
    for name, label in VARIANTS:
        assert found.setdefault(variant(name, label).name, variant(name, label)) == variant(name, label)
    assert len(found) < len(VARIANTS)  # some are shared
    assert len({replace(one, name="") for one in found.values()}) == len(found)  # and none is trained twice


@pytest.mark.parametrize(("name", "label"), VARIANTS)
def test_variants_differ_in_what_is_compared_alone(name: str, label: str):
    one = variant(name, label)
    if not isinstance(one.model, TransformerConfig):
        assert differences(one.model, CELLS[label.split()[0]]) <= {"attention"}
        assert one.training == BASE.training
        return
    assert isinstance(BASE.model, TransformerConfig)
    allowed = {
        "compare-positions": {"positions"},
        "compare-norms": {"norm_first", "schedule", "learning_rate", "warmup"},
        "compare-heads": {"heads"},
        "compare-scores": {"heads", "score"},
        "compare-smoothing": {"label_smoothing"},
        "compare-tying": {"share"},
        "compare-dropout": {"dropout"},
        "compare-activations": {"activation"},
        "compare-embedding-scale": {"scale_embedding"},
        "compare-shared-projections": {"change"},
        "compare-layer-pool": {"change"},
        "compare-embedding-norm": {"change"},
        "compare-recurrence": set(),
    }[name]
    changed = differences(one.model, BASE.model) | differences(one.training, BASE.training)
    for part in {"attention", "feed_forward"} & changed:
        changed = changed - {part} | differences(getattr(one.model, part), getattr(BASE.model, part))
    assert changed <= allowed


def size(one: Variant) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(one.model, 2000).parameters())


@pytest.mark.parametrize("label", CELLS)
def test_recurrent_models_are_about_as_large_as_the_transformer(label: str):
    assert size(variant("compare-recurrence", f"{label} with attention")) == pytest.approx(size(BASE), rel=0.05)


# What is said.


@pytest.mark.parametrize("name", ["compare-recurrence", "compare-heads"])  # the most variants; numbers as labels
def test_figures_of_comparisons_name_their_variants(name: str):
    labels = comparisons.COMPARISONS[name].variants
    groups = LengthGroup(1, 2, 10, 10.0, 10.0), LengthGroup(3, 9, 10, 5.0, 10.0)
    runs = {label: [Trained(100, 1.0, 1.0, bleu, 20.0, groups, ((50, 2.0),))] for bleu, label in enumerate(labels)}
    for one in comparing.figures(runs).values():
        figure = pyplot().figure(dpi=40, layout="constrained")
        one.draw(figure)
        figure.canvas.draw()
        texts = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
        legend = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert set(labels) <= {*texts, *legend}
        pyplot().close(figure)


# A comparison from the command line.


def write_pairs(path: Path, count: int, first: int) -> str:
    """Sentences of two to four numbers."""
    rows = []
    for number in range(first, first + count):
        digits = [int(digit) % 5 for digit in str(number * 37 + 11)[-4:]]
        rows.append("\t".join(" ".join(words[digit] for digit in digits) for words in WORDS))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


SHORT = SearchConfig(extra_length=5)  # models of two steps never end a sentence


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparing, "STEPS", 8)
    monkeypatch.setattr(comparing, "Translator", SimpleNamespace(load=partial(Translator.load, search=SHORT)))
    comparing.train_variant.cache_clear()
    files = write_pairs(tmp_path / "train.tsv", 60, 0), write_pairs(tmp_path / "dev.tsv", 4, 500)
    return ["--train", files[0], "--dev", files[1], "--test", write_pairs(tmp_path / "test.tsv", 5, 800)]


def table(path: str) -> list[dict[str, str]]:
    (file,) = Path("lab/tables").glob(path)
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def weights() -> dict[str, int]:
    """When each file of weights was written."""
    return {str(file): file.stat().st_mtime_ns for file in Path("lab/runs").rglob("*.safetensors")}


@pytest.mark.slow
def test_comparison_trains_scores_and_keeps_its_runs(flags: list[str], capsys: pytest.CaptureFixture[str]):
    command = ["lab", "compare-smoothing", *flags, "--quick", "--seeds", "1", "2", "1"]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("compare-smoothing: ")
    runs = {folder.name for folder in Path("lab/runs/2-steps").iterdir()}
    assert runs == {"transformer-1", "transformer-2", "smoothing-0-1", "smoothing-0-2"}
    rows = table("compare-smoothing-1-*.csv")
    assert [(row["variant"], row["seed"]) for row in rows] == [("0.1", "1"), ("0.1", "2"), ("0", "1"), ("0", "2")]
    assert float(rows[0]["dev loss"]) != float(rows[1]["dev loss"])  # another seed is another run
    page = Path("lab/report.html").read_text(encoding="utf-8")
    assert " ".join(["dragoman lab compare-smoothing", *flags, "--out lab --quick --seeds 1 2"]) in page

    capsys.readouterr()
    assert (
        main(["evaluate", "-m", "lab/runs/2-steps/smoothing-0-2/best", flags[-1], "--json", "--extra-length", "5"]) == 0
    )
    scores = json.loads(capsys.readouterr().out)
    assert scores["bleu"]["value"] == pytest.approx(float(rows[3]["BLEU"]), abs=0.005)
    assert scores["chrf"]["value"] == pytest.approx(float(rows[3]["chrF2"]), abs=0.005)

    before = weights()
    comparing.train_variant.cache_clear()
    assert main(["lab", "compare-tying", *flags, "--quick", "--seeds", "1"]) == 0
    after = weights()
    assert {file: after[file] for file in before} == before  # the run that both need is not trained again
    assert len(after) > len(before)
    comparing.train_variant.cache_clear()
    assert main(command) == 0
    assert table("compare-smoothing-1-*.csv") == rows


@pytest.mark.slow
def test_comparison_of_recurrent_models_runs(flags: list[str]):
    sentences = Sentences((flags[1],), (flags[3],), (flags[5],), Path("runs"))
    findings = load("compare-recurrence", sentences).run(Effort((1,), 0.25))
    assert len(next(iter(findings.tables.values())).rows) == 1 + 2 * len(CELLS)
    assert len(findings.verdicts) == 3


def test_tags_of_the_test_set_go_into_its_translations(flags: list[str], monkeypatch: pytest.MonkeyPatch):
    tagged = [word for file in flags[1::2] for word in (file, "tag=news")]
    seen: list[Any] = []
    translate = Translator.translate

    def watched(self: Any, texts: Any, tags: Any = (), **rest: Any) -> Any:
        seen.append(tags)
        return translate(self, texts, tags, **rest)

    monkeypatch.setattr(Translator, "translate", watched)
    sentences = Sentences(tuple(tagged[:2]), tuple(tagged[2:4]), tuple(tagged[4:]), Path("runs"))
    comparing.train_variant(BASE, 1, 2, sentences)
    assert seen[-1] == ["news"] * 5


def test_run_whose_metrics_are_lost_still_counts(flags: list[str]):
    sentences = Sentences((flags[1],), (flags[3],), (flags[5],), Path("runs"))
    whole = comparing.train_variant(BASE, 1, 2, sentences)
    comparing.train_variant.cache_clear()
    metrics = Path("runs/2-steps/transformer-1/metrics.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"validation"' not in line)[:-5])  # and the last one is torn
    again = comparing.train_variant(BASE, 1, 2, sentences)
    assert (again.dev_loss, again.bleu, again.parameters) == (whole.dev_loss, whole.bleu, whole.parameters)


def test_comparison_refuses_a_folder_that_another_process_uses(flags: list[str], capsys: pytest.CaptureFixture[str]):
    with lock_folder(Path("lab")):
        assert main(["lab", "compare-tying", *flags]) == 1
    assert "another process is using this folder" in capsys.readouterr().err
    assert not Path("lab/report.html").exists()


@pytest.mark.parametrize("which", [1, 3, 5])
def test_files_that_are_missing_are_told_before_anything_is_trained(
    flags: list[str], capsys: pytest.CaptureFixture, which: int
):
    Path(flags[which]).unlink()
    assert main(["lab", "comparisons", *flags]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("lab").exists()
