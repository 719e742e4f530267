"""All flags of all commands. Whoever adds one adds it here, and thinks about whether it is needed."""

import re
import shutil
from pathlib import Path

import pytest

import dragoman
from dragoman.cli import COMMANDS, ELSEWHERE, command_module
from dragoman.commands.habits import HABITS

TRAIN = """
--preset --train --dev --languages --out --init-from --vocabulary --quiet
--training.batch-tokens --training.micro-batches --training.max-tokens --training.concatenate
--training.bpe-dropout --training.robust
--training.epochs --training.max-steps --training.minutes
--training.schedule --training.learning-rate --training.warmup --training.beta2 --training.weight-decay --training.ema
--training.label-smoothing --training.clip
--training.validate-every --training.save-every --training.save-minutes --training.keep
--training.stop-on --training.patience
--training.samples --training.tensorboard --training.no-tensorboard
--training.precision --training.checkpoint-activations --training.no-checkpoint-activations
--training.shard --training.no-shard --training.deterministic --training.no-deterministic
--training.device --training.rank-timeout --training.seed --training.threads --training.workers
"""
TRAINING = " ".join(flag for flag in TRAIN.split() if flag.startswith("--training."))
TRANSFORMER = """
--model.d-model --model.encoder-layers --model.decoder-layers --model.dropout --model.positions --model.max-length
--model.first-position --model.norm-epsilon
--model.norm-first --model.no-norm-first --model.scale-embedding --model.no-scale-embedding --model.share
--model.output-bias --model.no-output-bias
--model.attention.heads --model.attention.d-k --model.attention.d-v --model.attention.dropout --model.attention.score
--model.attention.bias --model.attention.no-bias
--model.feed-forward.d-ff --model.feed-forward.activation --model.feed-forward.dropout
"""
RECURRENT = """
--model.cell --model.d-model --model.layers --model.bidirectional --model.no-bidirectional --model.attention
--model.activation --model.dropout --model.share
"""
SEARCH = """
--beam --length-penalty --coverage-penalty --extra-length --min-length --n-best --patience --no-repeat-ngram
--beam-groups --diversity-penalty --temperature --top-k --top-p --seed --split
"""
ONE_BEST = SEARCH.replace("--n-best", "")  # of commands that take one translation of each text

FLAGS = {
    "demo": "--to --corpus --task --quick --out --minutes --language --threads",
    "check": """
--dev --test --write-clean --rejected --realign --model --learn --minutes --keep --weights
--report --max-ratio --max-length --json
""",
    "split": "--out --dev --test --by",
    "wish": "--train --count --max-words --out",
    "forecast": "--train --dev --steps --seed --threads --json",
    "train": TRAIN + TRANSFORMER,
    "train --preset lstm": TRAIN + RECURRENT,
    "translate": f"""
-m --model --ensemble -i --input -o --output --input-format --output-format
--word-scores --alignment --confidence --min-confidence --text-key --translate-key --all --as-lines
--tag --target-tag --prefix --glossary --memory --swap-numbers --origins --forbid --forbid-exact
--placeholders --no-placeholders
--keep-numbers --no-keep-numbers --keep --keep-file
--detect-faults --no-detect-faults --sentence-case --no-sentence-case --visible-characters --no-visible-characters
--engine --compute-type --device --threads --quiet {SEARCH}
""",
    "serve": "-m --model --pivot --host --port --engine --compute-type --device --threads --processes --replicas "
    + "--batches --gather --beam --max-beam --patience --deadline --max-wait --requests --cache --texts "
    + "--characters --rate --keep --min-confidence --inspect-tokens --api-keys --open --host-name --allow-origin "
    + "--proxy --state --suggestions --memory --runs --grace --new-key",
    "plot": "--out --against --language",
    "verify": "--json",
    "average": "--out --last --all",
    "evaluate": "-m --model --translations --ensemble --memory --device --threads --tokenize -o --output --sentences "
    + f"--details --against --against-file --robustness --variation --confidence --json {ONE_BEST}",
    "score": "-m --model --memory --threads --json",
    "align": "-m --model --layer --head --measure --threshold --soft --text --subwords --threads",
    "remember": "-m --model --out --training --add --forget --list --json --by --threads --quiet",
    "calibrate": "-m --model --out --dev --threshold --threads",
    "info": "--preset --vocabulary --diagram --system --json",
    "insight": "--pairs --sentence --subwords --out --language --threads",
    "inspect": "-m --model --translation --tag --target-tag --memory --out --html --model-page --json --view --sample "
    + f"--kind --layer --head --aggregate --subwords --language --threads {ONE_BEST.replace('--split', '')}",
    "trace": "-m --model --memory --translation --tag --target-tag --count --out --json --repair --run --minutes "
    + f"--threads --quiet {ONE_BEST}",
    "lab": "--quick --out --seeds --language --threads --train --dev --test",
    "import": "--positions --tag --target-tag --check --sample",
    "distill": "--teacher --train --dev --test --out --originals --block --shard --ray --engine --compute-type --json "
    + f"--threads --quiet --preset {TRAINING} {TRANSFORMER} {ONE_BEST}",
    "backtranslate": "-m --model --text --out --tag --model-tag --model-target-tag --reverse --noise --max-tokens "
    + f"--block --shard --ray --engine --compute-type --device --threads --quiet {ONE_BEST}",
    "export": "--to --compute-type --sample --test --threads",
    "upload": "--private",
    "benchmark": "-m --model --beam --threads --rounds --sentences --json",
}


@pytest.mark.parametrize("command", FLAGS)
def test_command_has_these_flags_and_no_others(dragoman, command: str):
    ran = dragoman(*command.split(), "--help")
    assert ran.code == 0
    # A flag begins a line, or a line of a box, or follows another one: "│ -m FOLDER, --model FOLDER ...".
    rows = [line[2:] for line in ran.out.splitlines() if line[2:3] == "-"]
    found = {flag for row in rows for flag in re.findall(r"(?:^|, )(--?[a-z][a-z0-9.-]*)", row)}
    assert found == {"-h", "--help", *FLAGS[command].split()}
    assert not re.search(r"default:\s*(None|'')?\)|\{None|\[STR|\n\n\n", ran.out)
    width = shutil.get_terminal_size().columns
    assert all(len(row) <= width for row in ran.out.splitlines() if not row.startswith("$"))
    assert len({len(row) for row in ran.out.splitlines() if row[-1:] in {*"│╮╯"}}) <= 1  # the boxes are whole


def test_help_of_a_flag_is_one_string():
    """Of several in a row, help would show the first alone."""
    folders = (Path(dragoman.__file__).parent / name for name in ("commands", "config"))
    files = [file for folder in folders for file in folder.rglob("*.py")]
    files += [Path(str(command_module(name).__file__)) for name in ELSEWHERE]
    assert len(files) > 20
    assert not [
        file for file in files if re.search(r'^ {4}\w+: .*\n {4}".*"\n {4}"', file.read_text("utf-8"), re.MULTILINE)
    ]


def test_flag_names_of_other_toolkits_lead_to_existing_flags():
    every = {flag for flags in FLAGS.values() for flag in flags.split()}
    assert {flag for flags in HABITS.values() for flag in flags} <= every
    assert len(HABITS) > 100
    training = {flag.rpartition(".")[2].lstrip("-") for flag in TRAINING.split()}
    assert not training & HABITS.keys()  # a setting of ours means itself


def test_commands_are_all_tested_here():
    assert {command.split()[0] for command in FLAGS} == set(COMMANDS)
