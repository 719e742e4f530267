"""Views: what is drawn is what was inspected, and it can be read without colours."""

import dataclasses
import json
import re
import resource
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import tiny_transformer
from PIL import Image
from torch import Tensor

from dragoman.config import AttentionConfig, RecurrentConfig, SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import UsageError
from dragoman.files import new_folder
from dragoman.inspection.figure import (
    Figure,
    check_format,
    map_figure,
    pyplot,
    save,
    two_digits,
    wrap_caption,
)
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspection import KINDS, Inspection, inspect
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.plots.maps import tile
from dragoman.inspection.plots.positions import added_positions, position_figure
from dragoman.inspection.plots.tables import number_table
from dragoman.inspection.plots.trees import MAX_ROWS, MAX_STEPS, shown_steps, tree_figure
from dragoman.inspection.tree import BeamTree, Node
from dragoman.inspection.views import (
    STATISTICS,
    View,
    attention_grid,
    attention_lines,
    attention_map,
    draw_cross_attention,
    view_figure,
)
from dragoman.model import Model, build
from dragoman.model.positions import POSITIONS, Positions, Sinusoidal, sinusoids
from dragoman.model_folder import write_model
from dragoman.translation.translator import Translator

SENTENCE, TRANSLATION = "The dog sees 12 cats.", "개가 고양이 12마리를 봐요."
DEEP = tiny_transformer(encoder_layers=2, decoder_layers=2)
VIEWS: tuple[View, ...] = get_args(View)


def make(
    tokenizer: Tokenizer, search: SearchConfig = SearchConfig(beam=3, extra_length=3), **config: Any
) -> Translator:
    torch.manual_seed(0)
    return Translator(build(dataclasses.replace(DEEP, **config), len(tokenizer)).eval(), tokenizer, search)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return make(tokenizer)


@pytest.fixture(scope="module")
def given(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, TRANSLATION, name="toy")


@pytest.fixture(scope="module")
def searched(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, name="toy")


def drawn(shown: Figure) -> Any:
    """The figure, to be read back."""
    figure = pyplot().figure(figsize=shown.size, layout="constrained")
    shown.draw(figure)
    pyplot().close(figure)
    return figure


def image(axes: Any) -> Tensor:
    return torch.tensor(axes.images[0].get_array().filled(float("nan")))


def labels(axes: Any) -> tuple[list[str], list[str]]:
    """Of rows and of columns."""
    rows, columns = axes.get_yticklabels(), axes.get_xticklabels()
    return [label.get_text() for label in rows], [label.get_text() for label in columns]


def view(translator: Translator, inspection: Inspection, name: View) -> Figure:
    return view_figure(translator, inspection, name, "cross", subwords=False)


# Maps.


def attend_by_hand(model: Model) -> Tensor:
    """Let each head of the cross-attention look mostly at one place, another for each. Return these weights."""
    weights = torch.full((2, 2, 40, 40), 0.1 / 39)
    for layer, block in enumerate(model.decoder):  # type: ignore[union-attr]
        for head in range(2):
            weights[layer, head, torch.arange(40), (torch.arange(40) + 2 * layer + head) % 5] = 0.9

        def kernel(query, key, value, mask, dropout, own=weights[layer]):
            return own[:, : query.size(-2), : key.size(-2)] @ value

        block.cross_attention.kernel = kernel
    return weights


def test_a_head_made_by_hand_is_drawn_and_labelled_right(tokenizer: Tokenizer):
    translator = make(tokenizer)
    weights = attend_by_hand(translator.model)
    inspection = inspect(translator, SENTENCE, TRANSLATION, name="toy")
    rows, columns = (
        [*(tokenizer.pieces[id].replace(" ", "␣") for id in tokenizer.encode(text)), "</s>"]
        for text in (TRANSLATION, SENTENCE)
    )
    for layer, head in ((1, 1), (1, 2), (2, 1)):
        (axes, *_) = drawn(attention_map(inspection, "cross", layer, head, subwords=True)).axes
        wanted = weights[:, :, : len(rows), : len(columns)]
        torch.testing.assert_close(image(axes), wanted[layer - 1, head - 1])
        assert labels(axes) == (rows, columns)
        assert not torch.allclose(image(axes), wanted[layer - 1, 2 - head])  # the control


def test_small_maps_show_their_numbers(given: Inspection):
    axes = drawn(attention_map(given, "cross", 1, 2)).axes[0]
    numbers = {text.get_position(): float(text.get_text()) for text in axes.texts}
    cells = {(x, y): v for y, row in enumerate(image(axes).tolist()) for x, v in enumerate(row) if v >= 0.05}
    assert numbers == {cell: pytest.approx(value, abs=0.00501) for cell, value in cells.items()}


@pytest.mark.parametrize(
    ("which", "expected", "says"),
    [
        ((2, 1), lambda cross: cross[1, 0], "layer 2 of 2, head 1 of 2"),
        ((None, 2), lambda cross: cross[1, 1], "layer 2 of 2, head 2 of 2"),
        ((), lambda cross: cross[1].mean(0), "layer 2 of 2, mean of 2 heads"),
        ((1,), lambda cross: cross[0].mean(0), "layer 1 of 2, mean of 2 heads"),
        ((None, None, "mean"), lambda cross: cross.mean((0, 1)), "mean of 2 layers, mean of 2 heads"),
        ((None, None, "max"), lambda cross: cross.amax((0, 1)), "largest of 2 layers, largest of 2 heads"),
        ((1, None, "max"), lambda cross: cross[0].amax(0), "layer 1 of 2, largest of 2 heads"),
        ((None, None, "rollout"), None, "rollout of layers 1 to 2, mean of 2 heads"),
    ],
)
def test_a_map_is_of_the_layers_and_heads_that_its_caption_names(
    given: Inspection, which: tuple, expected: Callable[[Tensor], Tensor] | None, says: str
):
    shown = attention_map(given, "cross", *which, subwords=True)
    weights = expected(given.cross) if expected else given.weights("cross", aggregate="rollout")
    torch.testing.assert_close(image(drawn(shown).axes[0]), weights)
    assert f"cross-attention, {says}" in shown.caption


def test_captions_name_no_mean_of_one_head_or_layer(tokenizer: Tokenizer):
    translator = make(tokenizer, decoder_layers=1, attention=AttentionConfig(heads=1))
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    for which in ((), (1,), (None, None, "mean"), (None, None, "max")):
        assert "cross-attention, layer 1 of 1; " in attention_map(inspection, "cross", *which).caption
    assert "rollout of layers 1 to 1; " in attention_map(inspection, "cross", aggregate="rollout").caption
    assert "cross-attention, layer 1 of 1, head 1 of 1; " in attention_lines(inspection, "cross").caption


@pytest.mark.parametrize("kind", KINDS)
def test_all_heads_are_drawn_each_in_its_cell(given: Inspection, kind: Any):
    (axes, *_) = drawn(attention_grid(given, kind, subwords=True)).axes
    weights, mosaic = given.maps(kind), image(axes)
    rows, columns = weights.shape[-2:]
    high, wide = tile(weights)[1]
    for layer, head in np.ndindex(2, 2):
        corner = mosaic[layer * high : layer * high + rows, head * wide : head * wide + columns]
        torch.testing.assert_close(corner, weights[layer, head])
    assert not torch.equal(weights[0, 0], weights[1, 1])  # the control: they are not all the same
    assert int(mosaic.isnan().sum()) == mosaic.numel() - weights.numel()
    assert axes.images[0].get_clim() == (0, float(weights.max()))


def test_a_grid_is_labelled_by_its_words(given: Inspection):
    rows, columns = ["개가", "고양이", "12마리를", "봐요.", "</s>"], ["The", "dog", "sees", "12", "cats.", "</s>"]
    assert labels(drawn(attention_grid(given, "cross")).axes[0]) == (rows * 2, columns * 2)


# The search.


def test_every_node_of_a_search_is_drawn_with_its_numbers(searched: Inspection):
    tree = searched.tree
    assert tree
    texts = [text.get_text().replace("−", "-").split("\n") for text in drawn(tree_figure(tree, "")).axes[0].texts]
    last = tree.steps if tree.steps <= MAX_STEPS else tree.nodes[tree.winner].step
    shown, rows = shown_steps(last), Counter[int]()
    for number, node in enumerate(tree.nodes):
        rows[node.step] += 1
        if node.step in shown and (rows[node.step] <= MAX_ROWS or number in tree.path) and node.step:
            p, s = (two_digits(number).replace("−", "-") for number in (node.log_p, node.normalised))
            assert [f"p {p}", f"s {s}", node.fate] in [text[1:] for text in texts]
    assert {"kept", "pruned"} <= {text[-1] for text in texts}


def test_a_long_search_says_what_is_not_drawn(tokenizer: Tokenizer):
    def caption(text: str, steps: range, **search: int) -> str:
        tree = inspect(make(tokenizer, SearchConfig(**search)), text, name="toy").tree
        assert tree
        assert tree.nodes[tree.winner].step in steps
        return tree_figure(tree, "").caption.replace(str(tree.nodes[tree.winner].step), "N")

    long = caption(SENTENCE, range(MAX_STEPS + 1, 999), beam=6, extra_length=20)
    assert "the first and the last 7 of N steps" in long
    assert "the best 8 of up to 12 nodes" in long
    short = caption("a", range(MAX_STEPS), beam=1, extra_length=1)
    assert "the first" not in short
    assert "the best 8" not in short


@pytest.mark.parametrize(("steps", "end"), [(14, 9), (30, 9), (30, 14), (30, 15), (30, 22), (30, 30)])
def test_of_a_search_that_goes_on_the_end_of_the_chosen_path_is_drawn(steps: int, end: int):
    """The search goes on until nothing can be better any more; what it found may have ended long before."""
    nodes = [Node(None, 0, BOS, "<s>", 0.0, 0.0, 0.0, "kept")]
    nodes += [Node(step - 1, step, 9, f"word {step}", -1.0, -step, -1.0, "kept") for step in range(1, steps + 1)]
    nodes.append(Node(end - 1, end, EOS, "</s>", -0.1, -end, -0.5, "finished"))
    tree = BeamTree(2, 0.6, tuple(sorted(nodes, key=lambda node: node.step)), 0)
    winner = next(number for number, node in enumerate(tree.nodes) if node.fate == "finished")
    # Sorted, the nodes after the winner have moved by one.
    fixed = [dataclasses.replace(n, parent=n.parent + (n.parent >= winner)) if n.parent else n for n in tree.nodes]
    figure = tree_figure(dataclasses.replace(tree, nodes=tuple(fixed), winner=winner), "")
    texts = [text.get_text().split("\n")[0] for text in drawn(figure).axes[0].texts]
    last = steps if steps <= MAX_STEPS else end
    assert {"</s>", "<s>", f"word {min(end, last)}"} <= set(texts)
    assert (f"without {steps - last} later steps" in figure.caption) == (last < steps)
    assert (f"the first and the last 7 of {last} steps" in figure.caption) == (last > MAX_STEPS)


@pytest.mark.parametrize("steps", [1, 13, 14, 15, 16, 40])
def test_of_a_long_search_its_beginning_and_its_end_are_shown(steps: int):
    columns = shown_steps(steps)
    half = MAX_STEPS // 2
    assert set(columns) >= {0, min(half, steps), max(steps - half + 1, 0), steps}
    assert len(columns) == min(steps, MAX_STEPS) + 1
    assert list(columns.values()) == sorted(set(columns.values()))
    gaps = max(columns.values()) + 1 - len(columns)
    assert gaps == (steps > MAX_STEPS)


def test_a_search_that_was_not_made_is_not_drawn(translator: Translator, given: Inspection):
    with pytest.raises(UsageError, match="no beam search to draw"):
        view(translator, given, "tree")


# Tables.


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_heads_has_their_statistics(translator: Translator, given: Inspection, kind: Any):
    (table,) = drawn(view_figure(translator, given, "heads", kind, subwords=False)).axes[0].tables
    cells = {place: cell.get_text().get_text() for place, cell in table.get_celld().items()}
    heads = [head for head in head_statistics([given]) if head.kind == kind]
    for row, head in enumerate(heads, start=1):
        assert cells[row, -1].startswith(f"layer {head.layer}, head {head.head}")
        for column, name in enumerate(STATISTICS):
            value = getattr(head, name)
            assert cells[row, column] == ("" if value is None else two_digits(value))
    assert any(head.next is None for head in heads) == (kind == "decoder")  # the control


def test_of_a_long_table_the_first_rows_are_drawn_and_the_caption_says_so():
    rows = [[float(n), 1.0] for n in range(70)]
    shown = number_table([str(n) for n in range(70)], ["a", "b"], rows, "", "caption")
    assert shown.caption == "caption; the first 64 of 70 rows"
    (table,) = drawn(shown).axes[0].tables
    assert max(row for row, _ in table.get_celld()) == 64


def test_probabilities_are_drawn_as_long_as_they_are(translator: Translator, given: Inspection):
    chosen, others, entropy = drawn(view(translator, given, "probabilities")).axes
    assert [bar.get_width() for bar in chosen.patches] == [position.probability for position in given.positions]
    assert [bar.get_width() for bar in entropy.patches] == [position.entropy for position in given.positions]
    assert labels(chosen)[0] == [f"{n + 1}  {position.token}" for n, position in enumerate(given.positions)]
    texts = {text.get_position(): text.get_text() for text in others.texts}
    for row, position in enumerate(given.positions):
        for rank, other in enumerate(position.alternatives):
            assert texts[rank, row].lstrip("▶") == f"{other.token} {other.probability:.2f}"
            assert texts[rank, row].startswith("▶") == (other.token_id == position.token_id)


# What is lost without a word.


@pytest.mark.parametrize("translation", [TRANSLATION, "Bundesverfassungsgerichtsentscheidung Hund"])
def test_what_is_lost_is_drawn_with_its_sign_and_with_whole_numbers_beside_words(
    translator: Translator, translation: str
):
    inspection = inspect(translator, SENTENCE, translation, name="toy")
    losses = occlusion(translator.model, inspection)
    axes = drawn(view(translator, inspection, "occlusion")).axes[0]
    torch.testing.assert_close(image(axes), losses.share.T)
    rows, columns = labels(axes)
    assert columns == losses.source
    for row, word, p in zip(rows, losses.target, losses.probability.tolist(), strict=True):
        assert row == f"{word} {p:.2f}" or (len(word) > 30 and re.fullmatch(rf"{word[:9]}.* {p:.2f}", row))
    assert axes.images[0].get_clim() == (-1, 1)


# Positions and masks.


def test_sinusoids_are_drawn_as_the_formula_has_them(translator: Translator, given: Inspection):
    whole, curves, products = drawn(view(translator, given, "positions")).axes[:3]
    table = sinusoids(50, DEEP.d_model)
    torch.testing.assert_close(image(whole), table)
    for line in curves.lines:
        dimension = int(line.get_label().split()[-1])
        torch.testing.assert_close(torch.tensor(line.get_ydata()), table[:, dimension])
    for line in products.lines:
        position = int(line.get_label().split()[-1])
        torch.testing.assert_close(torch.tensor(line.get_ydata()), table @ table[position])
    for axes in (curves, products):
        assert len({line.get_linestyle() for line in axes.lines}) == len(axes.lines) == 4  # told apart in grey


@pytest.mark.parametrize("scheme", [name for name, kind in POSITIONS.items() if kind.embed is not Positions.embed])
def test_positions_are_those_that_the_model_adds(tokenizer: Tokenizer, scheme: str):
    model = make(tokenizer, positions=scheme, max_length=20).model
    found = added_positions(model, 30)
    assert found
    assert found.scheme == scheme
    assert found.table.shape == (model.config.max_positions or 30, DEEP.d_model)
    words = torch.randn(1, 7, DEEP.d_model)
    torch.testing.assert_close(model.encoder_positions.embed(words, 0)[0], words[0] + found.table[:7])


def test_a_new_scheme_is_drawn_up_to_its_limit(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    class Limited(Sinusoidal):
        def embed(self, x: torch.Tensor, start: int) -> torch.Tensor:
            if start + x.size(1) > 20:
                raise ValueError("max_length")
            return super().embed(x, start)

    monkeypatch.setitem(POSITIONS, "learned", Limited)  # whose length the config limits
    found = added_positions(make(tokenizer, positions="learned", max_length=20).model, 30)
    assert found
    assert len(found.table) == 20


def test_relative_positions_are_drawn_by_distance(tokenizer: Tokenizer):
    model = make(tokenizer, positions="relative").model
    torch.nn.init.normal_(model.encoder_positions.scores.weight)
    (axes,) = drawn(position_figure(model, 50, "")).axes
    bias = model.encoder_positions.bias(0, 9, 9)
    for head, line in enumerate(axes.lines):
        values = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert [values[key - 4] for key in range(9)] == bias[head, 4].tolist()


def test_rotary_positions_are_drawn_as_angles_and_no_positions_not_at_all(tokenizer: Tokenizer):
    rotary = make(tokenizer, positions="rotary").model
    torch.testing.assert_close(image(drawn(position_figure(rotary, 50, "")).axes[0]), sinusoids(50, 8))
    assert added_positions(rotary, 50) is None
    for config in (dataclasses.replace(DEEP, positions="none"), RecurrentConfig(d_model=16)):
        with pytest.raises(UsageError, match="no positional encoding"):
            position_figure(build(config, 300), 50, "")


def test_a_model_has_only_the_masks_of_its_attention(tokenizer: Tokenizer):
    def masks(attention: Any) -> Figure:
        model = build(RecurrentConfig(d_model=16, attention=attention), len(tokenizer)).eval()
        translator = Translator(model, tokenizer)
        return view(translator, inspect(translator, "The dog", "개", name="toy"), "masks")

    assert [axes.get_title() for axes in drawn(masks("dot")).axes] == ["cross-attention"]
    with pytest.raises(UsageError, match="no attention, so it needs no masks"):
        masks("none")


def test_masks_hide_the_future_and_the_padding(translator: Translator, given: Inspection):
    encoder, decoder, cross = drawn(view(translator, given, "masks")).axes
    source, target = len(given.source.tokens), len(given.target.tokens)
    for axes, rows in ((encoder, source), (cross, target)):
        allowed = image(axes)[:rows]
        assert allowed[:, :source].all()
        assert not allowed[:, source:].any()
    assert torch.equal(image(decoder)[:target, :target], torch.ones(target, target).tril())
    assert not image(decoder)[:, target:].any()
    for axes in (encoder, decoder, cross):  # not by colour alone
        (crosses,) = axes.collections
        found = {(round(x), round(y)) for x, y in crosses.get_offsets()}
        assert found == {(x, y) for y, x in (image(axes) == 0).nonzero().tolist()}


# Captions and pixels.


def test_a_caption_stays_within_its_figure():
    latin, hangul = wrap_caption("word " * 60, 6.0), wrap_caption("단어를 " * 60, 6.0)
    assert max(map(len, latin.splitlines())) <= 90
    assert max(map(len, hangul.splitlines())) < 60
    assert " ".join(latin.split()) == ("word " * 60).strip()  # nothing is lost


def test_a_saved_map_is_darkest_where_the_weight_is_greatest(tmp_path: Path, given: Inspection):
    """From the pixels of the file."""
    save(map_figure(torch.eye(20), [""] * 20, [""] * 20, "", ""), tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as file:
        colours = torch.from_numpy(np.array(file.convert("RGB"))).int()
    blue = (colours[..., 2] > colours[..., 0] + 60) & (colours[..., 0] < 60)  # without letters and frames
    y, x = blue[:, : int(0.75 * blue.size(1))].nonzero().T.double()  # without the colour bar
    assert float(torch.corrcoef(torch.stack([x, y]))[0, 1]) > 0.95


# The command.


def written(svg: Path) -> list[str]:
    """Return the texts of a figure: matplotlib writes each as a comment before its outlines."""
    return re.findall("<!-- (.*?) -->", svg.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def own_translation(trained: Path) -> str:
    return Translator.load(trained).translate([SENTENCE])[0].text


DRAWN = [*((name, ".svg") for name in VIEWS), ("map", ".png"), ("grid", ".pdf")]
SOON = [("map", ".svg"), ("words", ".svg"), ("grid", ".pdf")]  # the others are slow


@pytest.mark.parametrize(
    ("name", "format"), [one if one in SOON else pytest.param(*one, marks=pytest.mark.slow) for one in DRAWN]
)
def test_the_command_draws_every_view_with_hangul_and_its_caption_names_model_and_sentence(
    dragoman, trained: Path, own_translation: str, caplog: pytest.LogCaptureFixture, name: View, format: str
):
    """A letter that no typeface has would be a warning, a typeface that is not found a line in matplotlib's log."""
    out, of_the_model = Path(f"new/figure{format}"), name in ("map", "tree")
    translation = own_translation if of_the_model else TRANSLATION
    flags = ["--view", name, "--out", out, *([] if of_the_model else ["--translation", TRANSLATION])]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert dragoman("inspect", "-m", trained, SENTENCE, *flags) == (0, f"{translation}\n{out}\n", "")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert out.read_bytes().startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[format])
    if format == ".svg":
        assert f"model toy: “{SENTENCE}” → “{translation}”" in " ".join(" ".join(written(out)).split())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--view grid --layer 1", "--layer cannot be used with --view grid"),
        ("--view tree --kind encoder", "--kind cannot be used with --view tree"),
        ("--view masks --subwords", "--subwords cannot be used with --view masks"),
        ("--head 1 --aggregate max", "give --head or --aggregate, not both"),
        ("--view grid --sample dev.tsv", "--sample needs --view heads"),
        ("--view heads --out never.svg --json --sample dev.tsv", "without --html and --json"),
        ("--view heads --out never.svg --html page.html --sample dev.tsv", "without --html and --json"),
        ("--view heads --out never.svg --sample dev.tsv", "leave out TEXT, --translation, --tag"),
        ("--html page.html --layer 1", "--layer cannot be used with a page"),
        ("--json --view grid", "--view grid draws a figure"),
        ("--html page.pdf", "page.pdf: the name of a page must end in .html"),
        ("--view tree --translation 개가", "there is no beam search to draw"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(dragoman, trained: Path, tmp_path: Path, flags: str, says: str):
    ran = dragoman("inspect", "-m", trained, SENTENCE, *flags.split())
    assert ran.code == 2
    assert says in ran.err
    assert not list(tmp_path.iterdir())


def test_heads_are_measured_over_a_sample(dragoman, trained: Path, corpus: tuple[str, str]):
    out = Path("heads.svg")
    assert dragoman("inspect", "-m", trained, "--view", "heads", "--sample", corpus[1], "--out", out).code == 0
    translator, pairs = Translator.load(trained), read_corpus([corpus[1]]).pairs
    inspections = [inspect(translator, *pair) for pair in pairs]
    queries = sum(len(translator.tokenizers.source.encode(target)) + 1 for _, target in pairs)
    texts = " ".join(" ".join(written(out)).split())
    assert f"means over {queries:,} queries of {len(pairs)} sentences" in texts
    pooled, alone = (
        next(head.entropy for head in head_statistics(some) if head.kind == "cross")
        for some in (inspections, inspections[:1])
    )
    assert f"{pooled:.2f}" in written(out)
    assert alone != pytest.approx(pooled, abs=0.005)  # the control: one sentence says something else


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the tag "formal"."""
    texts = [SENTENCE, TRANSLATION] * 20
    tokenizer = Tokenizer.train(iter(texts), suggested=300, tags=["formal"])
    made, folder = make(tokenizer), tmp_path_factory.mktemp("tagged") / "model"
    with new_folder(folder) as draft:
        write_model(draft, made.model, Tokenizers.of(tokenizer), "")
    return folder


def test_the_command_looks_at_a_text_with_its_tag(dragoman, tagged: Path):
    flags = ["inspect", "-m", tagged, SENTENCE, "--translation", TRANSLATION, "--json"]
    formal, plain = (json.loads(dragoman(*flags, "--tag", tag).out)["source"]["tokens"] for tag in ("formal", ""))
    assert formal == ["<tag:formal>", *plain]


def test_the_ids_of_whole_texts_begin_with_their_tags(tagged: Path):
    translator = Translator.load(tagged)
    tokenizer = translator.tokenizers.source
    plain, formal = tokenizer.encode(SENTENCE), tokenizer.encode(SENTENCE, "formal")
    assert translator.source_ids([SENTENCE, SENTENCE], ["", "formal"]) == [plain, formal]
    assert translator.replace(tag="formal").source_ids([SENTENCE], [""]) == [formal]
    assert plain != formal == [*tokenizer.tag_ids("formal"), *plain]
    (cut,) = translator.source_ids(["dog " * 2000], ["formal"])
    assert len(cut) == translator.max_source_tokens


def test_the_pairs_of_a_sample_keep_their_tags(dragoman, tagged: Path):
    Path("pairs.tsv").write_text(f"{SENTENCE}\t{TRANSLATION}\n", encoding="utf-8")
    flags = ["--view", "heads", "--out", "heads.svg", "--sample", "pairs.tsv", "tag=formal"]
    assert dragoman("inspect", "-m", tagged, *flags).code == 0

    def special(tag: str) -> set[str]:
        """What each head gives to tags and ends, as the table writes it."""
        seen = head_statistics([inspect(Translator.load(tagged), SENTENCE, TRANSLATION, tag=tag)])
        return {f"{head.special:.2f}" for head in seen if head.kind == "cross"}

    texts = set(written(Path("heads.svg")))
    assert special("formal") <= texts
    assert not special("") <= texts


def test_a_sample_of_sentences_that_are_all_too_long_is_told(dragoman, trained: Path):
    Path("long.tsv").write_text("Z" * 5000 + "\tQ\n", encoding="utf-8")
    ran = dragoman("inspect", "-m", trained, "--view", "heads", "--sample", "long.tsv", "--out", "heads.svg")
    assert ran.code == 1
    assert "no pair is short enough" in ran.err


def test_json_has_everything_in_full(dragoman, trained: Path):
    found = json.loads(dragoman("inspect", "-m", trained, SENTENCE, "--json").out)
    inspection = inspect(Translator.load(trained), SENTENCE)
    for kind in KINDS:
        assert torch.equal(torch.tensor(found[f"{kind}_attention"]), inspection.maps(kind)[:, None])
    assert found["encoder_tokens"] == found["source"]["tokens"] == inspection.encoder_tokens
    assert found["decoder_tokens"] == found["decoder_input"]["tokens"] == inspection.decoder_tokens
    assert found["target"]["text"] == inspection.target.text
    assert [position["probability"] for position in found["positions"]] == [p.probability for p in inspection.positions]
    assert [head["entropy"] for head in found["heads"]] == [head.entropy for head in head_statistics([inspection])]
    assert inspection.tree
    assert len(found["tree"]["nodes"]) == len(inspection.tree.nodes)
    assert found["tree"]["path"] == inspection.tree.path


# Files.


def test_signs_that_svg_may_not_hold_are_replaced(tmp_path: Path):
    labels = ["a\x01b", "\x1b[31mred", "\ud800", "plain"]
    save(map_figure(torch.eye(4), labels, labels, "title", "c\x01"), tmp_path / "map.svg")
    ElementTree.parse(tmp_path / "map.svg")
    texts = written(tmp_path / "map.svg")
    assert {"a�b", "�[31mred", "�", "plain", "title"} <= set(texts)
    assert any(text.startswith("c�; ") for text in texts)


@pytest.mark.parametrize("name", ["map", "map.jpg", "map.svg.txt", ".svg"])
def test_a_figure_in_an_unknown_format_is_refused(name: str):
    with pytest.raises(UsageError, match="a figure's name must end in one of"):
        check_format(Path(name))
    check_format(Path("map.SVG"))


@pytest.mark.parametrize("rows", [1, 3])
def test_labels_that_do_not_fit_the_values_are_refused(rows: int):
    with pytest.raises(ValueError, match="weights are"):
        map_figure(torch.eye(2), ["a"] * rows, ["a", "b"], "")


@pytest.mark.parametrize(("size", "format"), [(1, "svg"), (1, "png"), (5, "pdf"), (50, "svg")])
def test_a_figure_of_any_size_can_be_drawn(tmp_path: Path, size: int, format: str):
    labels = ["a long label that has to be shortened " * 3] * size
    save(map_figure(torch.eye(size), labels, labels, "title", "caption"), tmp_path / f"map.{format}")
    assert (tmp_path / f"map.{format}").stat().st_size > 1000


def test_a_full_disk_leaves_the_old_figure(dragoman, tmp_path: Path, trained: Path):
    command = ["inspect", "-m", trained, "The dog", "--out", "map.png"]
    assert dragoman(*command).code == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        assert dragoman(*command) == (1, "", "dragoman: map.png: File too large\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Image.open("map.png") as image:
        image.load()
    assert [file.name for file in tmp_path.iterdir()] == ["map.png"]


# One call for a figure.


@pytest.mark.parametrize("translation", [None, "개가 고양이를 봐요.", ""])
def test_the_drawing_is_of_the_translation_that_is_returned(trained: Path, tmp_path: Path, translation: str | None):
    translator = Translator.load(trained, SearchConfig(beam=1))
    returned = draw_cross_attention(translator, SENTENCE, tmp_path / "map.svg", translation=translation, subwords=True)
    assert returned == (translator.translate([SENTENCE])[0].text if translation is None else translation)
    assert (tmp_path / "map.svg").is_file()


def test_nothing_is_drawn_of_what_the_model_does_not_have(translator: Translator, tmp_path: Path):
    with pytest.raises(UsageError, match="layer 3: the model has layers 1 to 2"):
        draw_cross_attention(translator, SENTENCE, tmp_path / "map.svg", layer=3)
    model = build(RecurrentConfig(d_model=16, attention="none"), len(translator.tokenizers.source)).eval()
    with pytest.raises(UsageError, match="no cross-attention"):
        draw_cross_attention(
            Translator(model, translator.tokenizers), "The dog", tmp_path / "map.svg", translation="개"
        )
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_pictures_and_leaves_matplotlib_as_it_was(translator: Translator, searched: Inspection):
    matplotlib = pytest.importorskip("matplotlib")
    shown = (searched, searched.map("cross", 1, 2), searched.map("encoder", 1, 2), view(translator, searched, "tree"))
    with matplotlib.rc_context({"text.parse_math": True, "font.family": ["serif"]}):
        before = {**matplotlib.rcParams}
        pictures, words = zip(*(one._repr_png_() for one in shown), strict=True)
        assert {**matplotlib.rcParams} == before
    assert len({*pictures}) == len(shown)
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert repr(shown[-1]) == f"<Figure: {shown[-1].caption}>"
    assert words[-1] == {"alt": shown[-1].caption}
    cross = shown[1]
    best = [
        f"{row}: {cross.columns[weights.index(max(weights))]} {max(weights):.2f}"
        for row, weights in zip(cross.rows, cross.weights.tolist(), strict=True)
    ]
    assert words[1] == {"alt": "; ".join([cross.title, *best, cross.caption])}


def test_a_model_without_attention_has_no_picture(tokenizer: Tokenizer):
    plain = Translator(
        build(RecurrentConfig(cell="gru", d_model=16, attention="none"), len(tokenizer)).eval(), tokenizer
    )
    assert inspect(plain, SENTENCE, TRANSLATION)._repr_png_() is None
