"""Measure an import: python -m benchmarks measure-import FOLDER [opus-mt|nllb-600m].

It writes a model of that shape with random weights into the new folder FOLDER, imports it in a process of its own, and
prints seconds, the most memory beside the weights, and how long a cold process needs for a first translation. The
folder takes up to 5 GB; it is deleted at the end.
"""

import argparse
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.spm import Kind, Piece, SentencePieceModel
from dragoman.interop.names import hugging_face_names
from dragoman.model_folder.weights import Description, expected_shapes

LETTERS = "abcdefghijklmnopqrstuvwxyz"
STD = 0.02


@dataclass(frozen=True)
class Shape:
    """The shape of a model of Hugging Face: its type, sizes, layers on each side, and subwords."""

    model_type: str
    d_model: int
    heads: int
    d_ff: int
    layers: int
    words: int


SHAPES = {
    "opus-mt": Shape("marian", 512, 8, 2048, 6, 58_101),
    "nllb-600m": Shape("m2m_100", 1024, 16, 4096, 12, 256_206),
}


def pieces(count: int) -> Iterator[str]:
    """Yield so many different words: letters, then ever more of them."""
    words = ("".join(each) for size in itertools.count(1) for each in itertools.product(LETTERS, repeat=size))
    yield "\u2581"
    yield from itertools.islice((text for word in words for text in (word, f"\u2581{word}")), count - 1)


def spm(words: list[str]) -> bytes:
    """Return a SentencePiece model with these pieces behind the three special ones."""
    special = [Piece("<unk>", 0.0, Kind.UNKNOWN), Piece("<s>", 0.0, Kind.CONTROL), Piece("</s>", 0.0, Kind.CONTROL)]
    ordinary = (Piece(word, -float(id), Kind.NORMAL) for id, word in enumerate(words))
    return SentencePieceModel("bpe", (*special, *ordinary)).to_bytes()


def write_folder(folder: Path, shape: Shape) -> int:
    """Write the folder of a model with random weights, and return the bytes of these."""
    folder.mkdir(parents=True)
    marian = shape.model_type == "marian"
    special, tags = (3, 0) if marian else (4, 2)
    words = list(pieces(shape.words - special - tags - (not marian)))
    if marian:
        for name in ("source.spm", "target.spm"):
            (folder / name).write_bytes(spm(words))
        listed = ["</s>", "<unk>", *words, "<pad>"]
        (folder / "vocab.json").write_text(json.dumps({word: id for id, word in enumerate(listed)}))
    else:
        (folder / "sentencepiece.bpe.model").write_bytes(spm(words))
        tokens = ["eng_Latn", "kor_Hang", "<mask>"]
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": tokens}))
    sides = ("encoder", "decoder")
    config = {"model_type": shape.model_type, "vocab_size": shape.words, "d_model": shape.d_model}
    config |= {f"{side}_layers": shape.layers for side in sides}
    config |= {f"{side}_ffn_dim": shape.d_ff for side in sides}
    config |= {f"{side}_attention_heads": shape.heads for side in sides}
    config |= {"activation_function": "relu", "scale_embedding": True}
    if marian:
        config |= {"pad_token_id": shape.words - 1, "decoder_start_token_id": shape.words - 1, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    return write_weights(folder / "model.safetensors", shape)


def write_weights(file: Path, shape: Shape) -> int:
    """Write random weights as safetensors, one after the other, and return their bytes."""
    ours = TransformerConfig(
        d_model=shape.d_model,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        attention=AttentionConfig(heads=shape.heads, bias=True),
        feed_forward=FeedForwardConfig(shape.d_ff),
        positions="sinusoidal",
        norm_first=shape.model_type == "m2m_100",
        output_bias=shape.model_type == "marian",
        share="all",
    )
    sizes = {
        hugging_face_names(name)[-1]: size for (name, *_), size in expected_shapes(Description(ours, shape.words, None))
    }
    header, end = {}, 0
    for name, size in sizes.items():
        bytes_of = 4 * int(np.prod(size))
        header[name] = {"dtype": "F32", "shape": list(size), "data_offsets": [end, end + bytes_of]}
        end += bytes_of
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(0)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, size in sizes.items():
            drawn = random.standard_normal(size, np.float32) * np.float32(STD)
            out.write((drawn + np.float32(name.endswith("norm.weight"))).data)
    return end


def run(*arguments: object) -> tuple[float, int]:
    """Run dragoman in a process of its own; return its seconds and the most bytes of memory that it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "dragoman", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        sys.exit(f"{' '.join(command)} ended with {running.returncode}")
    return time.monotonic() - began, used.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("shape", nargs="?", choices=list(SHAPES), default="opus-mt")
    options = parser.parse_args()
    shape, folder = SHAPES[options.shape], options.folder
    if folder.exists():
        parser.error(f"{folder}: exists already")
    try:
        size = write_folder(folder / "their", shape)
        tags = () if shape.model_type == "marian" else ("--tag", "eng_Latn", "--target-tag", "kor_Hang")
        seconds, memory = run("import", folder / "their", folder / "ours", *tags)
        first, _ = run("translate", "-m", folder / "ours", "a b c", "--extra-length", 5, "--no-detect-faults")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    beside = (memory - size) / 1e6
    print(f"{options.shape}: {size / 1e9:.2f} GB of weights, imported in {seconds:.1f} s, {beside:,.0f} MB beside them")
    print(f"first translation of a cold process: {first:.1f} s")


if __name__ == "__main__":
    main()
