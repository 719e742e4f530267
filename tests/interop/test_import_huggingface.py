"""Models of Hugging Face, imported, compute what `transformers` computes with them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from foreign import m2m100_folder, marian_folder, padded
from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.decoding.engine import Constraints
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.interop.checker import Checker
from dragoman.interop.huggingface import read_hugging_face
from dragoman.interop.sources import Foreign
from dragoman.interop.weights import Original, build_model, columns_in_pairs
from dragoman.model.transformer import Transformer

MARIAN: dict[str, dict[str, Any]] = {
    "one layer, relu": {"encoder_layers": 1, "decoder_layers": 1, "activation_function": "relu"},
    "gelu": {"activation_function": "gelu"},
    "six layers, swish": {"encoder_layers": 6, "decoder_layers": 6},
    "layers unlike": {"encoder_layers": 3, "decoder_layers": 1, "activation_function": "silu"},
    "not scaled": {"scale_embedding": False},
    "separate vocabularies": {"separate": True},
    "separate, not scaled, relu": {"separate": True, "scale_embedding": False, "activation_function": "relu"},
    "separate, own head": {"separate": True, "head": "own"},
    "own head": {"head": "own"},
    "a head that differs": {"head": "unequal"},
    "end not 0": {"end": 17},
    "a start of its own": {"own_start": True},
    "16 bits": {"dtype": torch.float16},
    "shards": {"shard": "20KB"},
    "a pickle": {"pickled": "new"},
    "an old pickle": {"pickled": "old"},
    "odd sizes": {"d_model": 21, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
    "tags": {"tags": [">>deu<<", ">>spa<<"]},
}
M2M100: dict[str, dict[str, Any]] = {
    "12 + 3 layers": {"encoder_layers": 12, "decoder_layers": 3},
    "NLLB": {"nllb": True},
    "gelu": {"activation_function": "gelu"},
    "not scaled": {"scale_embedding": False, "nllb": True},
    "own head": {"head": "own"},
    "16 bits in shards": {"dtype": torch.float16, "shard": "20KB"},
}
COUNT, SEARCHED, LIMIT = 6, 4, 8  # sources, those that are also translated, and how much longer outputs may be


def slow_but(fast: str, names: Iterable[str]) -> list[Any]:
    """Parameters: those names, each marked slow that is not among the fast ones, which together have every branch."""
    return [pytest.param(name, marks=() if name in fast.split(" | ") else pytest.mark.slow) for name in names]


def opened(folder: Path, tmp_path: Path, marian: bool = False) -> Foreign:
    checker = Checker(folder)
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return read_hugging_face(folder, checker, marian, scratch)


class Pair:
    """A model of `transformers` and what `import` makes of its folder, with the ids of both."""

    def __init__(self, theirs: Any, foreign: Foreign, ours: Transformer | None = None):
        self.theirs, self.foreign = theirs, foreign
        self.ours = ours or build_model(foreign.original)
        self.source, self.target = foreign.original.source, foreign.original.target
        silent = {0, 1, *foreign.original.unsayable}
        self.said = [id for id in range(2, len(self.target)) if id not in silent]
        random = Random(0)
        self.sources = [random.choices(range(3, len(self.source)), k=random.randint(1, 9)) for _ in range(COUNT)]
        self.targets = [random.choices(self.said[1:], k=6) for _ in range(COUNT)]

    def input(self) -> dict[str, Tensor]:
        """The sources as they take them: with their end and their padding."""
        rows = [[self.source[id] for id in [*source, 2]] for source in self.sources]
        lengths = [len(row) for row in rows]
        mask = padded([[1] * length for length in lengths], 0)
        return {"input_ids": padded(rows, self.theirs.config.pad_token_id), "attention_mask": mask}

    def gap(self) -> float:
        """The largest difference of the logits of all words that can be said, with targets as they are."""
        start = self.theirs.config.decoder_start_token_id
        given = torch.tensor([[start, *(self.target[id] for id in target)] for target in self.targets])
        ids = torch.tensor([[1, *target] for target in self.targets])
        with torch.no_grad():
            theirs = self.theirs(**self.input(), decoder_input_ids=given).logits
        with torch.no_grad():
            ours = self.ours(padded([[*source, 2] for source in self.sources], 0), ids)
        assert theirs.dtype == torch.float32
        return float((ours[..., self.said] - theirs[..., [self.target[id] for id in self.said]]).abs().max())

    def check_with_a_tag(self) -> None:
        """Fail unless both compute the same, and find the same words where translations begin with a tag."""
        assert self.gap() < 1e-4
        first = min(self.foreign.target.tags.values())
        for beam in (1, 4):
            ours, theirs = self.found(beam, first)
            assert ours == theirs
            assert all(words[0] == first for words in ours)

    def found(self, beam: int, first: int | None = None) -> tuple[list[list[int]], list[list[int]]]:
        """The words that both find, by our ids. first: what they must begin with."""
        config = SearchConfig(beam=beam, length_penalty=0, extra_length=LIMIT)
        given = [Constraints(prefix=() if first is None else (first,))] * SEARCHED
        ours = [found[0].tokens for found in TorchEngine(self.ours).search(self.sources[:SEARCHED], config, given)]
        silent = [self.target[id] for id in {0, *self.foreign.original.unsayable} if self.target[id] >= 0]
        theirs = []
        batch = self.input()
        for number, source in enumerate(self.sources[:SEARCHED]):
            one = {name: value[number : number + 1, : len(source) + 1] for name, value in batch.items()}
            out = self.theirs.generate(
                **one,
                num_beams=beam,
                do_sample=False,
                length_penalty=0.0,
                max_new_tokens=len(source) + LIMIT + (first is not None),  # what is given does not count
                max_length=None,
                suppress_tokens=sorted({*silent, self.theirs.config.decoder_start_token_id} - {self.target[2]}),
                renormalize_logits=True,
                bad_words_ids=None,
                forced_eos_token_id=None,
                forced_bos_token_id=None if first is None else self.target[first],
            )
            back = {row: id for id, row in enumerate(self.target) if id != 1}
            theirs.append([back[row] for row in out[0].tolist()[1:] if back[row] not in (0, 2)])
        return ours, theirs


FAST_MARIAN = (
    "one layer, relu | layers unlike | separate, not scaled, relu | a head that differs | end not 0 | "
    "a start of its own | a pickle | odd sizes | tags"
)
FAST_M2M100 = "NLLB | gelu | own head | 16 bits in shards"


@pytest.mark.parametrize("name", slow_but(FAST_MARIAN, MARIAN))
def test_marianmt_computes_and_finds_the_same(name: str, tmp_path: Path):
    pair = Pair(marian_folder(tmp_path / "their", **MARIAN[name]), opened(tmp_path / "their", tmp_path))
    assert pair.gap() < 1e-5
    lengths = set()
    for beam in (1, 4):
        ours, theirs = pair.found(beam)
        assert ours == theirs
        lengths |= set(map(len, ours))
    assert len(lengths) > 2


@pytest.mark.parametrize("name", slow_but(FAST_M2M100, M2M100))
def test_m2m100_computes_and_finds_the_same(name: str, tmp_path: Path):
    Pair(m2m100_folder(tmp_path / "their", **M2M100[name]), opened(tmp_path / "their", tmp_path)).check_with_a_tag()


SHARES = {
    "gelu": "all",
    "separate vocabularies": "output",
    "separate, own head": "none",
    "own head": "none",
    "a head that differs": "embeddings",
    "a pickle": "all",
    "an old pickle": "all",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(" | ".join({*SHARES} - {"a pickle"}), SHARES))
def test_matrices_are_one_where_their_numbers_are(name: str, tmp_path: Path):
    marian_folder(tmp_path / "their", **MARIAN[name])
    model = build_model(opened(tmp_path / "their", tmp_path).original)
    assert model.config.share == SHARES[name]


# Controls: each of these is seen.


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("control")
    return Pair(marian_folder(folder / "their"), opened(folder / "their", folder))


@pytest.fixture(scope="module")
def control_m2m100(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("control")
    return Pair(m2m100_folder(folder / "their"), opened(folder / "their", folder))


def changed(pair: Pair, **changes: Any) -> Original:
    return replace(pair.foreign.original, config=replace(pair.foreign.original.config, **changes))


def test_other_positions_are_seen(control: Pair):
    halves = replace(changed(control, positions="sinusoidal-halves"), columns=None)
    unsorted = replace(control.foreign.original, columns=None)
    for wrong in (halves, unsorted):
        assert Pair(control.theirs, control.foreign, build_model(wrong)).gap() > 1e-3


def test_another_first_position_is_seen(control_m2m100: Pair):
    wrong = build_model(changed(control_m2m100, first_position=0))
    assert Pair(control_m2m100.theirs, control_m2m100.foreign, wrong).gap() > 1e-3


def test_another_epsilon_is_seen(control: Pair, control_m2m100: Pair):
    for pair, bound in ((control, 1e-5), (control_m2m100, 1e-4)):
        assert Pair(pair.theirs, pair.foreign, build_model(changed(pair, norm_epsilon=1e-3))).gap() > bound


def test_norm_that_is_not_sorted_is_seen(control: Pair):
    wrong = build_model(control.foreign.original)
    norm = wrong.encoder[1].around_attention.norm
    with torch.no_grad():
        norm.weight.copy_(norm.weight[columns_in_pairs(24).argsort()].clone())
    assert Pair(control.theirs, control.foreign, wrong).gap() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_weights_that_differ_are_all_seen(control: Pair, seed: int):
    wrong = build_model(control.foreign.original)
    names = [name for name, _ in wrong.named_parameters() if "key.bias" not in name]  # which softmax takes away again
    for name in Random(seed).sample(names, 12):
        parameter = wrong.get_parameter(name)
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.flatten()[-5:] += 1
        assert Pair(control.theirs, control.foreign, wrong).gap() > 1e-5, name
        with torch.no_grad():
            parameter.copy_(before)


def test_positions_of_marian_instead(tmp_path: Path):
    """As if Marian itself had written the folder: halves with other wavelengths, and nothing else is another."""
    theirs = marian_folder(tmp_path / "their")
    foreign = opened(tmp_path / "their", tmp_path, marian=True)
    assert foreign.original.config.positions == "sinusoidal-halves"
    pair = Pair(theirs, foreign)
    assert pair.gap() > 1e-3
    table = pair.ours.encoder_positions.formula(64, 24)
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight = torch.nn.Parameter(table.float(), requires_grad=False)
    assert pair.gap() < 1e-5
