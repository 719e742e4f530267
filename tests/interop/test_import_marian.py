"""Models of Marian, imported, compute what Marian computes: a small computation of our own, and one that it trained."""

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from foreign import npz_folder, padded

from dragoman.interop.checker import Checker
from dragoman.interop.marian import read_marian
from dragoman.interop.sources import Foreign
from dragoman.interop.weights import build_model

Arrays = dict[str, np.ndarray]

MODELS: dict[str, dict[str, Any]] = {
    "a SentencePiece model as vocabulary": {},
    "a list": {"spm": False},
    "two lists": {"spm": False, "joint": False, "tied": "target"},
    "two SentencePiece models, nothing tied": {"joint": False, "tied": "none", "transformer_ffn_activation": "relu"},
    "pre-norm": {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"},
    "learned positions": {"learned": True},
    "positions that are said to be learned": {"transformer_train_position_embeddings": True},
    "layers unlike": {"enc_depth": 3, "dec_depth": 1},
}


def opened(folder: Path) -> Foreign:
    return read_marian(folder, Checker(folder))


# Marian's computation for one sentence, written from transformer.h with nothing but NumPy.


def norm(x: np.ndarray, arrays: Arrays, name: str, suffix: str = "") -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * arrays[f"{name}_ln_scale{suffix}"] + arrays[f"{name}_ln_bias{suffix}"]


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def marian_logits(arrays: Arrays, settings: dict[str, Any], source: list[int], target: list[int]) -> np.ndarray:
    """Return the logits (T + 1, V) after nothing and after each word of the target, for the ids of Marian."""
    arrays = {name: value.astype(np.float64) for name, value in arrays.items()}
    size, heads = settings.get("dim_emb", 24), settings.get("transformer_heads", 4)
    first = settings.get("transformer_preprocess") == "n"
    swish = settings.get("transformer_ffn_activation", "swish") == "swish"

    def positions(x: np.ndarray) -> np.ndarray:
        if "Wpos" in arrays:
            return x + arrays["Wpos"][: len(x)]
        half = size // 2
        angles = np.arange(len(x))[:, None] * np.exp(-np.arange(half) * math.log(10000) / (half - 1))
        return x * math.sqrt(size) + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def attend(name: str, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
        def project(letter: str, of: np.ndarray) -> np.ndarray:
            flat = of @ arrays[f"{name}_W{letter}"] + arrays[f"{name}_b{letter}"]
            return flat.reshape(len(of), heads, -1).transpose(1, 0, 2)

        query, key, value = project("q", x), project("k", memory), project("v", memory)
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(size // heads)
        if causal:
            scores += np.triu(np.full((len(x), len(x)), -np.inf), 1)
        mixed = (softmax(scores) @ value).transpose(1, 0, 2).reshape(len(x), size)
        return mixed @ arrays[f"{name}_Wo"] + arrays[f"{name}_bo"]

    def feed_forward(name: str, x: np.ndarray) -> np.ndarray:
        hidden = x @ arrays[f"{name}_W1"] + arrays[f"{name}_b1"]
        hidden = hidden / (1 + np.exp(-hidden)) if swish else hidden.clip(0)
        return hidden @ arrays[f"{name}_W2"] + arrays[f"{name}_b2"]

    def around(x: np.ndarray, name: str, sublayer: Any) -> np.ndarray:
        return x + sublayer(norm(x, arrays, name, "_pre")) if first else norm(x + sublayer(x), arrays, name)

    def stack(side: str, x: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
        depth = settings.get("enc_depth" if side == "encoder" else "dec_depth", 2)
        for layer in range(1, depth + 1):
            name = f"{side}_l{layer}"
            x = around(x, f"{name}_self_Wo", lambda y, name=name: attend(f"{name}_self", y, y, side == "decoder"))
            if memory is not None:
                x = around(x, f"{name}_context_Wo", lambda y, name=name: attend(f"{name}_context", y, memory, False))
            x = around(x, f"{name}_ffn_ffn", lambda y, name=name: feed_forward(f"{name}_ffn", y))
        return norm(x, arrays, f"{side}_top") if first else x

    memory = stack("encoder", positions(arrays.get("encoder_Wemb", arrays.get("Wemb"))[source]), None)
    words = arrays.get("decoder_Wemb", arrays.get("Wemb"))
    started = np.concatenate([np.zeros((1, size)), words[target]])
    output = arrays.get("decoder_ff_logit_out_W", words.T)
    return stack("decoder", positions(started), memory) @ output + arrays["decoder_ff_logit_out_b"]


def gap_of(foreign: Foreign, arrays: Arrays, settings: dict[str, Any], model: Any = None) -> float:
    """The largest difference of the logits of all words that can be said, for a few sentences."""
    original, random = foreign.original, Random(0)
    model = model or build_model(original)
    said = [id for id in range(2, len(original.target)) if id not in original.unsayable]
    largest = 0.0
    for _ in range(4):
        source = [*random.choices(range(3, len(original.source)), k=random.randint(1, 30)), 2]
        target = random.choices(said[1:], k=random.randint(0, 30))
        theirs = marian_logits(
            arrays, settings, [original.source[id] for id in source], [original.target[id] for id in target]
        )
        with torch.no_grad():
            ours = model(padded([source], 0), padded([[1, *target]], 0))[0].double().numpy()
        largest = max(largest, np.abs(ours[:, said] - theirs[:, [original.target[id] for id in said]]).max())
    return largest


@pytest.mark.parametrize("name", MODELS)
def test_npz_computes_the_same(name: str, tmp_path: Path):
    arrays = npz_folder(tmp_path, **MODELS[name])
    foreign = opened(tmp_path)
    settings = {key: value for key, value in MODELS[name].items() if key not in ("spm", "joint", "tied", "learned")}
    assert gap_of(foreign, arrays, settings) < 1e-5
    # Controls: positions of Hugging Face would be others, and so would the epsilon of everyone else.
    model = build_model(foreign.original)
    if model.config.positions == "sinusoidal-halves":
        model.encoder_positions.formula = model.decoder_positions.formula = lambda length, size: torch.zeros(
            length, size
        )
        assert gap_of(foreign, arrays, settings, model) > 1e-3
    model = build_model(foreign.original)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-3
    assert gap_of(foreign, arrays, settings, model) > 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_matrices_that_marian_ties_are_one(name: str, tmp_path: Path):
    npz_folder(tmp_path, **MODELS[name])
    tied = {"all": "all", "target": "output", "none": "none"}[MODELS[name].get("tied", "all")]
    assert build_model(opened(tmp_path).original).config.share == tied


def test_guided_alignment_names_its_layer(tmp_path: Path):
    npz_folder(tmp_path / "one", transformer_guided_alignment_layer=1)
    assert opened(tmp_path / "one").aligned == (0, 0)
    npz_folder(tmp_path / "other")
    assert opened(tmp_path / "other").aligned is None
