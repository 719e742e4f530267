"""Slips of the study notes that no other test settles; docs/course/slips.md names the test of each of them."""

import contextlib
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import gap
from torch import Tensor, nn

from dragoman.commands.lab import GROUPS
from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import BASE
from dragoman.inspection.attention import attention_maps
from dragoman.lab import COMPARISONS, EXPERIMENTS, scaling
from dragoman.model.attention import Additive, Kernel, MultiHeadAttention, causal_mask, explicit, fused
from dragoman.model.packing import Packing
from dragoman.model.transformer import DecoderLayer, EncoderLayer, Transformer

ROOT = Path(__file__).parent.parent
COURSE = ROOT / "docs" / "course"
SOURCE, TARGET = torch.tensor([[5, 6, 7, 8, 2]]), torch.tensor([[1, 3, 4]])
LITTLE = TransformerConfig(
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=2),
    feed_forward=FeedForwardConfig(d_ff=8),
    dropout=0,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def attend(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """Self-attention of one sentence, (T, M) -> (T, M)."""
    tokens = Packing.full(torch.zeros(1, len(x)))
    return layer(x, tokens, layer.project(x, tokens), None)


# Scale: by the root of d_k (note 003 says d_k); d = 100 (note 002: variance by 10; note 000: dimension 10).


@pytest.mark.parametrize("kernel", [fused, explicit])
def test_scores_are_divided_by_the_root_of_d_k_and_not_by_d_k(kernel: Kernel):
    query, key, value = torch.randn(3, 64), torch.randn(5, 64), torch.randn(5, 2)
    by_root, by_size = ((query @ key.T / divisor).softmax(-1) @ value for divisor in (math.sqrt(64), 64))
    assert gap(kernel(query, key, value), by_root) <= 1e-12
    assert gap(kernel(query, key, value), by_size) > 1e-2


def test_dividing_by_10_divides_the_deviation_by_10_and_the_variance_by_100():
    scores = scaling.random_scores(100, 2_000, seed=1)
    assert float((scores / 10).std()) == pytest.approx(float(scores.std()) / 10)
    assert float((scores / 10).var()) == pytest.approx(float(scores.var()) / 100)
    assert float((scores / 10).var()) != pytest.approx(float(scores.var()) / 10, rel=0.5)


@pytest.mark.parametrize("d_k", [2, 10])
def test_of_all_vectors_of_ones_and_minus_ones_the_products_have_variance_d_k(d_k: int):
    """Every number has mean 0 and variance 1, and all draws are there: no estimate."""
    vectors = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * d_k)
    products = vectors @ vectors.T
    assert float(products.mean()) == 0
    assert float(products.square().mean()) == d_k
    assert float((products / math.sqrt(d_k)).square().mean()) == pytest.approx(1)


def test_a_deviation_of_10_is_that_of_dimension_100_and_not_of_10():
    deviation = {d_k: float(scaling.random_scores(d_k, 20_000, seed=1).std()) for d_k in (10, 100)}
    assert deviation[100] == pytest.approx(10, rel=0.02)
    assert deviation[10] == pytest.approx(math.sqrt(10), rel=0.02)


def test_the_triple_that_is_said_to_be_even_is_the_more_peaked_one_and_random_triples_are_not():
    wide, narrow = (torch.tensor(triple).softmax(-1).max() for triple in ([8.0, -11, 7], [1.1, -0.8, -1.7]))
    assert narrow > wide
    of_100, of_2 = (scaling.Peak.of(scaling.random_scores(d_k, 20_000, seed=1)).largest for d_k in (100, 2))
    assert of_100 > of_2


# Additive attention (note 003): better than the product without the division, not than the one with it.


def test_additive_scores_stay_as_calm_as_scaled_products_and_unscaled_products_do_not():
    peaks = {}
    for d_k in (8, 512):
        query, key = torch.randn(1, 200, d_k), torch.randn(1, 3, d_k)
        weights = {
            "additive": Additive(1, d_k)(query[None], key[None], torch.eye(3)[None, None]),
            "scaled": explicit(query, key, torch.eye(3)[None]),
            "unscaled": explicit(query * math.sqrt(d_k), key, torch.eye(3)[None]),
        }
        peaks[d_k] = {name: float(found.detach().max(-1).values.mean()) for name, found in weights.items()}
    assert peaks[512]["unscaled"] > 0.9
    for name in ("additive", "scaled"):
        assert peaks[512][name] < 0.7
        assert peaks[512][name] == pytest.approx(peaks[8][name], abs=0.1)


# One matrix for all places (note 002: another W^Q at each step).


def test_every_place_asks_with_the_same_matrix():
    layer, x = MultiHeadAttention(16, AttentionConfig(heads=2)), torch.randn(5, 16)
    asked: list[Tensor] = []

    def watched(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        asked.append(query)
        return fused(query, key, value, mask, dropout)

    layer.kernel = watched
    attend(layer, x)
    together = asked[0][0].transpose(0, 1).flatten(1)  # H T K -> T H*K
    alone = torch.stack([layer.query.weight @ word for word in x])
    with_one_each = torch.stack([torch.randn(16, 16) @ word for word in x])  # the control
    assert gap(together, alone) <= 1e-12
    assert gap(together, with_one_each) > 1e-2


# Heads (note 004: a head puts out len x d_model; it leaves out W^O).


def test_a_head_puts_out_vectors_of_size_64_and_all_together_of_512():
    layer, seen = MultiHeadAttention(512, AttentionConfig()), []
    layer.kernel = lambda *inputs: seen.append(fused(*inputs)) or seen[-1]
    x = torch.randn(4, 512)
    out = attend(layer, x)
    (of_heads,) = seen
    assert of_heads.shape == (1, 8, 4, 64)
    together = of_heads[0].transpose(0, 1).flatten(1)
    assert together.shape == out.shape == (4, 512)
    assert gap(out, together @ layer.out.weight.T) <= 1e-12
    assert gap(out, together) > 1e-2  # without W^O it is something else


# Masks act on scores (note 001, text: the look-ahead mask is applied to the word embedding).


def test_a_word_that_is_zero_is_still_looked_at_and_a_masked_score_is_not():
    x = torch.randn(4, 16)
    without_the_last = x * torch.tensor([1.0, 1, 1, 0])[:, None]
    by_vectors = explicit(without_the_last, without_the_last, torch.eye(4))
    by_scores = explicit(x, x, torch.eye(4), causal_mask(4))
    assert (by_vectors[:3, 3] > 0).all()
    assert (by_scores[:3, 3] == 0).all()
    assert by_scores[3, 3] > 0  # and the last word is not hidden from itself, as no zero vector could say


# Attention over the source is not self-attention (note 001 names it so).


def test_attention_over_the_source_has_its_keys_from_the_source_and_self_attention_has_not():
    model, maps_of = Transformer(LITTLE, vocabulary=11).eval(), []
    for source in (SOURCE, SOURCE.flip(1)):
        with attention_maps(model) as maps:
            model(source, TARGET)
        maps_of.append(maps)
    across, back = (
        [maps[name][0] for maps in maps_of] for name in ("decoder.0.cross_attention", "decoder.0.attention")
    )
    assert across[0].shape == (1, 2, 3, 5)
    assert back[0].shape == (1, 2, 3, 3)
    assert torch.equal(back[0], back[1])
    assert gap(across[0], across[1]) > 1e-3


# What note 001 has and the paper has not: settings, and what they cost.


def parameters(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config, 37_000).parameters())


def test_the_model_of_the_note_is_the_paper_with_other_settings():
    note = replace(
        BASE.model,
        norm_first=True,
        positions="learned",
        max_length=512,
        share="none",
        output_bias=True,
        attention=AttentionConfig(bias=True),
        feed_forward=FeedForwardConfig(activation="gelu", dropout=0.1),
    )
    attentions, last_norms, places, words = 6 + 2 * 6, 2 * 2 * 512, 2 * 512 * 512, 2 * 37_000 * 512
    extra = attentions * 4 * 512 + last_norms + places + words + 37_000
    assert parameters(note) == parameters(BASE.model) + extra
    assert parameters(BASE.model) == 63_045_632


def test_the_paper_norms_after_each_layer_and_has_no_biases_no_inner_dropout_and_one_matrix_of_words():
    paper = BASE.model
    assert not paper.norm_first
    assert (paper.positions, paper.feed_forward.activation, paper.share) == ("sinusoidal", "relu", "all")
    assert (paper.attention.bias, paper.output_bias, paper.attention.dropout) == (False, False, 0)
    assert (paper.dropout, paper.feed_forward.dropout) == (0.1, 0)
    with torch.device("meta"):
        layers = [EncoderLayer(paper), DecoderLayer(paper)]
        attentions = [m for layer in layers for m in layer.modules() if isinstance(m, MultiHeadAttention)]
    assert len(attentions) == 3
    assert all(m.bias is None for layer in attentions for m in layer.modules() if isinstance(m, nn.Linear))


# The page itself.


def missing(page: str) -> list[str]:
    """The tests and experiments that a page names and that do not exist."""
    tests = [name.split("::") for name in re.findall(r"`(tests/\w+\.py::\w+)`", page)]
    of_the_code = re.findall(r"`(test_\w+)`", page)  # the table of note 001's code has a file for all of them
    tests += [["tests/test_note001.py", name] for name in of_the_code]
    code = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in tests}
    lost = [name for file, name in tests if f"def {name}(" not in code[file]]
    asked = re.findall(r"(?:^    |`)dragoman lab((?: [a-z][a-z0-9-]*)*)", page, flags=re.MULTILINE)
    known = {*EXPERIMENTS, *COMPARISONS, *GROUPS}
    return lost + [name for names in asked for name in names.split() if name not in known]


def test_the_page_settles_33_slips_with_tests_and_experiments_that_exist():
    page = (COURSE / "slips.md").read_text(encoding="utf-8")
    entries = re.split(r"^\*\*(\d+)\. ", page, flags=re.MULTILINE)
    assert [int(number) for number in entries[1::2]] == list(range(1, 34))
    assert all("`tests/" in entry for entry in entries[2::2])
    assert missing(page) == []


def test_a_test_that_does_not_exist_would_be_found():
    page = "`tests/test_slips.py::test_of_nothing`, `test_the_moon`, `dragoman lab moon`\n    dragoman lab sun all"
    assert missing(page) == ["test_of_nothing", "test_the_moon", "moon", "sun"]


@pytest.mark.parametrize("page", ["tour.md", "tour.ko.md", "lab.md"])
def test_pages_on_the_lab_name_experiments_and_tests_that_exist(page: str):
    assert missing((COURSE / page).read_text(encoding="utf-8")) == []


def runs(page: str) -> list[tuple[str, str]]:
    """(lines of Python, what is said to be printed) of a page."""
    text = (COURSE / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("lines", "printed"), [*runs("tour.md"), *runs("tour.ko.md")])
def test_the_python_of_the_tour_prints_what_stands_below_it(lines: str, printed: str):
    torch.set_default_dtype(torch.float32)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(lines, "tour", "exec"), {})
    torch.set_printoptions(profile="default")
    assert out.getvalue() == printed


def test_all_python_of_the_tour_says_what_it_prints():
    for page in ("tour.md", "tour.ko.md"):
        assert len(runs(page)) == (COURSE / page).read_text(encoding="utf-8").count("```python") == 6


def unknown(page: str) -> list[str]:
    """Files and names of code on a page that are not in the package."""
    package = ROOT / "src" / "dragoman"
    code = "\n".join(file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    files = re.findall(r"`((?:model|training|decoding|inspection|lab|data)/\w+\.py)`", page)
    names = re.findall(r"`(?:\w+\.)?([A-Z]\w+[a-z]|[a-z]+_[a-z_]+)`", page)
    lost = [file for file in files if not (package / file).exists()]
    return lost + [name for name in names if not name.startswith("test_") and not re.search(rf"\b{name}\b", code)]


@pytest.mark.parametrize("page", ["tour.md", "tour.ko.md"])
def test_the_pages_name_code_that_exists(page: str):
    assert unknown((COURSE / page).read_text(encoding="utf-8")) == []


def test_code_that_does_not_exist_would_be_found():
    page = "`model/moon.py`, `model/attention.py`, `Moonlight`, `MultiHeadAttention.split`, `full_moon`"
    assert unknown(page) == ["model/moon.py", "Moonlight", "full_moon"]
