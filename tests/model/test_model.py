"""What every model promises to training and search: steps, batches, padding and selection change no result.

N real tokens of a batch.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import LITTLE, PAD, REAL, SOURCE, TARGET, WORDS, gap, step_by_step
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, ModelConfig, RecurrentConfig
from dragoman.errors import UsageError
from dragoman.model import Model, build
from dragoman.model.positions import POSITIONS, Positions

PRE_NORM, ADDITIVE = {"norm_first": True}, {"attention": AttentionConfig(heads=2, score="additive")}
TRANSFORMERS: dict[str, ModelConfig] = {
    **{positions: replace(LITTLE, positions=positions) for positions in POSITIONS},
    **{f"{name}-pre-additive": replace(LITTLE, positions=name, **PRE_NORM, **ADDITIVE) for name in POSITIONS},
    "pre-norm": replace(LITTLE, **PRE_NORM),
    "additive": replace(LITTLE, **ADDITIVE),
    "free sizes": replace(LITTLE, attention=AttentionConfig(heads=3, d_k=2, d_v=5, bias=True)),
    "output bias": replace(LITTLE, output_bias=True),
    "unshared": replace(LITTLE, share="none"),
}
# Each cell and each attention in both directions and in one.
RECURRENT: dict[str, ModelConfig] = {
    f"{cell}-{attention}": RecurrentConfig(
        cell, d_model=8, layers=2, dropout=0, attention=attention, bidirectional=(i + j) % 2 == 0
    )
    for i, cell in enumerate(("rnn", "lstm", "gru"))
    for j, attention in enumerate(("none", "dot", "additive"))
}
CONFIGS = TRANSFORMERS | RECURRENT
# In the fast tests each scheme of positions, and each cell and each attention, is in one model at least.
SLOW = {
    *(f"{name}-pre-additive" for name in POSITIONS if name not in ("sinusoidal", "relative")),
    *("rnn-dot", "rnn-additive", "lstm-none", "gru-none"),
}
KINDS: dict[str, ModelConfig] = {name: CONFIGS[name] for name in ("sinusoidal", "gru-dot")}
SHARE = pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])

pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def make(config: ModelConfig, words: int = WORDS, target_words: int | None = None) -> Model:
    """Nothing of it is zero that could hide a mistake."""
    model = build(config, words, target_words, pad=PAD).eval()
    for module in model.modules():
        if isinstance(module, Positions):
            for parameter in module.parameters():
                nn.init.normal_(parameter)
    if model.output.bias is not None:
        nn.init.normal_(model.output.bias)
    return model


def params(configs: dict[str, ModelConfig]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in configs]


@pytest.fixture(params=params(CONFIGS))
def model(request: pytest.FixtureRequest, seeded_double_precision: None) -> Model:
    return make(CONFIGS[request.param])


@pytest.fixture(params=params(TRANSFORMERS))
def transformer(request: pytest.FixtureRequest, seeded_double_precision: None) -> Model:
    return make(TRANSFORMERS[request.param])


def gradients(model: Model, logits: Tensor, toward: Tensor) -> Tensor:
    found = torch.autograd.grad(logits, tuple(model.parameters()), toward, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


# One step after another.


def test_steps_equal_one_pass(model: Model):
    in_one_pass = model(SOURCE, TARGET)
    assert gap(step_by_step(model, SOURCE, TARGET, [1, 1, 1, 1]), in_one_pass) <= 1e-12
    forgetful = torch.cat([model.step(tokens, model.start(SOURCE)) for tokens in TARGET.split(1, 1)], 1)
    assert gap(forgetful, in_one_pass) > 1e-3


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(CONFIGS)),
    st.integers(1, 4),
    st.integers(1, 16),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_steps_of_any_size_equal_one_pass_for_any_batch_and_lengths(name, batch, length, sizes):
    model = make(CONFIGS[name])
    source, target = (torch.randint(1, WORDS, (batch, size)) for size in (length, sum(sizes)))
    in_one_pass = model(source, target)
    assert in_one_pass.shape == (batch, sum(sizes), WORDS)
    assert gap(step_by_step(model, source, target, sizes), in_one_pass) <= 1e-12


def test_future_changes_no_bit(model: Model):
    other = TARGET.clone()
    other[:, 2:] = 6
    ours, theirs = model(SOURCE, TARGET), model(SOURCE, other)
    assert torch.equal(ours[:, :2], theirs[:, :2])
    assert not torch.equal(ours[:, 2:], theirs[:, 2:])


@pytest.mark.parametrize("taken", [0, 2])
def test_selected_hypotheses_go_on_as_themselves(model: Model, taken: int):
    rows = torch.tensor([2, 0, 0, 2])
    state, untouched = model.start(SOURCE), model.start(SOURCE)
    for kept in (state, untouched):
        if taken:
            model.step(TARGET[:, :taken], kept)
    state.select(rows)
    chosen = model.step(TARGET[rows, taken:], state)
    assert gap(chosen, model(SOURCE[rows], TARGET[rows])[:, taken:]) <= 1e-12
    as_they_were = model.step(TARGET[:, taken:], untouched)
    assert gap(chosen, as_they_were[[0, 1, 2, 2]]) > 1e-3


# A batch, and the padding in it.


def test_packed_logits_and_gradients_equal_padded_ones(model: Model):
    toward, packed, padded = torch.randn(3, 4, WORDS), model(SOURCE, TARGET, REAL), model(SOURCE, TARGET)
    assert gap(packed, padded[REAL]) <= 1e-12
    assert gap(packed, padded[REAL.roll(1, 0)]) > 1e-3
    gradient = gradients(model, packed, toward[REAL])
    assert gap(gradient, gradients(model, model(SOURCE, TARGET)[REAL], toward[REAL])) <= 1e-12
    with_padding_in_the_loss = gradients(model, padded, toward)
    assert gap(gradient, with_padding_in_the_loss) > 1e-3


def test_vectors_before_the_output_matrix_are_those_of_the_logits(model: Model):
    vectors = model.vectors(TARGET, model.start(SOURCE), REAL)
    assert vectors.shape == (8, 8)
    assert torch.equal(model.output(vectors), model(SOURCE, TARGET, REAL))
    assert gap(model.output(vectors.flip(0)), model(SOURCE, TARGET, REAL)) > 1e-3


def test_sentence_in_a_batch_is_as_if_alone(model: Model):
    together = model(SOURCE, TARGET, REAL).split([3, 4, 1])
    for source, target, logits in zip(SOURCE, TARGET, together, strict=True):
        alone = source[None, source != PAD], target[None, target != PAD]
        assert gap(logits, model(*alone)[0]) <= 1e-12
        assert gap(logits, model(alone[0][:, 1:], alone[1])[0]) > 1e-3


def test_longer_padding_changes_nothing(model: Model):
    longer, target, real = (nn.functional.pad(ids, (0, 6)) for ids in (SOURCE, TARGET, REAL))
    assert gap(model(longer, target, real), model(SOURCE, TARGET, REAL)) <= 1e-12
    more_words = longer.where(longer != PAD, 9)
    assert gap(model(more_words, TARGET, REAL), model(SOURCE, TARGET, REAL)) > 1e-3


def test_target_padding_changes_no_bit_whatever_it_holds(model: Model):
    other, wrong = TARGET.clone(), TARGET.clone()
    other[~REAL] = 9
    wrong[:, 0] = 9
    assert torch.equal(model(SOURCE, other, REAL), model(SOURCE, TARGET, REAL))
    assert torch.equal(model(SOURCE, other)[REAL], model(SOURCE, TARGET)[REAL])
    assert not torch.equal(model(SOURCE, wrong, REAL), model(SOURCE, TARGET, REAL))


def test_vector_of_padding_changes_no_bit_and_does_not_learn(model: Model):
    model.output.weight = nn.Parameter(model.output.weight.clone())
    before = model(SOURCE, TARGET, REAL)
    before.square().sum().backward()
    assert (model.source_embedding.weight.grad[PAD] == 0).all()
    assert (model.source_embedding.weight.grad[3] != 0).any()
    with torch.no_grad():
        model.source_embedding.weight[PAD] = 100
        model.target_embedding.weight[PAD] = -100
    assert torch.equal(model(SOURCE, TARGET, REAL), before)
    with torch.no_grad():
        model.source_embedding.weight[3] += 1
    assert not torch.equal(model(SOURCE, TARGET, REAL), before)


def test_sources_of_nothing_and_padding_on_the_left_give_numbers(model: Model):
    logits = model(torch.tensor([[0, 0, 0, 0], [0, 0, 3, 2], [4, 5, 3, 2]]), TARGET, REAL)
    assert logits.isfinite().all()
    assert gradients(model, logits, torch.ones_like(logits)).isfinite().all()


def test_padding_on_the_left_of_the_target_is_not_attended_to(transformer: Model):
    target, other, real = torch.tensor([[0, 0, 1, 8]]), torch.tensor([[5, 6, 1, 8]]), torch.arange(4)[None] >= 2
    assert torch.equal(transformer(SOURCE[:1], target, real), transformer(SOURCE[:1], other, real))
    assert gap(transformer(SOURCE[:1], target)[real], transformer(SOURCE[:1], other)[real]) > 1e-3


def test_sentence_that_sees_the_padding_is_not_as_if_alone():
    model = make(LITTLE)
    alone = model(SOURCE[1:2, :3], TARGET[1:2, :1])[0]
    model.pad = 10
    assert gap(model(SOURCE, TARGET)[1, :1], alone) > 1e-3


def test_target_is_packed_only_as_a_whole():
    model = make(LITTLE)
    state = model.start(SOURCE)
    assert model.step(TARGET, state, REAL).shape == (8, WORDS)
    with pytest.raises(ValueError, match=r"whole target.*4 tokens"):
        model.step(TARGET, state, REAL)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_tell_where_a_sentence_begins_only_if_embedded(positions: str):
    model, source, target = make(TRANSFORMERS[positions]), SOURCE[:1], TARGET[1:2]
    later = [nn.functional.pad(ids, (3, 0), value=PAD) for ids in (source, target)]
    moved = gap(model(*later, later[1] != PAD), model(source, target)[0])
    embedded = POSITIONS[positions].embed is not Positions.embed
    assert moved > 1e-3 if embedded else moved <= 1e-12


# Parameters.


def test_parameters_all_learn_and_nothing_is_dropped_without_dropout(model: Model):
    logits = model.train()(SOURCE, TARGET, REAL)
    assert torch.equal(logits, model.eval()(SOURCE, TARGET, REAL))
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).any() or name.endswith("key.bias")  # a constant in all scores of a query


@SHARE
@pytest.mark.parametrize("kind", KINDS)
def test_shared_matrices_are_one_storage(kind: str, share: str):
    def size(model: Model) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    model, shared = make(replace(KINDS[kind], share=share)), make(replace(KINDS[kind], share="all"))
    weights = model.source_embedding.weight, model.target_embedding.weight, model.output.weight
    source, target, output = (weight.data_ptr() for weight in weights)
    assert (source == target) == (share in ("all", "embeddings"))
    assert (target == output) == (share in ("all", "output"))
    assert size(model) == size(shared) + (len({source, target, output}) - 1) * WORDS * 8


@SHARE
@pytest.mark.parametrize("kind", KINDS)
def test_separate_vocabularies_need_separate_matrices(kind: str, share: str):
    config = replace(KINDS[kind], share=share)
    assert make(config, 11, 11)(SOURCE, TARGET).shape == (3, 4, 11)
    if share in ("all", "embeddings"):
        with pytest.raises(UsageError, match=rf"share = '{share}'.*11 source and 14 target"):
            make(config, 11, 14)
    else:
        assert make(config, 11, 14)(SOURCE, TARGET).shape == (3, 4, 14)
        assert make(config, 11, 14)(SOURCE, torch.full((3, 1), 13)).isfinite().all()


@SHARE
@pytest.mark.parametrize("kind", KINDS)
def test_call_with_other_parameters_leaves_the_model_as_it_was(kind: str, share: str):
    model = make(replace(KINDS[kind], share=share))
    before = model(SOURCE, TARGET)
    others = {name: torch.randn_like(parameter) for name, parameter in model.named_parameters()}
    assert gap(torch.func.functional_call(model, others, (SOURCE, TARGET)), before) > 1e-3
    assert torch.equal(model(SOURCE, TARGET), before)


@pytest.mark.parametrize(
    "config",
    [
        replace(LITTLE, dropout=0.5),
        replace(LITTLE, feed_forward=FeedForwardConfig(d_ff=12, dropout=0.5)),
        replace(LITTLE, attention=AttentionConfig(heads=2, dropout=0.5)),
        *(replace(RECURRENT[f"{cell}-dot"], dropout=0.5) for cell in ("rnn", "lstm", "gru")),
    ],
    ids=["residual", "hidden layer", "attention weights", "rnn", "lstm", "gru"],
)
def test_dropout_acts_in_training_only(config: ModelConfig):
    model = make(config)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    assert gap(model(SOURCE, TARGET), model(SOURCE, TARGET)) > 1e-3


# Types and devices.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite(transformer: Model, dtype: torch.dtype):
    model = transformer.to(dtype)
    logits = model(SOURCE, TARGET, REAL)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    logits.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_half_precision_is_near_full_precision():
    model = make(LITTLE).float()
    full = model(SOURCE, TARGET)
    assert gap(model.bfloat16()(SOURCE, TARGET).float(), full) < 0.1 * gap(full, torch.zeros_like(full))


def test_model_insists_on_no_device(transformer: Model):
    before = transformer(SOURCE, TARGET, REAL)
    with torch.device("meta"):
        assert torch.equal(transformer(SOURCE, TARGET, REAL), before)
        with pytest.raises(RuntimeError, match="meta"):
            transformer(SOURCE, TARGET) + torch.zeros(WORDS)
