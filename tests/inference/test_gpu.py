"""A GPU computes what a CPU does. These tests need one: `make test-gpu`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import run_config, run_training, state, tiny_transformer, with_training
from torch import Tensor

from dragoman import Translator
from dragoman.config import AttentionConfig, ModelConfig, RecurrentConfig, SearchConfig, TrainingConfig
from dragoman.config.presets import SMALL
from dragoman.data.batches import Batch
from dragoman.data.tokenizer import PAD
from dragoman.decoding.engine import Constraints
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.model import Model, build
from dragoman.runtime.device import device_of
from dragoman.training.batch_size import ROOM
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner
from dragoman.training.memory import forget_peak, share_in_use
from dragoman.training.precision import configure_torch, settings_of_torch_kept

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]

WORDS, STEPS = 300, 12
CPU = torch.device("cpu")
CONFIGS: dict[str, ModelConfig] = {
    "sinusoidal": tiny_transformer(),
    "rotary-across": tiny_transformer(positions="rotary-across", norm_first=True),
    "relative": tiny_transformer(positions="relative"),
    "additive": tiny_transformer(attention=AttentionConfig(heads=2, score="additive")),
    "small": SMALL.model,
    "lstm": RecurrentConfig(d_model=16, layers=2),
}


@pytest.fixture(autouse=True)
def exact() -> None:
    """TF32, which training uses, would hide differences."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(False)


def both(config: ModelConfig) -> tuple[Model, Model]:
    """The same weights on the CPU and on the GPU, which are larger than at the start, so that words differ."""
    models = []
    for device in (CPU, device_of("cuda")):
        torch.manual_seed(1)
        model = build(replace(config, dropout=0.0), WORDS, pad=PAD).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.1)
        models.append(model.to(device))
    return models[0], models[1]


def sentences(count: int, longest: int = 30) -> list[list[int]]:
    random = np.random.default_rng(1)
    return [random.integers(3, WORDS, int(n)).tolist() for n in random.integers(1, longest, count)]


def gradient(model: Model, batch: Batch, precision: str = "float32") -> list[Tensor]:
    settings = TrainingConfig(precision=precision, clip=0.0)  # type: ignore[arg-type]
    learner = Learner(model, settings, ProcessGroup(next(model.parameters()).device))
    learner.compute_gradient([batch], batch.tokens, (1,))
    return [parameter.grad.detach().cpu().clone() for parameter in model.parameters()]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_are_those_of_a_cpu(name: str):
    ours, gpus = both(CONFIGS[name])
    batch = Batch.from_pairs(sentences(20), sentences(20)[::-1])
    with torch.no_grad():
        expected = ours(batch.source, batch.target)[batch.real]
        found = gpus(*(t.cuda() for t in (batch.source, batch.target))).cpu()[batch.real]
    scale = float(expected.abs().max())
    assert float((found - expected).abs().max()) < 2e-5 * scale
    assert float((found - expected.roll(1, 0)).abs().max()) > 0.01 * scale  # the control
    for own, its in zip(gradient(ours, batch), gradient(gpus, batch), strict=True):
        assert float((own - its).abs().max()) <= 1e-4 * float(own.abs().max()) + 1e-7


@pytest.mark.parametrize("name", ["sinusoidal", "rotary-across", "small"])
def test_gradients_in_bfloat16_are_near_those_in_float32(name: str):
    ours, gpus = both(CONFIGS[name])
    batch = Batch.from_pairs(sentences(20), sentences(20)[::-1])
    rounded = gradient(gpus, batch, "bfloat16")
    assert all(bool(part.isfinite().all()) for part in rounded)
    one, other = (torch.cat([part.flatten() for part in parts]) for parts in (gradient(ours, batch), rounded))
    assert 0 < float((one - other).norm() / one.norm()) < 0.15


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(beam=1),
        SearchConfig(beam=4, n_best=2),
        SearchConfig(beam=4, beam_groups=2, diversity_penalty=0.5),
        SearchConfig(temperature=0.8, seed=3, top_k=20),
    ],
    ids=["greedy", "beam", "groups", "sample"],
)
def test_search_finds_what_it_finds_on_a_cpu(name: str, search: SearchConfig):
    ours, gpus = both(CONFIGS[name])
    sources = sentences(40, 12)
    search = replace(search, extra_length=8)
    constraints = [Constraints(prefix=tuple(ids[:2])) if n % 3 == 0 else Constraints() for n, ids in enumerate(sources)]
    found = [
        [[hypothesis.tokens for hypothesis in own] for own in TorchEngine(model).search(sources, search, constraints)]
        for model in (ours, gpus)
    ]
    equal = sum(one == other for one, other in zip(*found, strict=True))
    assert equal >= 0.95 * len(sources)  # where two words are equally probable, the last digits decide


@pytest.mark.parametrize("search", [SearchConfig(beam=1), SearchConfig(beam=4)], ids=["greedy", "beam"])
def test_text_does_not_depend_on_those_beside_it(search: SearchConfig):
    engine, sources = TorchEngine(both(CONFIGS["small"])[1]), sentences(60, 20)
    together = [own[0].tokens for own in engine.search(sources, replace(search, extra_length=8))]
    alone = [engine.search([ids], replace(search, extra_length=8))[0][0].tokens for ids in sources]
    assert sum(one == other for one, other in zip(together, alone, strict=True)) >= 58


def test_search_in_bfloat16_finds_nearly_the_same():
    model, sources = both(CONFIGS["small"])[1], sentences(60, 20)
    search = SearchConfig(beam=1, extra_length=8)
    exact, rounded = (TorchEngine(model, compute_type=kind) for kind in ("float32", "bfloat16"))
    assert repr(rounded) == "native engine on cuda:0 in bfloat16"
    first = [[own[0].tokens[:1] for own in engine.search(sources, search)] for engine in (exact, rounded)]
    assert sum(one == other for one, other in zip(*first, strict=True)) >= 54


def test_run_stopped_and_resumed_is_the_run_uninterrupted_if_deterministic(corpus: tuple[str, str], tmp_path: Path):
    settings = {"device": "cuda", "deterministic": True, "precision": "bfloat16", "workers": 2}
    whole = run_config(corpus, tmp_path / "whole", **settings)
    run_training(whole)
    parts = run_config(corpus, tmp_path / "parts", **settings)
    for last in (3, 7, STEPS):
        run_training(with_training(parts, max_steps=last))
    assert state(tmp_path / "parts") == state(tmp_path / "whole")
    other = run_config(corpus, tmp_path / "other", **settings, seed=9)
    run_training(other)
    assert state(tmp_path / "other") != state(tmp_path / "whole")  # the control


def test_run_of_a_gpu_resumes_and_translates_without_one(corpus: tuple[str, str], tmp_path: Path):
    run = run_config(corpus, tmp_path / "run", device="cuda")
    run_training(with_training(run, max_steps=STEPS // 2))
    run_training(with_training(run, device="cpu"))
    source = Path(corpus[1]).read_text().split("\t")[0]
    texts = [Translator.load(tmp_path / "run", device=device).translate([source])[0].text for device in ("cpu", "cuda")]
    assert texts[0] == texts[1]


def test_training_multiplies_float32_as_tf32():
    with settings_of_torch_kept():
        configure_torch(TrainingConfig(threads=1), ProcessGroup(device_of("cuda")))
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


def test_memory_of_an_earlier_run_does_not_count():
    device = device_of("cuda")
    total = torch.cuda.get_device_properties(device).total_memory
    if torch.cuda.mem_get_info(device)[0] < 0.9 * total:
        pytest.skip("others use this GPU")
    torch.empty(int(0.85 * total), dtype=torch.uint8, device=device)
    assert share_in_use(device) > ROOM  # the control
    forget_peak(device)
    assert share_in_use(device) < ROOM / 2
