"""Models as graphs of ONNX, held against the models themselves."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY_RECURRENT, gap, step_by_step, tiny_transformer
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, ModelConfig, SearchConfig, TransformerConfig, presets
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.interop import verification
from dragoman.interop.onnx.conversion import check_model, convert
from dragoman.interop.verification import TOLERANCE, Mismatch, dealt, made_up, verify
from dragoman.model import Model, build
from dragoman.model.positions import POSITIONS, Rotary

onnx = pytest.importorskip("onnx", reason="an export to ONNX needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="an export to ONNX needs the extra `onnx`")

from dragoman.interop.onnx.session import OnnxEngine, OnnxModel  # noqa: E402

WORDS = 60
MODELS: dict[str, TransformerConfig] = {
    f"{scheme}, {'pre' if norm_first else 'post'}-norm": tiny_transformer(
        positions=scheme, norm_first=norm_first, encoder_layers=2, decoder_layers=2
    )
    for scheme in POSITIONS
    for norm_first in (False, True)
} | {
    "preset tiny": presets.TINY.model,
    "unscaled, relative": tiny_transformer(attention=AttentionConfig(2, score="unscaled"), positions="relative"),
    "additive, rotary": tiny_transformer(attention=AttentionConfig(2, score="additive"), positions="rotary-across"),
    "free heads, biased": tiny_transformer(
        attention=AttentionConfig(heads=3, d_k=6, d_v=5, bias=True), positions="rotary", output_bias=True, share="none"
    ),
    "gelu, odd d_model": tiny_transformer(
        d_model=15, attention=AttentionConfig(3, 4, 4), feed_forward=FeedForwardConfig(48, "gelu"), share="embeddings"
    ),
    "halves, odd d_model": tiny_transformer(
        d_model=15, attention=AttentionConfig(3, 4, 4), positions="sinusoidal-halves", share="output"
    ),
    "as M2M100": tiny_transformer(positions="sinusoidal-halves", first_position=2, norm_first=True, norm_epsilon=1e-2),
    "silu, unlike layers": tiny_transformer(
        feed_forward=FeedForwardConfig(48, "silu"), encoder_layers=0, decoder_layers=3, scale_embedding=False
    ),
}


def make(config: ModelConfig) -> Model:
    """A model with opinions, also on what lies far behind."""
    torch.manual_seed(0)
    model = build(config, WORDS).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    return model


def opened(model: Model, folder: Path, compute_type: str = "float32") -> OnnxModel:
    encoder, decoder = convert(model, compute_type)
    onnx.save(encoder, folder / "encoder.onnx")
    onnx.save(decoder, folder / "decoder.onnx")
    return OnnxModel(folder / "encoder.onnx", folder / "decoder.onnx")


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(3, WORDS, (3, size), generator=chance) for size in (20, 15))
    source[1, 7:], source[2, 2:] = PAD, PAD
    target[:, 0] = BOS
    return source, target


@torch.inference_mode()
def farthest(model: Model, other: OnnxModel, source: Tensor, target: Tensor) -> float:
    """The largest difference of their logits, of whole targets and of targets in pieces."""
    expected = model(source, target)
    pieces = [1, 1, 3, 1, target.size(1) - 6]
    return max(
        gap(expected, other.step(target, other.start(source))),
        gap(expected, step_by_step(other, source, target, pieces)),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", MODELS)
def test_graphs_compute_what_the_model_does(name: str, tmp_path: Path):
    model = make(MODELS[name])
    other = opened(model, tmp_path)
    assert farthest(model, other, *batch()) < 3e-5
    weight = next(weight for key, weight in model.named_parameters() if key.endswith("value.weight"))
    with torch.no_grad():
        weight[0, 0] += 1  # the control
    assert farthest(model, other, *batch()) > 1e-3


def test_onnx_sides_may_have_vocabularies_of_their_own(tmp_path: Path):
    torch.manual_seed(0)
    model = build(tiny_transformer(share="output"), 90, WORDS).eval()
    source, target = batch()
    source[0, 3] = 89
    assert farthest(model, opened(model, tmp_path), source, target) < 3e-5


@torch.inference_mode()
def test_rows_are_chosen_and_a_long_text_has_its_positions(tmp_path: Path):
    model = make(MODELS["rotary-across, pre-norm"])
    other = opened(model, tmp_path)
    source, target = batch()
    states = [one.start(source) for one in (model, other)]
    for one, state in zip((model, other), states, strict=True):
        one.step(target[:, :4], state)
        state.select(torch.tensor([2, 0, 0, 1]))
    last = target[[2, 0, 0, 1], 4:5]
    assert gap(model.step(last, states[0]), other.step(last, states[1])) < 3e-5
    long = torch.randint(3, WORDS, (1, 1500))
    assert farthest(model, other, long, long[:, :1200]) < 1e-3


@pytest.mark.parametrize("name", ["preset tiny", "relative, post-norm", "learned, post-norm"])
def test_our_searches_find_the_same_words_with_it(name: str, tmp_path: Path):
    model = make(MODELS[name])
    engine = OnnxEngine(opened(model, tmp_path), model.config.max_positions)
    sources = made_up(WORDS, 12, 30)
    kinds: list[dict] = [{"beam": 1}, {"beam": 3, "n_best": 2}, {"temperature": 1.0, "seed": 3}]
    for config in (SearchConfig(**kind, extra_length=5) for kind in kinds):
        ours, theirs = TorchEngine(model).search(sources, config), engine.search(sources, config)
        assert [[h.tokens for h in found] for found in theirs] == [[h.tokens for h in found] for found in ours]
    agreement = verify(model, engine, sources, (dealt(WORDS, 30), dealt(WORDS, 30, 1)))
    assert agreement.sources == 12
    assert agreement.gap < 1e-4
    assert agreement.tokens > 12 + WORDS


# int8


class Rounded(nn.Module):
    """A linear layer whose matrix and inputs are whole numbers from -127 to 127, row by row."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        weight, scale = rounded(self.linear.weight.detach())
        numbers, of_row = rounded(x)
        y = ((numbers.double() @ weight.double().T) * of_row * scale.T).to(x.dtype)
        return y if self.linear.bias is None else y + self.linear.bias


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-38)
    return (x / scale).round(), scale


def test_int8_rounds_each_row_of_a_matrix_and_of_what_it_multiplies(tmp_path: Path):
    config = dataclasses.replace(MODELS["free heads, biased"], decoder_layers=2)
    model = make(config)
    exact = opened(model, tmp_path)
    (tmp_path / "int8").mkdir()
    other = opened(model, tmp_path / "int8", "int8")
    source, target = batch()
    assert farthest(model, other, source, target) > 1e-3  # it is no float32
    assert gap(exact.step(target, exact.start(source)), other.step(target, other.start(source))) < 1.5
    for words in (model.source_embedding, model.target_embedding):
        numbers, scale = rounded(words.weight.detach())
        words.weight = nn.Parameter(numbers * scale)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, Rounded(child))
    expected = model(source, target).detach()
    differences = (expected - other.step(target, other.start(source))).abs()
    assert float(differences.median()) < 1e-4  # a number between two whole ones may be rounded to either


def test_int8_graph_is_independent_of_the_batch_and_a_quarter_as_large(tmp_path: Path):
    model = make(presets.TINY.model)
    other = opened(model, tmp_path, "int8")
    source, target = batch()
    together = other.step(target, other.start(source))
    for row, length in enumerate((20, 7, 2)):
        alone = other.step(target[row : row + 1], other.start(source[row : row + 1, :length]))
        assert gap(together[row : row + 1], alone) < 1e-4
    sizes = {}
    for kind in ("float32", "int8"):
        opened(model, tmp_path, kind)
        sizes[kind] = sum(file.stat().st_size for file in tmp_path.glob("*.onnx"))
    assert sizes["int8"] < 0.32 * sizes["float32"]


# What is refused


@pytest.mark.parametrize(
    ("config", "name", "flags"),
    [
        (TINY_RECURRENT, "recurrent layers", "--preset small"),
        (tiny_transformer(decoder_layers=0), "decoder_layers = 0", "--model.decoder-layers 1"),
    ],
)
def test_model_without_a_graph_is_refused_with_what_to_do(config: ModelConfig, name: str, flags: str):
    with pytest.raises(DragomanError, match=f"ONNX does not support models with {name}: train or distill with {flags}"):
        convert(build(config, WORDS))


def test_position_schemes_that_the_graphs_do_not_compute_are_refused(monkeypatch: pytest.MonkeyPatch):
    class Mirrored(Rotary):
        pass

    check_model(config := tiny_transformer(positions="rotary"))
    monkeypatch.setitem(POSITIONS, "rotary", Mirrored)
    with pytest.raises(DragomanError, match="ONNX does not support models with positions = 'rotary'"):
        check_model(config)


# The check itself


class Changed:
    """A copy that does one thing differently."""

    patience = None

    def __init__(self, engine: OnnxEngine, **changes):
        self.engine, self.changes = engine, changes

    def search(self, sources: list[Ids], config: SearchConfig):
        found = self.engine.search(sources, config)
        if config.beam == self.changes.get("beam"):
            found[3] = [dataclasses.replace(found[3][0], tokens=[*found[3][0].tokens, 7])]
        return found

    def log_p(self, sources: list[Ids], targets: list[Ids]) -> list[list[float]]:
        found = self.engine.log_p(sources, targets)
        found[5][-1] += self.changes.get("gap", 0)
        return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gap": 2 * TOLERANCE}, "log-probabilities differ by 0.002 nats"),
        ({"gap": float("nan")}, "log-probabilities differ by nan"),
        ({"beam": 1}, "greedy search finds other words"),
        ({"beam": 4}, "search with 4 beams finds other words"),
    ],
)
def test_copy_that_differs_is_refused(change: dict, message: str, tmp_path: Path):
    model = make(MODELS["preset tiny"])
    engine = OnnxEngine(opened(model, tmp_path), None)
    sources = made_up(WORDS, 6)
    verify(model, Changed(engine, gap=TOLERANCE / 2), sources)
    with pytest.raises(Mismatch, match=message):
        verify(model, Changed(engine, **change), sources)


def test_other_words_are_counted_where_the_model_itself_hesitates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = make(MODELS["preset tiny"])
    copy = Changed(OnnxEngine(opened(model, tmp_path), None), beam=4)
    sources = made_up(WORDS, 6)
    choices = [verification.narrowest_choice(model, source, verification.BEAM_4) for source in sources]
    assert all(choice > 0 for choice in choices)
    assert len(set(choices)) == len(choices)
    monkeypatch.setattr(verification, "narrowest_choice", lambda *_: TOLERANCE / 2)
    agreement = verify(model, copy, sources)
    assert agreement.others == {"greedy search": 0, "search with 4 beams": 1}
    assert "5 of 6 sources; for 1, the model itself finds two continuations within 0.001 nats" in str(agreement)


def test_narrowest_choice_is_that_of_the_model():
    """Two words that are equally likely everywhere: whichever a search keeps, it could have kept the other."""
    model = make(tiny_transformer(output_bias=True, share="none"))
    greedy, beams = verification.GREEDY, verification.BEAM_4
    assert verification.narrowest_choice(model, [5, 6], greedy) > 1e-3
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.arange(WORDS) / 10)
        model.output.bias[7], model.output.bias[8] = 50.0, 49.75
    assert verification.narrowest_choice(model, [5, 6], greedy) == pytest.approx(0.25, abs=1e-4)
    with torch.no_grad():
        model.output.bias[8] = 50.0
    assert verification.narrowest_choice(model, [5, 6], greedy) == pytest.approx(0, abs=1e-4)
    assert verification.narrowest_choice(model, [5, 6], beams) == pytest.approx(0, abs=1e-4)


def test_outputs_as_long_as_learned_positions_allow_are_compared(tmp_path: Path):
    model = make(tiny_transformer(positions="learned", max_length=12))
    engine = OnnxEngine(opened(model, tmp_path), 12)
    sources = made_up(WORDS, 6, 12)
    ours = TorchEngine(model).search(sources, verification.GREEDY)
    assert max(len(found.tokens) for (found,) in ours) == 12  # cut off
    assert verify(model, engine, sources, (dealt(WORDS, 12), dealt(WORDS, 12, 1))).gap < 1e-4


def test_dealt_texts_have_every_word_once():
    for longest in (None, 10):
        texts = dealt(500, longest)
        assert sorted(id for text in texts for id in text) == list(range(EOS + 1, 500))
        assert max(map(len, texts)) <= (longest or 65) - 1
    assert dealt(500) != dealt(500, seed=1)
    assert np.mean([len(text) for text in made_up(500, 300)]) == pytest.approx(8.5, abs=1)
