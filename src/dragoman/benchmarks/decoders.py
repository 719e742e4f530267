"""Marian and JoeyNMT as decoders: our model in their formats, decoding in their own interpreters (`make peers`)."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from dragoman.benchmarks import peer_decoder
from dragoman.benchmarks.programs import Task, installed, joeynmt, marian_model
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS, PAD
from dragoman.errors import DragomanError
from dragoman.model.positions import sinusoids_in_halves
from dragoman.model.transformer import Transformer

Decode = Callable[[Sequence[Ids], int], list[Ids]]  # sources of one length, beams -> outputs as long as these with ends

# What the parts of a layer of ours are called in Marian ({}: the kind of weight) and on each side of JoeyNMT.
MARIAN = {
    f"{ours}.{part}": f"{theirs}_{{}}{part[0]}"
    for ours, theirs in (("attention", "self"), ("cross_attention", "context"))
    for part in ("query", "key", "value", "out")
} | {
    "feed_forward.hidden": "ffn_{}1",
    "feed_forward.out": "ffn_{}2",
    "around_attention.norm": "self_Wo_ln_{}",
    "around_cross_attention.norm": "context_Wo_ln_{}",
    "around_feed_forward.norm": "ffn_ffn_ln_{}",
}
JOEYNMT = {
    side: {
        f"{ours}.{part}": f"{theirs}.{layer}_layer"
        for ours, theirs in (("attention", f"{own}_{own}_att"), ("cross_attention", "src_trg_att"))
        for part, layer in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "output"))
    }
    | {
        "feed_forward.hidden": "feed_forward.pwff_layer.0",
        "feed_forward.out": "feed_forward.pwff_layer.3",
        "around_attention.norm": norm,
        "around_cross_attention.norm": "dec_layer_norm",
        "around_feed_forward.norm": "feed_forward.layer_norm",
    }
    for side, own, norm in (("encoder", "src", "layer_norm"), ("decoder", "trg", "x_layer_norm"))
}
JOEYNMT_PLACES = 5000  # of its table of positions


def write(weights: dict[str, Tensor], folder: Path) -> None:
    arrays: dict[str, Any] = {name: value.detach().contiguous().numpy() for name, value in weights.items()}
    np.savez(folder / "model.npz", **arrays)


def write_marian(model: Transformer, folder: Path) -> list[str]:
    """Returns the flags that say what the model is. It begins with zeros instead of a start token."""
    weights = marian_weights(model)
    write(weights, folder)
    words = [len(weights["Wemb"])] * 2
    shape = marian_model(task(model), folder)
    shape |= {"dim-vocabs": words, "models": "model.npz", "ignore-model-config": []}
    return [f"--{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in shape.items()]


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Matrices (inputs, outputs), all else (1, outputs); its words: the end, the unknown one, and those after ours."""
    words = [EOS, PAD, *range(3, model.output.out_features)]
    weights = {"Wemb": model.source_embedding.weight[words], "decoder_ff_logit_out_b": model.output.bias[None, words]}
    for side, number, part, kind, value in parts(model):
        kinds = ("scale", "bias") if part.endswith("norm") else ("W", "b")
        name = MARIAN[part].format(kinds[kind == "bias"])
        weights[f"{side}_l{number + 1}_{name}"] = value.T if value.dim() == 2 else value[None]
    return weights


def write_joeynmt(model: Transformer, folder: Path) -> list[str]:
    joeynmt(task(model), folder)
    write(joeynmt_weights(model), folder)
    return []


def joeynmt_weights(model: Transformer) -> dict[str, Tensor]:
    """Without the bias of the output, which it does not have; its words: the unknown one, zeros, and then ours."""
    words = nn.functional.pad(model.source_embedding.weight, (0, 0, 1, 0))
    positions = sinusoids_in_halves(JOEYNMT_PLACES, model.config.d_model)[None]
    weights = dict.fromkeys(("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"), words)
    weights |= {"encoder.pe.pe": positions, "decoder.pe.pe": positions}
    for side, number, part, kind, value in parts(model):
        weights[f"{side}.layers.{number}.{JOEYNMT[side][part]}.{kind}"] = value
    return weights


def parts(model: Transformer) -> Iterator[tuple[str, int, str, str, Tensor]]:
    """Side, number of the layer, part of the layer, 'weight' or 'bias', value."""
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            for name, value in layer.state_dict().items():
                part, _, kind = name.rpartition(".")
                yield side, number, part, kind, value


def task(model: Transformer) -> Task:
    """For what it says about the model."""
    return Task(model.config, model.output.out_features, [], [], batch_tokens=1, threads=1)


WRITERS = {"marian": write_marian, "joeynmt": write_joeynmt}


@contextlib.contextmanager
def decoding(name: str, model: Transformer, threads: int, folder: Path) -> Iterator[Decode]:
    """The toolkit at work with our model, which may have no bias but one that keeps an end from being chosen.

    Raises DragomanError where the toolkit is not installed or cannot do it, and where it ends before its time.
    """
    python = installed(name, "python")
    flags = WRITERS[name](model, folder)
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(
            [python, "-I", peer_decoder.__file__, name, str(threads), *flags],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        answers = process.stdout

        def decode(sources: Sequence[Ids], beam: int) -> list[Ids]:
            job = beam, [" ".join(f"w{id}" for id in ids) for ids in sources]
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(job), file=process.stdin, flush=True)
            if not (answer := answers.readline()):
                errors.seek(0)
                reason = next((line.strip() for line in errors if "Error" in line), "it does not say why")
                raise DragomanError(f"{name} ended: {reason[:200]}")
            return [[int(word[1:]) for word in sentence.split()] for sentence in json.loads(answer)]

        try:
            decode([[model.output.out_features - 1]], beam=1)
            yield decode
        finally:
            with contextlib.suppress(BrokenPipeError):  # of what was written to one that had ended
                process.stdin.close()
