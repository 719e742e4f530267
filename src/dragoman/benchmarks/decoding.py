"""How fast translations are searched for: our search beside Hugging Face `generate` and CTranslate2, same weights.

Whoever decodes gets ids and gives ids; every output has the same number of tokens, so that all do the same work.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dragoman.batches import Ids, source_batch
from dragoman.benchmarks import Contender, compete, machine, markdown
from dragoman.benchmarks.peers import MarianMT
from dragoman.config import SearchConfig
from dragoman.decoding.native import Native
from dragoman.model.transformer import Transformer
from dragoman.presets import SMALL
from dragoman.tokenizer import EOS, PAD

VOCABULARY, LENGTH = 8000, 39  # subwords; tokens of each source and of each output, the end included
OURS, HUGGING_FACE = "dragoman", "HF generate"
CTRANSLATE2 = {"float32": "CTranslate2", "int8": "CTranslate2 int8"}

# The form of model that all of them have.
MODEL = replace(
    SMALL.model,
    positions="sinusoidal-halves",
    norm_first=False,
    attention=replace(SMALL.model.attention, bias=True),
    output_bias=True,
)

Decode = Callable[[Sequence[Ids], int], int]  # sources that go together, beams -> tokens


def benchmark(threads: int, rounds: int, sentences: int) -> str:
    """A table in Markdown: target tokens per second, a row for each way of decoding."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Transformer(MODEL, VOCABULARY, pad=PAD).eval()
    with torch.no_grad():
        model.output.bias[EOS] = -1e9
    random = np.random.default_rng(1)
    sources = random.integers(3, VOCABULARY, (sentences, LENGTH - 1)).tolist()
    notes: list[str] = []
    rows = []
    with contextlib.ExitStack() as stack:
        contenders = dict(opened(model, threads, stack, notes))
        for beam in (1, 4):
            for batch in (1, 32):
                few = sources[: max(sentences // (1 if batch > 1 else 16), 1)]
                groups = [few[start : start + batch] for start in range(0, len(few), batch)]
                timed = {name: Contender(name, over(decode, groups, beam)) for name, decode in contenders.items()}
                compete(list(timed.values()), rounds)
                ratios = [
                    f"{timed[OURS].median / timed[name].median:.2f}" if name in timed else "–"
                    for name in (HUGGING_FACE, CTRANSLATE2["float32"])
                ]
                rows.append([f"beam {beam}, batch {batch}", *map(str, timed.values()), *ratios])
    columns = ["", *contenders, "ours / HF", "ours / CTranslate2"]
    return "\n".join(
        [
            f"Decoding, d_model 256, 3+3 layers, {VOCABULARY:,} subwords, {LENGTH} tokens in and out; target tokens "
            f"per second, median and spread of {rounds} rounds in turn.",
            machine() + ".",
            "",
            markdown(columns, rows),
            "",
            *(f"- {note}" for note in notes),
        ]
    )


def over(decode: Decode, groups: list[list[Ids]], beam: int) -> Callable[[], int]:
    return lambda: sum(decode(group, beam) for group in groups)


def opened(
    model: Transformer, threads: int, stack: contextlib.ExitStack, notes: list[str]
) -> Iterator[tuple[str, Decode]]:
    yield OURS, native(model)
    try:
        yield HUGGING_FACE, hugging_face(model)
    except ImportError:
        notes.append("Hugging Face is left out: pip install 'dragoman[benchmark]' installs it.")
    try:
        for compute, name in CTRANSLATE2.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield name, ctranslate2(model, compute, threads, folder)
    except ImportError:
        notes.append("CTranslate2 is left out: pip install 'dragoman[fast]' installs it.")


def native(model: Transformer) -> Decode:
    engine = Native(model)

    def decode(sources: Sequence[Ids], beam: int) -> int:
        config = SearchConfig(beam=beam, extra_length=1)
        return sum(len(found[0].tokens) for found in engine.search(sources, config))

    return decode


def hugging_face(model: Transformer) -> Decode:
    other: Any = MarianMT.of(model).eval().inner

    @torch.inference_mode()
    def decode(sources: Sequence[Ids], beam: int) -> int:
        source = source_batch(sources)
        found = other.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=LENGTH,
            min_new_tokens=LENGTH,
        )
        return found.size(0) * (found.size(1) - 1)

    return decode


def ctranslate2(model: Transformer, compute: str, threads: int, folder: Path) -> Decode:
    import ctranslate2 as library

    from dragoman.interop.ctranslate2 import convert

    pieces = [f"w{id}" for id in range(VOCABULARY)]
    convert(model, pieces, folder / "model", compute)
    engine = library.Translator(str(folder / "model"), compute_type=compute, intra_threads=threads, inter_threads=1)
    end = pieces[EOS]

    def decode(sources: Sequence[Ids], beam: int) -> int:
        words = [[*(pieces[id] for id in ids), end] for ids in sources]
        found = engine.translate_batch(
            words, beam_size=beam, max_decoding_length=LENGTH, min_decoding_length=LENGTH, max_batch_size=0
        )
        return sum(len(one.hypotheses[0]) for one in found)

    return decode
