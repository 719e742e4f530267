"""Recipes: settings that exist, those of the paper where they say so, and a command that can be typed as it stands."""

import re
import runpy
from dataclasses import fields, replace
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.commands.train import defaults
from dragoman.config import RunConfig, SearchConfig, TrainingConfig, TransformerConfig
from dragoman.config.presets import PRESETS
from dragoman.config.recipes import FOLDER
from dragoman.demo.tasks import TASKS
from dragoman.errors import UsageError

ROOT = Path(__file__).parents[2]
RECIPES = sorted(FOLDER.glob("*.toml"))
PAPER = [recipe for recipe in RECIPES if recipe.stem.startswith("wmt14")]

# Vocabulary (section 5.1), steps (5.2), checkpoints averaged and seconds a step (5.2, 6.1), dropout (Table 3, 6.1),
# BLEU (Table 2).
OF_THE_PAPER = {
    "wmt14-en-de-base": (37_000, 100_000, 5, 0.4, 0.1, "27.3"),
    "wmt14-en-de-big": (37_000, 300_000, 20, 1.0, 0.3, "28.4"),
    "wmt14-en-fr-base": (32_000, 100_000, 5, 0.4, 0.1, "38.1"),
    "wmt14-en-fr-big": (32_000, 300_000, 20, 1.0, 0.1, "41.8"),
}


def loaded(recipe: Path) -> RunConfig:
    """As `dragoman train RECIPE` reads it."""
    return defaults([recipe.stem if recipe.parent == FOLDER else str(recipe)]).run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["recipes/tiny.toml"], "recipes/tiny.toml: no such file; the recipe is called tiny"),
        (["--train", "pairs.tsv", "tiny.toml"], "tiny.toml: no such file; the recipe is called tiny"),
        (["mine.toml"], "mine.toml: no such file"),
        (["tin"], "tin is neither a settings file (.toml) nor a recipe (fine-tune, low-resource-30k, "),
        (["--train", "tiny"], "--dev is missing"),  # a file of pairs may be called as a recipe is
        (["--quiet", "tiny", "--train", "a.tsv"], "--dev is missing"),
        (
            ["fine-tune", "--train", "a.tsv", "--dev", "a.tsv"],
            "the recipe fine-tune needs the model to start from",
        ),
        (["run"], "run is a run: dragoman train run/config.toml resumes it"),
        (
            ["--out", "run"],
            "--train is missing: a file with sentence pairs to learn from, source TAB target in each line; to",
        ),
    ],
)
def test_settings_file_refuses_what_is_no_recipe(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/config.toml").touch()
    assert main(["train", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_file_that_is_called_as_a_recipe_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text("[training]\nseed = 77\n")
    assert (defaults(["tiny.toml"]).run.training.seed, defaults(["tiny"]).run.training.seed) == (77, 1)


def test_recipes_are_these():
    ours = {"fine-tune", "low-resource-30k", "low-resource-short-texts", "technical-300k", "technical-300k-cpu", "tiny"}
    assert {recipe.stem for recipe in RECIPES} == {*OF_THE_PAPER, "wsj-parsing", *ours}


def test_parser_has_the_settings_of_section_6_3():
    model, base = loaded(FOLDER / "wsj-parsing.toml").model, PRESETS["base"].model
    assert isinstance(model, TransformerConfig)
    assert (model.encoder_layers, model.decoder_layers, model.d_model) == (4, 4, 1024)
    assert replace(model, encoder_layers=6, decoder_layers=6, d_model=512) == base  # all else is as for translation
    assert loaded(FOLDER / "wsj-parsing.toml").vocabulary == 16_000
    search = TASKS["parse"].search
    assert search == SearchConfig(beam=21, length_penalty=0.3, extra_length=300)
    flags = f"--beam {search.beam} --length-penalty {search.length_penalty} --extra-length {search.extra_length}"
    assert flags in (FOLDER / "wsj-parsing.toml").read_text("utf-8")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_is_a_complete_config(recipe: Path, tmp_path: Path):
    """Nothing is asked for but the text; and it says what to expect. A setting that does not exist is seen."""
    run = loaded(recipe)
    assert not run.train
    assert not run.dev
    text = recipe.read_text()
    assert "# Expected: " in text
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace("batch_tokens", "batch_token"))
    with pytest.raises(UsageError, match="did you mean 'batch_tokens'"):
        loaded(wrong)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_commands_of_a_recipe_exist(recipe: Path, capsys: pytest.CaptureFixture[str]):
    text = recipe.read_text().replace("\\\n#", "")
    commands = re.findall(r"^#   (?:torchrun --nproc_per_node 8 -m )?dragoman (\w+)(.*)$", text, re.MULTILINE)
    assert commands[0][0] == "train"
    assert commands[0][1].split()[0] == recipe.stem
    assert "--train" in commands[0][1]
    for name, rest in commands:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert set(re.findall(r"(?<!\S)--?[a-z-]+", rest)) <= set(re.findall(r"--?[a-z-]+", capsys.readouterr().out))


@pytest.mark.parametrize("recipe", PAPER, ids=lambda recipe: recipe.stem)
def test_recipe_of_the_paper_has_its_values(recipe: Path):
    vocabulary, steps, averaged, seconds, dropout, bleu = OF_THE_PAPER[recipe.stem]
    run, text = loaded(recipe), recipe.read_text()
    training = run.training
    assert (run.vocabulary, training.max_steps, run.model.dropout) == (vocabulary, steps, dropout)
    assert run.model == replace(PRESETS[run.preset].model, dropout=dropout)
    assert (training.keep, training.save_every) == (averaged, 600 / seconds)  # section 6.1: every 10 minutes
    assert (training.batch_tokens, training.warmup, training.label_smoothing) == (25_000, 4000, 0.1)
    assert (training.schedule, training.learning_rate, training.beta2) == ("paper", 1.0, 0.98)
    assert (training.weight_decay, training.clip, training.ema, training.bpe_dropout) == (0, 0, 0, 0)
    assert training.patience == 0
    assert training.minutes is None
    assert f"--last {averaged}" in text
    assert f"reports BLEU {bleu} " in text
    assert "We have not run it." in text
    assert f"{steps:,} steps" in text


def test_table_of_settings_is_the_one_that_is_generated():
    """And it has a row for every setting, those of a model and of its search excepted."""
    script = runpy.run_path(str(ROOT / "scripts" / "settings_table.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert script["with_table"](page) == page, "run: python scripts/settings_table.py"
    named = set(re.findall(r"^\| `(.+?)`", script["table"](), re.MULTILINE))
    run = {spec.name for spec in fields(RunConfig)} - {"model", "training"}
    assert named == run | {f"training.{spec.name}" for spec in fields(TrainingConfig)}


def test_search_is_that_of_the_paper_unless_told_otherwise():
    """The recipes say so."""
    assert SearchConfig() == SearchConfig(beam=4, length_penalty=0.6, extra_length=50)


@pytest.mark.parametrize("name", ["tiny", "low-resource-30k"])
def test_recipe_trains(name: str, corpus: tuple[str, str], tmp_path: Path):
    recipe = next(recipe for recipe in RECIPES if recipe.stem == name)
    few = "--vocabulary 400 --training.max-steps 2 --training.threads 1 --quiet"
    text = ["--train", corpus[0], "--dev", corpus[1], "--out", str(tmp_path / "run")]
    assert main(["train", recipe.stem, *text, *few.split()]) == 0
    assert (tmp_path / "run" / "best" / "model.safetensors").exists()
