"""Measure how fast decoding is: our search beside that of other toolkits, all with the same weights.

All get ids and return ids. An output has as many tokens as its source with EOS, so that all do the same work; any other
length is an error.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.decoders import Decode, open_decoder
from dragoman.config import ComputeType, Device, SearchConfig
from dragoman.config.presets import SMALL
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.inference.products import supported_types
from dragoman.model.transformer import Transformer
from dragoman.runtime.device import device_of

VOCABULARY, LENGTH = 8000, 39  # subwords; tokens of each source and of each output, EOS included
OURS, HUGGING_FACE = "dragoman", "HF generate"
OWN_TYPES: tuple[ComputeType, ...] = ("bfloat16", "int8")  # besides float32
# What others are called here -> what `open_decoder` calls them: several ways to use the same threads, of which the
# fastest counts. On a GPU, only Hugging Face takes part.
OTHERS = {
    HUGGING_FACE: ["hugging-face"],
    "CTranslate2": ["ctranslate2 float32 matmuls", "ctranslate2 float32 sentences"],
    "CTranslate2 int8": ["ctranslate2 int8 matmuls", "ctranslate2 int8 sentences"],
    "Marian": ["marian"],
    "JoeyNMT": ["joeynmt"],
}
RATIOS = {"HF": HUGGING_FACE} | {name: name for name in ("CTranslate2", "Marian", "JoeyNMT")}

# An architecture that all toolkits have.
MODEL = replace(
    SMALL.model,
    positions="sinusoidal-halves",
    norm_first=False,
    attention=replace(SMALL.model.attention, bias=True),
    output_bias=True,
)


def benchmark(
    threads: int, rounds: int, sentences: int, batches: Sequence[int] = (1, 32), device: Device = "cpu"
) -> str:
    """Return a report in Markdown: target tokens per second of each toolkit, a row for each beam and batch.

    sentences: how many are decoded in each round, a sixteenth where a batch is a single one; batches: sentences at a
    time; device: 'cuda' for a GPU, where only PyTorch's decoders take part. Sets PyTorch's threads and seed. Raise
    UsageError where there is no GPU.
    """
    where = device_of(device)
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = prevent_eos(Transformer(MODEL, VOCABULARY, pad=PAD).eval()).to(where)
    random = np.random.default_rng(1)
    sources = random.integers(3, VOCABULARY, (sentences, LENGTH - 1)).tolist()
    notes: list[str] = []
    rows = []
    with contextlib.ExitStack() as stack:
        contenders: dict[str, list[Decode]] = {}
        for name, decode in open_decoders(model, threads, stack, notes):
            contenders.setdefault(name, []).append(decode)
        others = {short: name for short, name in RATIOS.items() if name in contenders}
        for beam in (1, 4):
            for batch in batches:
                few = sources[: max(sentences // (1 if batch > 1 else 16), 1)]
                groups = [few[start : start + batch] for start in range(0, len(few), batch)]
                ways = {
                    name: [Contender(name, pass_over(decode, groups, beam)) for decode in decoders]
                    for name, decoders in contenders.items()
                }
                time_in_turn([way for ways_of in ways.values() for way in ways_of], rounds)
                timed = {name: max(ways_of, key=lambda way: way.median) for name, ways_of in ways.items()}
                ratios = [f"{timed[OURS].median / timed[name].median:.2f}" for name in others.values()]
                rows.append([f"beam {beam}, batch {batch}", *map(str, timed.values()), *ratios])
    columns = ["", *contenders, *(f"ours / {name}" for name in others)]
    return "\n".join(
        [
            f"Decoding, d_model 256, 3+3 layers, {VOCABULARY:,} subwords, {LENGTH} tokens in and out; target tokens "
            f"per second, median and spread of {rounds} interleaved rounds.",
            describe_machine(where.type) + ".",
            "",
            markdown_table(columns, rows),
            "",
            *(f"- {note}" for note in notes),
        ]
    )


@torch.no_grad()
def prevent_eos(model: Transformer) -> Transformer:
    """Change the weights of a model, in place, so that it never chooses EOS; return it.

    PAD, BOS and EOS get zero vectors.
    """
    special = [PAD, BOS, EOS]
    model.output.bias[special] = -1e9
    model.source_embedding.weight[special] = 0  # for toolkits without that bias
    return model


def pass_over(decode: Decode, groups: list[list[Ids]], beam: int) -> Callable[[], int]:
    """Return a function that decodes all groups of sources once and returns the number of output tokens.

    It raises DragomanError where an output has not as many tokens as its source with EOS.
    """

    def run() -> int:
        outputs = [output for group in groups for output in decode(group, beam)]
        lengths = [len(ids) + 1 for group in groups for ids in group]
        counts = list(map(len, outputs))
        if counts != lengths:
            raise DragomanError(f"not the same work: outputs have {sum(counts)} tokens and should have {sum(lengths)}")
        return sum(counts)

    return run


def open_decoders(
    model: Transformer, threads: int, stack: contextlib.ExitStack, notes: list[str]
) -> Iterator[tuple[str, Decode]]:
    """Yield name and decoder of each toolkit that is installed; add a sentence to `notes` for each that is not.

    With several threads, a toolkit may have several decoders. What they keep open, processes and folders, is closed
    with `stack`.
    """
    yield OURS, our_decoder(model)
    device = next(model.parameters()).device
    processor = {"cpu": "processor", "cuda": "GPU"}[device.type]
    for own_type in OWN_TYPES:
        if own_type in supported_types(device):
            yield f"{OURS} {own_type}", our_decoder(model, own_type)
        else:
            notes.append(f"{OURS} {own_type} is left out: this {processor} has no instructions for it.")
    for name, ways in OTHERS.items():
        if device.type == "cuda" and name != HUGGING_FACE:
            continue
        try:
            for way in ways if threads > 1 else ways[:1]:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                yield name, stack.enter_context(open_decoder(way, model, threads, folder))
        except DragomanError as error:
            notes.append(f"{name} is left out: {error}.")


def our_decoder(model: Transformer, compute_type: ComputeType = "float32") -> Decode:
    """Return a decoder that uses our own search, from sources and a beam to outputs of at most one token more."""
    engine = TorchEngine(model, compute_type=compute_type)

    def decode(sources: Sequence[Ids], beam: int) -> list[Ids]:
        config = SearchConfig(beam=beam, extra_length=1)
        return [hypotheses[0].tokens for hypotheses in engine.search(sources, config)]

    return decode
