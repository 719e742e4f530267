"""Settings: what is wrong with them is reported before anything is done, by the name of the setting."""

import dataclasses
import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config import (
    AttentionConfig,
    FeedForwardConfig,
    RecurrentConfig,
    RunConfig,
    SearchConfig,
    TrainingConfig,
    TransformerConfig,
    as_dict,
    model_config,
    read_toml,
    to_toml,
    update,
)
from dragoman.config.presets import DEMO, PRESETS, TINY, Preset
from dragoman.config.serve import ServeConfig
from dragoman.errors import UsageError
from dragoman.model import build

SECTIONS = [AttentionConfig, FeedForwardConfig, TransformerConfig, RecurrentConfig, SearchConfig, TrainingConfig]


def refused(data: dict[str, Any]) -> str:
    """The message with which `data` is refused."""
    with pytest.raises(UsageError) as error:
        update(RunConfig(), data, "run.toml")
    assert str(error.value).startswith("run.toml: ")
    assert "\n" not in str(error.value)
    return str(error.value)


# Names.


@pytest.mark.parametrize(
    ("data", "unknown", "nearest"),
    [
        ({"vocabluary": 5}, "vocabluary", "vocabulary"),
        ({"training": {"warm_up": 5}}, "warm_up", "warmup"),
        ({"model": {"dropuot": 0.1}}, "dropuot", "dropout"),
        ({"model": {"attention": {"head": 4}}}, "head", "heads"),
        ({"model": {"feed_forward": {"dff": 4}}}, "dff", "d_ff"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest(data: dict[str, Any], unknown: str, nearest: str):
    assert f"unknown setting '{unknown}', did you mean '{nearest}'?" in refused(data)


@pytest.mark.parametrize(
    ("data", "unknown"),
    [
        ({"zzzz": 1}, "zzzz"),  # like no other
        ({"model": {"cell": "gru"}}, "cell"),  # of the other kind of model
        ({"model": {"kind": "recurrent", "norm_first": True}}, "norm_first"),
    ],
)
def test_unknown_setting_like_no_other_is_refused_without_a_guess(data: dict[str, Any], unknown: str):
    assert f"unknown setting '{unknown}'" in refused(data)
    assert "did you mean" not in refused(data)


def test_message_names_the_key_in_the_file():
    assert refused({"model": {"attention": {"heads": "4"}}}).startswith("run.toml: model: attention: heads must be ")


# Types.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"training": {"epochs": "3"}}, "epochs must be a whole number, not '3'"),
        ({"training": {"epochs": 3.0}}, "epochs must be a whole number, not 3.0"),
        ({"training": {"epochs": True}}, "epochs must be a whole number, not True"),
        ({"training": {"epochs": [3]}}, "epochs must be a whole number, not [3]"),
        ({"training": {"clip": "1"}}, "clip must be a number, not '1'"),
        ({"training": {"clip": False}}, "clip must be a number, not False"),
        ({"training": {"max_steps": "all"}}, "max_steps must be a whole number, not 'all'"),
        ({"model": {"norm_first": 1}}, "norm_first must be true or false, not 1"),
        ({"model": {"norm_first": "true"}}, "norm_first must be true or false, not 'true'"),
        ({"out": 5}, "out must be a string, not 5"),
        ({"train": 5}, "train must be a tuple of strings, not 5"),
        ({"train": ["a", 5]}, "train must be a tuple of strings, not ('a', 5)"),
        ({"training": 5}, "expected a table of settings, found 5"),
        ({"model": {"attention": [4]}}, "expected a table of settings, found [4]"),
        ({"vocabulary": {"size": 5}}, "vocabulary must be a whole number, not {'size': 5}"),
        ({"model": {"positions": 5}}, "positions must be one of none, sinusoidal"),
        ({"model": {"positions": ["rotary"]}}, ", not ['rotary']"),
        ({"model": {"positions": "sinusoid"}}, ", not 'sinusoid'"),
        ({"model": {"attention": {"score": "cosine"}}}, "score must be one of dot, unscaled, additive"),
        ({"model": {"kind": "gpt"}}, "unknown kind 'gpt', expected one of transformer, recurrent"),
        ({"model": {"kind": 5}}, "unknown kind '5'"),
        ({"model": {"kind": ["transformer"]}}, "unknown kind"),
        ({"model": {"kind": {"name": "transformer"}}}, "unknown kind"),
    ],
    ids=str,
)
def test_value_of_the_wrong_type_is_refused(data: dict[str, Any], expected: str):
    assert expected in refused(data)


def test_int_is_accepted_for_a_float_and_one_file_for_several():
    assert update(RunConfig(), {"training": {"clip": 2}}, "").training.clip == 2.0
    assert update(RunConfig(), {"train": "pairs.tsv"}, "").train == ("pairs.tsv",)


# Ranges.


OUT_OF_RANGE: dict[type, list[dict[str, float]]] = {
    AttentionConfig: [{"heads": 0}, {"d_k": 0}, {"d_v": -1}, {"dropout": 1.0}],
    FeedForwardConfig: [{"d_ff": 0}, {"dropout": -0.1}],
    TransformerConfig: [
        *({"d_model": 0}, {"max_length": 0}, {"encoder_layers": -1}, {"decoder_layers": 1001}),
        *({"first_position": -1}, {"first_position": 1001}, {"norm_epsilon": 0.0}, {"norm_epsilon": math.nan}),
    ],
    RecurrentConfig: [{"layers": 0}, {"layers": 10**6}, {"d_model": -512}, {"dropout": 1.5}],
    SearchConfig: [{"beam": 0}, {"extra_length": 0}, {"top_p": 0.0}, {"temperature": 0.0}, {"length_penalty": 10.5}],
    TrainingConfig: [
        *({"batch_tokens": 0}, {"max_steps": 0}, {"minutes": -1.0}, {"warmup": 0}, {"learning_rate": 0.0}),
        *({"label_smoothing": 1.0}, {"concatenate": 1.5}, {"clip": -1.0}, {"patience": -1}, {"threads": 0}),
        *({"seed": -1}, {"keep": 2**31}, {"micro_batches": 1025}, {"minutes": math.inf}),
    ],
    RunConfig: [{"vocabulary": 299}],
}
AT_THE_EDGE: dict[type, list[dict[str, float]]] = {
    AttentionConfig: [{"heads": 1}, {"dropout": 0.0}],
    TransformerConfig: [{"encoder_layers": 0}, {"decoder_layers": 1000}, {"first_position": 1000}],
    SearchConfig: [{"length_penalty": -10.0}],
    TrainingConfig: [{"clip": 0.0}, {"patience": 0}, {"seed": 0}, {"keep": 2**31 - 1}, {"concatenate": 1.0}],
    RunConfig: [{"vocabulary": 300}],
}


def settings_of(table: dict[type, list[dict[str, float]]]) -> list[tuple[type, str, float]]:
    return [(section, *item) for section, rows in table.items() for row in rows for item in row.items()]


@pytest.mark.parametrize(("section", "name", "value"), settings_of(OUT_OF_RANGE))
def test_value_out_of_range_is_refused_by_name(section: type, name: str, value: float):
    with pytest.raises(UsageError, match=f"^{name} must be "):
        section(**{name: value})


@pytest.mark.parametrize(("section", "name", "value"), settings_of(AT_THE_EDGE))
def test_value_at_the_edge_of_its_range_is_taken(section: type, name: str, value: float):
    assert getattr(section(**{name: value}), name) == value


FLOATS = [
    (section, field.name)
    for section in SECTIONS
    for field in dataclasses.fields(section)
    if re.search(r"\bfloat\b", str(field.type))
]


@pytest.mark.parametrize(("section", "name"), FLOATS)
def test_settings_never_accept_nan(section: type, name: str):
    with pytest.raises(UsageError, match=name):
        section(**{name: math.nan})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SearchConfig(beam="4"), "beam must be a whole number, not '4'"),
        (lambda: SearchConfig(beam=None), "beam must be a whole number, not None"),
        (lambda: SearchConfig(beam=True), "beam must be a whole number, not True"),
        (lambda: SearchConfig(split="words"), "split must be one of sentences, long, none, not 'words'"),
        (lambda: TrainingConfig(batch_tokens="all"), "batch_tokens must be a whole number or auto, not 'all'"),
        (lambda: TransformerConfig(attention=8), "attention must be of type AttentionConfig, not 8"),
        (lambda: RunConfig(train=["a.tsv"]), "train must be a tuple of strings, not ['a.tsv']"),
    ],
)
def test_python_meets_the_same_checks_as_a_file(make: Callable[[], object], words: str):
    with pytest.raises(UsageError, match=f"^{re.escape(words)}$"):
        make()
    assert SearchConfig(beam=4, length_penalty=1).patience is None  # a whole number is a number


def test_sizes_that_do_not_fit_together_are_refused():
    """Each with its control: sizes that do."""
    assert "d_model 512 is not divisible by 7 heads" in refused({"model": {"attention": {"heads": 7}}})
    assert TransformerConfig(attention=AttentionConfig(heads=7, d_k=5, d_v=6)).attention.head_sizes(512) == (5, 6)
    with pytest.raises(UsageError, match="d_model 5 must be even"):
        RecurrentConfig(d_model=5)
    assert RecurrentConfig(d_model=5, bidirectional=False).d_model == 5
    with pytest.raises(UsageError, match="rotary"):
        build(TransformerConfig(d_model=36, attention=AttentionConfig(heads=4), positions="rotary"), 9)
    build(TransformerConfig(d_model=36, attention=AttentionConfig(heads=2), positions="rotary"), 9)


# To files and back.

sixths = st.integers(0, 5).map(lambda n: n / 6)
attentions = st.builds(
    AttentionConfig,
    heads=st.integers(1, 9),
    d_k=st.integers(1, 9).map(lambda n: 2 * n),  # which rotary positions can rotate
    d_v=st.integers(1, 9),
    bias=st.booleans(),
    dropout=sixths,
    score=st.sampled_from(get_args(get_type_hints(AttentionConfig)["score"])),
)
transformers = st.builds(
    TransformerConfig,
    d_model=st.integers(1, 99),
    encoder_layers=st.integers(0, 9),
    attention=attentions,
    feed_forward=st.builds(FeedForwardConfig, activation=st.sampled_from(["relu", "gelu", "silu"]), dropout=sixths),
    positions=st.sampled_from(get_args(get_type_hints(TransformerConfig)["positions"])),
    norm_first=st.booleans(),
    share=st.sampled_from(["all", "embeddings", "output", "none"]),
)
recurrents = st.builds(
    RecurrentConfig,
    cell=st.sampled_from(["rnn", "lstm", "gru"]),
    d_model=st.integers(1, 99).map(lambda n: 2 * n),
    attention=st.sampled_from(["none", "dot", "additive"]),
    dropout=sixths,
)
file_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
runs = st.builds(
    RunConfig,
    train=st.lists(file_names, max_size=2).map(tuple),
    out=file_names,
    vocabulary=st.none() | st.integers(300, 10**6),
    model=transformers | recurrents,
    training=st.builds(
        TrainingConfig,
        max_steps=st.none() | st.integers(1, 2**31 - 1),
        minutes=st.none() | st.floats(1e-3, 1e9),
        learning_rate=st.floats(1e-9, 1e9),
        seed=st.integers(0, 2**31 - 1),
    ),
)


@given(runs)
def test_run_written_as_toml_is_read_as_the_same_run(run: RunConfig):
    assert update(RunConfig(), tomllib.loads(to_toml(run)), "") == run
    assert model_config(as_dict(run.model), "config.json") == run.model  # as a model folder describes it


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_preset_written_as_toml_is_read_as_the_same_preset(preset: Preset[Any]):
    run = RunConfig(model=preset.model, training=preset.training)
    assert update(RunConfig(), tomllib.loads(to_toml(run)), "") == run


@pytest.mark.parametrize("left_out", ["kind", "dropout", "d_model"])
def test_run_of_which_something_is_not_written_is_read_as_another(left_out: str):
    """The control for the tests above."""
    run = RunConfig(model=RecurrentConfig(d_model=64, dropout=0.4))
    data = as_dict(run)
    del data["model"][left_out]
    if left_out == "kind":
        assert "unknown setting" in refused(data)
    else:
        assert update(RunConfig(), data, "") != run


def test_description_without_a_kind_is_refused():
    with pytest.raises(UsageError, match=r"config\.json: no kind of model given"):
        model_config({"d_model": 16}, "config.json")


def test_settings_not_in_a_file_stay_as_they_were():
    start = RunConfig(model=DEMO.model, training=DEMO.training)
    changed = update(start, {"model": {"attention": {"bias": True}}, "training": {"seed": 7}}, "")
    expected = as_dict(start)
    expected["model"]["attention"]["bias"] = True
    expected["training"]["seed"] = 7
    assert as_dict(changed) == expected


def test_another_kind_of_model_starts_from_its_own_defaults():
    start, data = RunConfig(model=TINY.model), {"model": {"kind": "recurrent", "layers": 3}}
    assert update(start, data, "").model == RecurrentConfig(layers=3)
    assert update(start, {"model": {"kind": "transformer"}}, "").model == TINY.model
    assert data == {"model": {"kind": "recurrent", "layers": 3}}  # what was read stays as it was


DOTS = b"a." * 500
NOT_TOML = [
    b"vocabulary = ", b"[model", b'a = "\\z"', b"a = 1\na = 2", b'out = "\xff"', b"a = " + b"[" * 100_000,
    b"a = " + b"1" * 5000, DOTS + b"a = 1", b"[" + DOTS + b"a]", b"a = {" + DOTS + b"a = 1}",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_TOML, ids=lambda text: text[:9])
def test_file_that_is_no_toml_is_refused_by_name(tmp_path: Path, text: bytes):
    (tmp_path / "run.toml").write_bytes(text)
    with pytest.raises(UsageError, match=rf"^{tmp_path}/run\.toml: not valid TOML"):
        read_toml(tmp_path / "run.toml")


def test_file_of_settings_of_any_size_is_not_read_whole(tmp_path: Path):
    with (tmp_path / "run.toml").open("wb") as file:
        file.truncate(40 << 30)
    with pytest.raises(UsageError, match=r"run\.toml: too large for a settings file"):
        read_toml(tmp_path / "run.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = 1979-05-27", "model: expected a table of settings, found datetime.date(1979, 5, 27)"),
        ("training = 0x1" + "0" * 5000, "training: expected a table of settings, found this int"),
        ("vocabulary = 0x1" + "0" * 5000, "vocabulary must be at most 1,000,000, not this int"),
        ("training.learning_rate = 0x1" + "0" * 5000, "learning_rate must be below inf, not inf"),
        ("vocabulary = '" + "x" * 5000 + "'", "x…"),
    ],
)
def test_value_that_cannot_be_written_again_is_refused_in_few_words(text: str, expected: str):
    assert (message := refused(tomllib.loads(text))).endswith(expected)
    assert len(message) < 200


BOUNDED = [
    (section, name)
    for section in (*SECTIONS, ServeConfig)
    for name, hint in get_type_hints(section).items()
    if float in (hint, *get_args(hint))
]


@pytest.mark.parametrize(("section", "name"), BOUNDED, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_setting_that_is_a_number_is_finite(section: Any, name: str, value: float):
    with pytest.raises(UsageError, match=name):
        section(**{name: value})


def test_waits_are_bounded_by_what_clocks_can_count():
    for section, name in ((TrainingConfig, "rank_timeout"), (ServeConfig, "gather"), (ServeConfig, "grace")):
        section(**{name: 1e7})
        with pytest.raises(UsageError, match=f"{name} must be at most 10,000,000"):
            section(**{name: 1e8})


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
        read_toml(tmp_path / name)


# Presets.


def test_base_and_the_big_model_are_those_of_the_paper():
    """Table 3, first and last row: layers, d_model, d_ff, heads, d_k, dropout, label smoothing."""
    rows = {"base": (6, 6, 512, 2048, 8, 64, 0.1, 0.1), "big": (6, 6, 1024, 4096, 16, 64, 0.3, 0.1)}
    for name, row in rows.items():
        model, training = PRESETS[name].model, PRESETS[name].training
        assert isinstance(model, TransformerConfig)
        d_k, d_v = model.attention.head_sizes(model.d_model)
        layers = model.encoder_layers, model.decoder_layers
        sizes = model.d_model, model.feed_forward.d_ff, model.attention.heads, d_k
        assert (*layers, *sizes, model.dropout, training.label_smoothing) == row
        assert d_k == d_v
