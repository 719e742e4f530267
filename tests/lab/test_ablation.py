"""A Transformer with one change: the change is there, and nothing else is changed."""

import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import LITTLE, PAD, SOURCE, TARGET, WORDS, gap, step_by_step

from dragoman.config import AttentionConfig, TransformerConfig, as_dict, model_config
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import UsageError
from dragoman.inference.incremental import can_step
from dragoman.interop.ctranslate2 import conversion as ctranslate2
from dragoman.interop.onnx import conversion as onnx
from dragoman.interop.transformers import conversion as transformers
from dragoman.model import build, parameter_count
from dragoman.model.packing import Packing
from dragoman.model.transformer import Transformer
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman_lab.ablation import Ablation, AblationConfig, LayerPool
from dragoman_lab.layers import layer_outputs

pytestmark = pytest.mark.usefixtures("seeded_double_precision")

CHANGES = ("query-key", "query-key-value", "layer-pool", "embedding-norm")
all_changes = pytest.mark.parametrize("change", CHANGES)
SIZE = 8 * 8  # of a projection of LITTLE


def changed_config(change: str, base: TransformerConfig = LITTLE) -> AblationConfig:
    return AblationConfig(**vars(base), change=change)  # type: ignore[arg-type]


def changed(change: str) -> Ablation:
    model = build(changed_config(change), WORDS, pad=PAD)
    assert isinstance(model, Ablation)
    return model.eval()


def unchanged(model: Ablation) -> Transformer:
    """Return a Transformer with the weights of the model that it has a place for."""
    plain = Transformer(LITTLE, WORDS, pad=PAD).eval()
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    return plain


@pytest.mark.parametrize(
    ("change", "more"),
    [("query-key", -6 * SIZE), ("query-key-value", -12 * SIZE), ("layer-pool", 2), ("embedding-norm", 16)],
)
def test_ablation_adds_these_parameters_and_leaves_the_others_alike(change: str, more: int):
    torch.manual_seed(7)
    plain = Transformer(LITTLE, WORDS, pad=PAD)
    torch.manual_seed(7)
    model = build(changed_config(change), WORDS, pad=PAD)
    assert parameter_count(model) == parameter_count(plain) + more
    own = dict(model.named_parameters())
    for name, value in plain.named_parameters():
        assert name not in own or torch.equal(own[name], value)


@pytest.mark.parametrize("change", ["query-key", "query-key-value"])
def test_shared_projections_are_equal_ones_that_learn_together(change: str):
    """The control: in the Transformer with the same values, queries and keys get gradients of their own."""
    model = changed(change)
    plain = unchanged(model)
    assert gap(model(SOURCE, TARGET), plain(SOURCE, TARGET)) <= 1e-12
    for one in (model, plain):
        one(SOURCE, TARGET).square().sum().backward()
    own, (ours, theirs) = model.encoder[0].attention, (plain.encoder[0].attention, model.encoder[0].attention)
    names = ["query", "key", "value"][: 2 + (change == "query-key-value")]
    assert all(getattr(own, name) is own.query for name in names)
    assert gap(theirs.query.weight.grad, sum(getattr(ours, name).weight.grad for name in names)) <= 1e-12
    assert gap(ours.query.weight.grad, ours.key.weight.grad) > 1e-3


def test_pool_gives_the_decoder_the_weighted_mean_of_all_layers():
    model = changed("layer-pool")
    packing = Packing(SOURCE != PAD)
    with layer_outputs(model) as outputs:
        memory = model.start(SOURCE).memory
    assert gap(model.encoder_norm(packing.pack(outputs.encoder.mean(0))), memory) <= 1e-12
    plain = Transformer(LITTLE, WORDS, pad=PAD).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name != "pool.weights"})
    assert gap(model(SOURCE, TARGET), plain(SOURCE, TARGET)) > 1e-3  # the control
    with torch.no_grad():
        model.pool.weights.copy_(torch.tensor([-1e9, 0.0]))  # type: ignore[union-attr]
    assert gap(model(SOURCE, TARGET), plain(SOURCE, TARGET)) <= 1e-12


def test_pool_is_a_mean_of_the_layers_with_weights_that_learn():
    outputs, pool = torch.randn(4, 2, 5, 8), LayerPool(4)
    assert gap(pool(outputs), outputs.mean(0)) <= 1e-12
    pool(outputs).square().sum().backward()
    assert (pool.weights.grad != 0).all()
    with torch.no_grad():
        pool.weights.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]).log() + 1)
    assert gap(pool(outputs), torch.einsum("l,l...", torch.tensor([0.1, 0.2, 0.3, 0.4]), outputs)) <= 1e-12


def test_normalised_embeddings_have_no_size_of_their_own():
    """Without positions, larger embeddings are the same ones after the norm. The control: not without it."""
    config = replace(LITTLE, positions="none", share="none")
    for model, alike in (
        (build(changed_config("embedding-norm", config), WORDS, pad=PAD).eval(), True),
        (Transformer(config, WORDS, pad=PAD).eval(), False),
    ):
        before = model(SOURCE, TARGET)
        with torch.no_grad():
            model.source_embedding.weight.mul_(3)
            model.target_embedding.weight.mul_(3)
        assert (gap(model(SOURCE, TARGET), before) < 1e-4) is alike  # but for the epsilon


@all_changes
def test_ablation_steps_equal_the_whole_and_engines_decline_it(change: str):
    model = changed(change)
    assert gap(step_by_step(model, SOURCE, TARGET, [1, 3]), model(SOURCE, TARGET)) <= 1e-12
    assert not can_step(model)
    assert can_step(unchanged(changed("query-key")))  # the control


@all_changes
def test_saved_ablation_is_the_same(change: str, tokenizer: Tokenizer, tmp_path: Path):
    torch.set_default_dtype(torch.float32)
    model = build(changed_config(change), len(tokenizer))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    with new_folder(tmp_path / "model") as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "a card")
    loaded = read_model(tmp_path / "model")[0]
    assert loaded.config == model.config
    assert torch.equal(loaded.eval()(SOURCE, TARGET), model.eval()(SOURCE, TARGET))


@pytest.mark.slow
def test_saved_ablation_opens_where_the_lab_is_not_imported(tokenizer: Tokenizer, tmp_path: Path):
    """The entry point in pyproject.toml leads to it. The control: without the entry point the folder is refused."""
    model = build(changed_config("layer-pool"), len(tokenizer)).float()
    with new_folder(tmp_path / "model") as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "a card")
    project = Path(__file__).parents[2]
    ((group, modules),) = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"][
        "entry-points"
    ].items()
    installed = tmp_path / "dragoman-0.dist-info"  # comes before the one that pip has written
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: dragoman\nVersion: 0\n")
    code = "import sys; from pathlib import Path; from dragoman.model_folder import read_model\n"
    code += "assert 'dragoman_lab' not in sys.modules\n"
    code += "print(read_model(Path('model'))[0].config.change, end='')"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{project / 'src'}"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    for lines in ([f"[{group}]", *(f"{name} = {module}" for name, module in modules.items())], []):
        (installed / "entry_points.txt").write_text("\n".join(lines))
        ran = subprocess.run([sys.executable, "-c", code], **options)  # type: ignore[call-overload]
        assert (ran.stdout == "layer-pool", "unknown kind 'ablation'" in ran.stderr) == (bool(lines), not lines), ran


@all_changes
@pytest.mark.parametrize("form", [ctranslate2, onnx, transformers], ids=lambda form: form.__name__.split(".")[-2])
def test_ablation_is_unknown_to_other_programs(change: str, form):
    assert f"the change '{change}'" in form.unknown_settings(changed_config(change))


def test_ablation_settings_are_read_as_written_and_wrong_ones_refused():
    config = changed_config("layer-pool")
    assert as_dict(config)["kind"] == "ablation"
    assert model_config(as_dict(config), "config.json") == config
    assert str(config).endswith("changed: layer-pool")
    with pytest.raises(UsageError, match="cannot have one matrix"):
        changed_config("query-key-value", replace(LITTLE, attention=AttentionConfig(heads=2, d_k=4, d_v=2)))
    with pytest.raises(UsageError, match="nothing to mix"):
        changed_config("layer-pool", replace(LITTLE, encoder_layers=0))
    with pytest.raises(UsageError, match="change"):
        changed_config("nothing")
