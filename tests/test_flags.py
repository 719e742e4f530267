"""All flags of all commands. Whoever adds one adds it here, and thinks about whether it is needed."""

import re

import pytest

from dragoman.cli import COMMANDS, main

TRAIN = """
--preset --train --dev --out --vocabulary --quiet
--training.batch-tokens --training.clip --training.epochs --training.label-smoothing --training.learning-rate
--training.max-steps --training.max-tokens --training.minutes --training.patience --training.samples --training.seed
--training.threads --training.validate-every --training.warmup
"""
TRANSFORMER = """
--model.d-model --model.encoder-layers --model.decoder-layers --model.dropout --model.positions --model.max-length
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
SEARCH = "--beam --length-penalty --extra-length"

FLAGS = {
    "demo": "--to --out --minutes",
    "train": TRAIN + TRANSFORMER,
    "train --preset lstm": TRAIN + RECURRENT,
    "translate": f"-m --model -i --input -o --output {SEARCH}",
    "evaluate": f"-m --model --tokenize --output --json {SEARCH}",
    "info": "--preset --vocabulary --json",
    "inspect": f"-m --model --translation --out --layer --head --pieces {SEARCH}",
    "benchmark": "--threads --rounds",
}


@pytest.mark.parametrize("command", FLAGS)
def test_a_command_has_these_flags_and_no_others(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code in (0, None)
    # A flag begins a line, or a line of a box, or follows another one: "│ -m FOLDER, --model FOLDER ...".
    rows = [line[2:] for line in capsys.readouterr().out.splitlines() if line[2:3] == "-"]
    found = {flag for row in rows for flag in re.findall(r"(?:^|, )(--?[a-z][a-z0-9.-]*)", row)}
    assert found == {"-h", "--help", *FLAGS[command].split()}


def test_every_command_is_here():
    assert {command.split()[0] for command in FLAGS} == set(COMMANDS)
