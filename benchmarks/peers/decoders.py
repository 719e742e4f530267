"""Decode with other toolkits: our model in their formats, each in a process of its own.

Hugging Face and CTranslate2 run as a plain script would run them, Marian and JoeyNMT in their own interpreters (`make
peers`).
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.peers import decoder_process
from benchmarks.peers.pytorch import MarianMT
from benchmarks.peers.task import TrainingTask
from benchmarks.peers.trainers import PROGRAMS, environment_of, find_command, marian_flags, prepare_joeynmt
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS, PAD
from dragoman.errors import DragomanError
from dragoman.interop.ctranslate2.conversion import convert
from dragoman.interop.names import marian_names
from dragoman.model.positions import sinusoids_in_halves
from dragoman.model.transformer import Transformer

# Sources of one length and the beam -> outputs as long as the sources with EOS.
Decode = Callable[[Sequence[Ids], int], list[Ids]]

# The names of the parts of our layers on each side of JoeyNMT.
JOEYNMT = {
    side: {
        f"{ours}.{part}": f"{theirs}.{layer}_layer"
        for ours, theirs in (("attention", f"{short}_{short}_att"), ("cross_attention", "src_trg_att"))
        for part, layer in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "output"))
    }
    | {
        "feed_forward.hidden": "feed_forward.pwff_layer.0",
        "feed_forward.out": "feed_forward.pwff_layer.3",
        "around_attention.norm": norm,
        "around_cross_attention.norm": "dec_layer_norm",
        "around_feed_forward.norm": "feed_forward.layer_norm",
    }
    for side, short, norm in (("encoder", "src", "layer_norm"), ("decoder", "trg", "x_layer_norm"))
}
JOEYNMT_POSITIONS = 5000


def write_hugging_face(model: Transformer, folder: Path) -> list[str]:
    """Write the weights and the settings of a MarianMT of Hugging Face into `folder`; return the model's device.

    Raise DragomanError where the transformers library is not installed.
    """
    try:
        other = MarianMT.from_transformer(model).inner
    except ImportError:
        raise DragomanError("pip install 'dragoman[benchmark]' installs it") from None
    other.config.save_pretrained(folder)
    write_npz(other.state_dict(), folder)
    return [next(model.parameters()).device.type]


def write_ctranslate2(compute_type: str, shared: str, model: Transformer, folder: Path) -> list[str]:
    """Write the model for CTranslate2 into the folder `model` in `folder`; return the arguments of its decoder.

    shared: what its threads share, 'matmuls' or 'sentences'.
    """
    pieces = [f"w{id}" for id in range(model.output.out_features)]
    convert(model, (pieces, pieces), folder / "model", compute_type)
    return [compute_type, shared]


def write_npz(weights: dict[str, Tensor], folder: Path) -> None:
    """Write weights to model.npz in `folder`."""
    arrays: dict[str, Any] = {name: value.detach().cpu().contiguous().numpy() for name, value in weights.items()}
    np.savez(folder / "model.npz", **arrays)


def write_marian(model: Transformer, folder: Path) -> list[str]:
    """Write the model for Marian into `folder`; return the flags that describe it.

    A target begins with zeros there, not with BOS.
    """
    weights = marian_weights(model)
    write_npz(weights, folder)
    words = [len(weights["Wemb"])] * 2
    flags = marian_flags(task_without_text(model), folder)
    flags |= {"dim-vocabs": words, "models": "model.npz", "ignore-model-config": []}
    return [f"--{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in flags.items()]


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by their names in Marian: matrices (inputs, outputs), vectors (1, outputs).

    Marian's vocabulary is EOS, the unknown word, then our subwords.
    """
    words = [EOS, PAD, *range(3, model.output.out_features)]
    weights = {"Wemb": model.source_embedding.weight[words], "decoder_ff_logit_out_b": model.output.bias[None, words]}
    for side, number, part, kind, value in layer_weights(model):
        (name,) = marian_names(f"{side}.{number}.{part}.{kind}")
        weights[name] = value.T if value.dim() == 2 else value[None]
    return weights


def write_joeynmt(model: Transformer, folder: Path) -> list[str]:
    """Write the model and the settings for JoeyNMT into `folder`; return no flags, as it needs none."""
    prepare_joeynmt(task_without_text(model), folder)
    write_npz(joeynmt_weights(model), folder)
    return []


def joeynmt_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights and the position table by their names in JoeyNMT, which has no output bias.

    JoeyNMT's vocabulary is the unknown word, whose vector is zero, then ours.
    """
    words = nn.functional.pad(model.source_embedding.weight, (0, 0, 1, 0))
    positions = sinusoids_in_halves(JOEYNMT_POSITIONS, model.config.d_model)[None]
    weights = dict.fromkeys(("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"), words)
    weights |= {"encoder.pe.pe": positions, "decoder.pe.pe": positions}
    for side, number, part, kind, value in layer_weights(model):
        weights[f"{side}.layers.{number}.{JOEYNMT[side][part]}.{kind}"] = value
    return weights


def layer_weights(model: Transformer) -> Iterator[tuple[str, int, str, str, Tensor]]:
    """Yield, for each weight of the layers: side, layer from 0, part of the layer, 'weight' or 'bias', and value."""
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            for name, value in layer.state_dict().items():
                part, _, kind = name.rpartition(".")
                yield side, number, part, kind, value


def task_without_text(model: Transformer) -> TrainingTask:
    """Return a training task without sentences, for functions that take the model's settings from a task."""
    return TrainingTask(model.config, model.output.out_features, batch_tokens=1, threads=1)


WRITERS: dict[str, Callable[[Transformer, Path], list[str]]] = {
    "hugging-face": write_hugging_face,
    "ctranslate2 float32 matmuls": partial(write_ctranslate2, "float32", "matmuls"),
    "ctranslate2 float32 sentences": partial(write_ctranslate2, "float32", "sentences"),
    "ctranslate2 int8 matmuls": partial(write_ctranslate2, "int8", "matmuls"),
    "ctranslate2 int8 sentences": partial(write_ctranslate2, "int8", "sentences"),
    "marian": write_marian,
    "joeynmt": write_joeynmt,
}


def interpreter(name: str) -> list[str]:
    """Return the command that runs a script in the interpreter that has a toolkit.

    Raise DragomanError where it is not installed.
    """
    return [find_command(name, "python"), "-I"] if name in PROGRAMS else [sys.executable, "-P"]


@contextlib.contextmanager
def open_decoder(name: str, model: Transformer, threads: int, folder: Path) -> Iterator[Decode]:
    """Yield a decoder that runs a toolkit with our model; the model must not have an output bias but `prevent_eos`'s.

    name: a key of WRITERS; folder: for its files. Raise DragomanError where the toolkit is not installed, cannot run
    the model, or ends too early.
    """
    python = interpreter(name)
    flags = WRITERS[name](model, folder)
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(
            [*python, decoder_process.__file__, name.partition(" ")[0], str(threads), *flags],
            cwd=folder,
            env=environment_of(name, threads),
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
                reason = next((line.strip() for line in errors if "Error" in line), "no reason given")
                raise DragomanError(f"{name} ended: {reason[:200]}")
            return [[int(word[1:]) for word in sentence.split()] for sentence in json.loads(answer)]

        try:
            decode([[model.output.out_features - 1]], beam=1)
            yield decode
        finally:
            with contextlib.suppress(BrokenPipeError):  # the process may have ended already
                process.stdin.close()
