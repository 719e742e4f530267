"""The drawing of an architecture says what the modules are, and changes as they do."""

import dataclasses
import html
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, TINY_RECURRENT
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import nn

from dragoman.cli import main
from dragoman.config import AttentionConfig, FeedForwardConfig, RecurrentConfig, TransformerConfig
from dragoman.config.presets import PRESETS
from dragoman.inspection.architecture import Box, Stack, stacks
from dragoman.inspection.cost import cost
from dragoman.inspection.figure import pyplot
from dragoman.inspection.plots.architecture import architecture_figure
from dragoman.model import Model, outline
from dragoman.model.attention import explicit_attention
from dragoman_lab import EXPERIMENTS
from dragoman_lab.ablation import AblationConfig

DOCS = Path(__file__).parents[2] / "docs"
BASE = PRESETS["base"].model
assert isinstance(BASE, TransformerConfig)
LSTM = RecurrentConfig(layers=2, d_model=64)
CONFIGS: dict[str, TransformerConfig | RecurrentConfig] = {
    "base": BASE,
    "big": PRESETS["big"].model,
    "pre-norm, rotary": PRESETS["tiny"].model,
    "relative": dataclasses.replace(TINY, positions="relative"),
    "halves": dataclasses.replace(TINY, positions="sinusoidal-halves"),
    "learned": dataclasses.replace(TINY, positions="learned", max_length=100),
    "no positions": dataclasses.replace(TINY, positions="none"),
    "untied": dataclasses.replace(TINY, share="none", output_bias=True),
    "additive": dataclasses.replace(
        TINY, attention=AttentionConfig(heads=3, d_k=8, d_v=6, score="additive", bias=True)
    ),
    "no decoder": dataclasses.replace(TINY, decoder_layers=0),
    "no encoder": dataclasses.replace(TINY, encoder_layers=0),
    "one matrix for queries, keys and values": AblationConfig(**vars(TINY), change="query-key-value"),
    "a mixture of layers": AblationConfig(**vars(PRESETS["tiny"].model), change="layer-pool"),
    "a norm of the embeddings": AblationConfig(**vars(TINY), change="embedding-norm"),
    "lstm": LSTM,
    "gru, additive": dataclasses.replace(TINY_RECURRENT, attention="additive", share="none"),
    "rnn, one direction": RecurrentConfig(cell="rnn", layers=3, d_model=16, bidirectional=False, attention="none"),
}


def draw(model: Model) -> Any:
    """Return the axes of the drawing of a model."""
    figure = architecture_figure(model, "mine")
    canvas = FigureCanvasAgg(pyplot().Figure(figsize=figure.size))
    figure.draw(canvas.figure)
    return canvas.figure.axes[0]


def texts(model: Model) -> list[str]:
    return [line for text in draw(model).texts for line in text.get_text().splitlines()]


def texts_of_file(path: Path) -> list[str]:
    """Return the texts of an SVG: letters are drawn as shapes, each text under a comment that says it."""
    return [html.unescape(text) for text in re.findall(r"<!-- (.*) -->", path.read_text(encoding="utf-8"))]


def around_layers(stack: Stack) -> list[Box]:
    return [stack.embedding, *filter(None, (stack.positions, stack.norm)), *stack.top]


# What is drawn is what is there.


@pytest.mark.parametrize("name", CONFIGS)
def test_boxes_have_every_parameter_once_under_the_names_of_the_modules(name: str):
    model = outline(CONFIGS[name], 500)
    assert sum(stack.parameters for stack in stacks(model)) == cost(model).parameters
    for stack in stacks(model):
        for group in stack.groups:
            assert group.first + group.times <= 6
            for name in filter(None, (box.module for box in group.boxes)):  # an operation has none
                model.get_submodule(name if name.startswith(group.module) else f"{group.module}.{group.first}.{name}")
        for name in filter(None, (box.module for box in around_layers(stack))):
            model.get_submodule(name)  # raises where there is none


SOON = {  # the others are slow; each differs from one of these in a box or in a number
    *("base", "pre-norm, rotary", "relative", "additive", "no decoder", "one matrix for queries, keys and values"),
    *("a mixture of layers", "gru, additive"),
}


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
def test_architecture_figure_has_every_box_and_nothing_overlaps(name: str):
    model = outline(CONFIGS[name], 37_000)
    axes = draw(model)
    found = [line for text in axes.texts for line in text.get_text().splitlines()]
    for stack in stacks(model):
        boxes = [box for group in stack.groups for box in group.boxes] + around_layers(stack)
        assert {line for box in boxes for line in box.lines} <= set(found)
    assert f"mine: {type(model).__name__}" in found
    assert [text for text in found if text.startswith(f"{cost(model).parameters:,} parameters, d_model")]
    axes.figure.canvas.draw()
    width, height = 100 * axes.figure.get_size_inches()
    shapes = [patch.get_window_extent() for patch in axes.patches if patch.get_facecolor()[3] > 0]
    labels = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(shapes) > 5
    for extents in (shapes, labels):
        assert not [pair for pair in itertools.combinations(extents, 2) if pair[0].overlaps(pair[1])]
    for label in labels:
        assert 0 <= label.x0 < label.x1 <= width
        assert 0 <= label.y0 < label.y1 <= height
        around = [box for box in shapes if box.contains((label.x0 + label.x1) / 2, (label.y0 + label.y1) / 2)]
        assert all(box.x0 <= label.x0 and label.x1 <= box.x1 for box in around)


def test_base_model_is_that_of_the_paper():
    found = texts(outline(BASE, 37_000))
    assert {"8 heads, d_k 64, d_v 64", "scaled dot product", "512 → 2,048 → 512, relu", "times √512"} <= set(found)
    assert found.count("6 ×") == 2
    assert {"3,150,336 parameters each", "4,199,936 parameters each"} <= set(found)
    assert "63,045,632 parameters, d_model 512, dropout 0.1" in found
    assert found.count("the matrix of source_embedding") == 2
    assert found.count("Sinusoidal positions") == 2
    assert found.count("Masked multi-head attention") == 1
    assert found.count("Multi-head attention") == 2
    assert found.count("Add & norm") == 5


def test_architecture_of_a_big_model_computes_nothing():
    huge = dataclasses.replace(BASE, d_model=65_536, feed_forward=FeedForwardConfig(d_ff=1_000_000))
    model = outline(huge, 1_000_000)
    found = texts(model)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert "65,536 → 1,000,000 → 65,536, relu" in found


# And it changes as the modules do.


def changed(**changes: Any) -> Model:
    return outline(dataclasses.replace(BASE, **changes), 500)


def test_norms_of_pre_norm_stand_before_the_sublayers_and_at_the_ends():
    post, pre = texts(changed()), texts(changed(norm_first=True))
    assert (post.count("Norm"), post.count("Add"), post.count("LayerNorm")) == (0, 0, 5)
    assert (pre.count("Norm"), pre.count("Add"), pre.count("LayerNorm")) == (7, 5, 7)
    assert {"encoder_norm", "decoder_norm"} <= set(pre) - set(post)
    order = [box.title for box in stacks(changed(norm_first=True))[0].groups[0].boxes]
    assert order == ["Norm", "Multi-head attention", "Add", "Norm", "Feed forward", "Add"]


@pytest.mark.parametrize(
    ("positions", "title", "does", "plus"),
    [
        ("sinusoidal", "Sinusoidal positions", "added to the embeddings", 2),
        ("learned", "Learned positions", "added to the embeddings", 2),
        ("rotary", "Rotary positions", "rotates queries and keys", 0),
        ("rotary-across", "Rotary-across positions", "over the source, too", 0),
        ("relative", "Relative positions", "added to the scores, per head", 0),
    ],
)
def test_positions_are_drawn_where_they_act(positions: str, title: str, does: str, plus: int):
    found = texts(changed(positions=positions))
    assert (found.count(title), found.count(does), found.count("+")) == (2, 2, plus)
    for side in ("encoder_layers", "decoder_layers") if plus == 0 else ():  # acts on attention: not where there is none
        assert texts(changed(positions=positions, **{side: 0})).count(title) == 1


def test_positions_that_are_not_there_are_not_drawn():
    """The control."""
    assert not [text for text in texts(changed(positions="none")) if "positions" in text or text == "+"]


def test_layers_are_counted():
    found = texts(changed(decoder_layers=1))
    assert (found.count("6 ×"), found.count("1 ×")) == (1, 1)
    assert {"encoder: layers 1 to 6", "decoder: layer 1"} <= set(found)
    assert "Masked multi-head attention" not in texts(changed(decoder_layers=0))


@pytest.mark.parametrize(("share", "same"), [("all", 2), ("embeddings", 1), ("output", 1), ("none", 0)])
def test_shared_matrices_say_so(share: str, same: int):
    found = texts(changed(share=share))
    assert len([text for text in found if text.startswith("the matrix of")]) == same
    assert found.count(f"{500 * 512:,} parameters") == 3 - same


def test_architecture_has_heads_sizes_biases_and_scores_of_the_attention():
    attention = AttentionConfig(heads=2, d_k=16, d_v=24, score="additive", bias=True)
    found = texts(changed(attention=attention, scale_embedding=False))
    assert found.count("2 heads, d_k 16, d_v 24") == found.count("additive") == found.count("with biases") == 3
    assert "times √512" not in found


def test_architecture_names_a_kernel_that_was_replaced():
    def cosine(*arguments: Any) -> Any: ...

    model = changed(encoder_layers=1, decoder_layers=1)
    model.encoder[0].attention.kernel = cosine
    model.decoder[0].attention.kernel = explicit_attention
    found = texts(model)
    assert (found.count("cosine"), found.count("scaled dot product")) == (1, 2)


def test_layers_that_differ_stand_apart():
    model = changed(encoder_layers=5)
    model.encoder[2].around_attention.norm = nn.BatchNorm1d(512, device="meta")
    found = texts(model)
    assert {"encoder: layers 1 to 2", "encoder: layer 3", "encoder: layers 4 to 5", "BatchNorm1d"} <= set(found)
    assert [group.times for group in stacks(model)[0].groups] == [2, 1, 2]


def test_recurrent_models_are_drawn_with_their_cells():
    found = texts(outline(LSTM, 500))
    assert {"LSTM", "2 directions, 32 units each", "64 units", "Dot-product attention"} <= set(found)
    assert {"last state of the encoder", "all states of the encoder", "128 → 64, tanh"} <= set(found)
    assert found.count("2 ×") == 2
    assert not [text for text in found if "head" in text or "norm" in text]
    plain = texts(outline(CONFIGS["rnn, one direction"], 500))
    assert "RNN, tanh" in plain
    assert "LSTM" not in plain
    assert not [text for text in plain if "attention" in text or "all states" in text]
    assert "Additive attention" in texts(outline(CONFIGS["gru, additive"], 500))


# The command and the page.


def test_info_draws_the_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "new" / "base.svg"
    assert main(["info", "--preset", "base", "--diagram", str(out)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"\n{out}")
    drawn = texts_of_file(out)
    assert drawn == texts_of_file(DOCS / "images" / "architecture.svg")  # the docs' is up to date
    assert "base: Transformer" in drawn
    assert main(["info", "--preset", "lstm", "--json", "--diagram", str(tmp_path / "lstm.png")]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] > 0
    assert (tmp_path / "lstm.png").read_bytes().startswith(b"\x89PNG")


def test_info_of_a_run_draws_its_best_model(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "toy.svg"
    assert main(["info", str(trained), "--diagram", str(out)]) == 0
    assert "toy: Transformer" in texts_of_file(out)
    assert "2 heads, d_k 8, d_v 8" in texts_of_file(out)


def test_info_refuses_a_diagram_in_an_unknown_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["info", "--preset", "base", "--diagram", str(tmp_path / "base.jpg")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "a figure's name must end in one of" in printed.err
    assert not list(tmp_path.iterdir())


def test_paper_to_code_table_names_every_experiment():
    page = (DOCS / "paper-to-code.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`dragoman lab ([a-z0-9-]+)`", page))
    assert named == set(EXPERIMENTS)
