"""Export a model as ONNX, with the names of files, inputs and outputs that transformers.js looks for."""

import json
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.data.tokenizer import BOS, EOS, PAD, Tokenizer
from dragoman.export.target import Target
from dragoman.export.tokenizer import write_tokenizer
from dragoman.interop.onnx.conversion import check_model, convert
from dragoman.interop.onnx.graph import import_onnx
from dragoman.interop.onnx.session import OnnxEngine, OnnxModel
from dragoman.model import Model
from dragoman.model.transformer import Transformer

GRAPHS = ("encoder_model", "decoder_model_merged")
SUFFIXES = {"float32": "", "int8": "_int8"}
DTYPES = {"float32": "fp32", "int8": "int8"}  # what transformers.js calls them
LONGEST = 512  # tokens of an output, where the positions of the model have no end

USAGE = """
The folder has all that translating needs. With `pip install onnxruntime tokenizers`, this program does it, with a
greedy search; save it in this folder as `translate.py` and run `python translate.py "A sentence."`:

```python
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

START, END, LONGEST = {bos}, {eos}, {longest}

folder = Path(__file__).parent
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
encoder = onnxruntime.InferenceSession(folder / "onnx" / "encoder_model{suffix}.onnx")
decoder = onnxruntime.InferenceSession(folder / "onnx" / "decoder_model_merged{suffix}.onnx")
cached = [value for value in decoder.get_inputs() if value.name.startswith("past_key_values.")]


def translate(text):
    ids = np.array([tokenizer.encode(text).ids])
    mask = np.ones_like(ids)
    (memory,) = encoder.run(None, {{"input_ids": ids, "attention_mask": mask}})
    source = {{"encoder_hidden_states": memory, "encoder_attention_mask": mask}}
    shapes = [[1, *(size if isinstance(size, int) else 0 for size in value.shape[1:])] for value in cached]
    cache = [np.zeros(shape, np.float32) for shape in shapes]
    words = [START]
    while words[-1] != END and len(words) < min(ids.shape[1] + 50, LONGEST + 1):
        past = {{value.name: array for value, array in zip(cached, cache)}}
        logits, *cache = decoder.run(None, {{"input_ids": np.array([words[-1:]]), **source, **past}})
        words.append(int(logits[0, -1].argmax()))
    return tokenizer.decode(words)


for text in sys.argv[1:]:
    print(translate(text))
```

transformers.js reads the folder, too: `pipeline("translation", "FOLDER")`. Give it one text at a time: in a batch, it
goes on behind the end of a text until all of them have ended.
"""


def write(model: Model, tokenizer: Tokenizer, folder: Path, compute_type: str) -> None:
    """Write both graphs, the tokenizer and the settings that transformers.js reads into a folder."""
    assert isinstance(model, Transformer)  # `check_model` refuses all others
    config, longest = model.config, model.config.max_positions
    (folder / "onnx").mkdir()
    for name, graph in zip(GRAPHS, convert(model, compute_type), strict=True):
        import_onnx().save(graph, folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx")
    write_tokenizer(tokenizer, folder, longest)
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    description = {
        "model_type": "marian",  # of the kinds that transformers.js knows, one that takes any graphs
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": len(tokenizer),
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.attention.heads,
        "decoder_attention_heads": config.attention.heads,
        **ids,
        "transformers.js_config": {"dtype": DTYPES[compute_type]},
    }
    generation = {"max_length": longest or LONGEST, "num_beams": 1, **ids}
    for file, content in (("config.json", description), ("generation_config.json", generation)):
        (folder / file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def open_copy(folder: Path, model: Model, tokenizer: Tokenizer, compute_type: str) -> OnnxEngine:
    """Open a folder that `write` has filled."""
    encoder, decoder = (folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx" for name in GRAPHS)
    return OnnxEngine(OnnxModel(encoder, decoder), model.config.max_positions)


def usage(model: Model, compute_type: str) -> str:
    """Return how the folder is used, in Markdown."""
    longest = model.config.max_positions or LONGEST
    return USAGE.format(bos=BOS, eos=EOS, longest=longest, suffix=SUFFIXES[compute_type])


ONNX = Target(
    title="as ONNX",
    compute_types=("float32", "int8"),
    search=SearchConfig(),
    check=check_model,
    write=write,
    open=open_copy,
    usage=usage,
)
