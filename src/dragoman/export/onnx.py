"""Export a model as ONNX, with the names of files, inputs and outputs that transformers.js looks for."""

import json
from collections.abc import Sequence
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, PAD, tag_piece
from dragoman.data.tokenizers import Tokenizers
from dragoman.export.sentencepiece import check_models, known_tags, names_of, sentencepiece_sides, write_models
from dragoman.export.target import Exported, Target
from dragoman.interop.onnx.conversion import check_model, convert
from dragoman.interop.onnx.graph import import_onnx
from dragoman.interop.onnx.session import OnnxEngine, OnnxModel
from dragoman.interop.tokenizer_json import TARGET_FILE, check_tokenizers, write_tokenizers
from dragoman.interop.verification import Mismatch
from dragoman.model.transformer import Transformer

GRAPHS = ("encoder_model", "decoder_model_merged")
SUFFIXES = {"float32": "", "int8": "_int8"}
DTYPES = {"float32": "fp32", "int8": "int8"}  # what transformers.js calls them
LONGEST = 512  # tokens of an output, where the positions of the model have no end
WORDS = ("vocab.json", "target_vocab.json")  # of SentencePiece: the ids of the source's words, and of the target's

USAGE = """
The folder has all that translating needs. With `pip install onnxruntime {library}`, this program does it, with a
greedy search; save it in this folder as `translate.py` and run `python translate.py "A sentence."`:

```python
{imports}

START, END, LONGEST = {start}, {end}, {longest}

folder = Path(__file__).parent
{tokenizer}
encoder = onnxruntime.InferenceSession(folder / "onnx" / "encoder_model{suffix}.onnx")
decoder = onnxruntime.InferenceSession(folder / "onnx" / "decoder_model_merged{suffix}.onnx")
cached = [value for value in decoder.get_inputs() if value.name.startswith("past_key_values.")]


def translate(text):
    ids = np.array([{encode}])
    mask = np.ones_like(ids)
    (memory,) = encoder.run(None, {{"input_ids": ids, "attention_mask": mask}})
    source = {{"encoder_hidden_states": memory, "encoder_attention_mask": mask}}
    shapes = [[1, *(size if isinstance(size, int) else 0 for size in value.shape[1:])] for value in cached]
    cache = [np.zeros(shape, np.float32) for shape in shapes]
    words, new = list(START), START
    while words[-1] != END and len(words) < min(ids.shape[1] + 50, LONGEST + 1):
        past = {{value.name: array for value, array in zip(cached, cache)}}
        logits, *cache = decoder.run(None, {{"input_ids": np.array([new]), **source, **past}})
        new = [int(logits[0, -1].argmax())]
        words += new
    return {decode}


for text in sys.argv[1:]:
    print(translate(text))
```
{more}"""

OWN_IMPORTS = """import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers"""

SENTENCEPIECE_IMPORTS = """import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece"""

SENTENCEPIECE_TOKENIZER = """SOURCE_TAG = {tag}
spm = [sentencepiece.SentencePieceProcessor(str(folder / name)) for name in ("source.spm", "target.spm")]
vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
pieces = list(json.loads((folder / "{words}").read_text("utf-8")))
unknown = vocabulary["<unk>"]


def pieces_of(text):
    return spm[0].encode(text, out_type=str)


"""

TRANSFORMERS_JS = """
transformers.js reads the folder, too: `pipeline("translation", "FOLDER")`. Give it one text at a time: in a batch, it
continues after the end of a text until all of them have ended.{hint}
"""


def check(exported: Exported) -> None:
    """Raise DragomanError for a model that the graphs cannot hold, naming its settings and what to do."""
    check_model(exported.model.config)


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write both graphs, the subwords and the settings that transformers.js reads into a folder."""
    model, tokenizers = exported.model, exported.tokenizers
    assert isinstance(model, Transformer)  # `check_model` refuses all others
    config, longest = model.config, model.config.max_positions
    (folder / "onnx").mkdir()
    for name, graph in zip(GRAPHS, convert(model, compute_type), strict=True):
        import_onnx().save(graph, folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx")
    if sides := sentencepiece_sides(tokenizers):
        write_models(sides, folder)
        for file, side in zip(words_files(tokenizers), sides, strict=False):
            words = {name: id for id, name in enumerate(names_of(side))}
            (folder / file).write_text(json.dumps(words, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        write_tokenizers(tokenizers, folder, longest)
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    description = {
        "model_type": "marian",  # of the kinds that transformers.js knows, one that takes any graphs
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": len(tokenizers.source),
        "decoder_vocab_size": len(tokenizers.target),
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


def words_files(tokenizers: Tokenizers) -> tuple[str, ...]:
    """Return the names of the files with the words of SentencePiece's sides: one where both have the same words."""
    sides = sentencepiece_sides(tokenizers)
    return WORDS[:1] if sides and names_of(sides[0]) == names_of(sides[1]) else WORDS


def check_subwords(folder: Path, exported: Exported, sources: Sequence[Ids]) -> None:
    """Raise Mismatch where the subwords in a folder do not do with the texts of sources, or a tag, what ours do."""
    tokenizers = exported.tokenizers
    if not sentencepiece_sides(tokenizers):
        check_tokenizers(folder, tokenizers, sources)
        return
    files = words_files(tokenizers)
    words = [json.loads((folder / file).read_text("utf-8")) for file in files]
    if any(list(ids.values()) != list(range(len(ids))) for ids in words):
        raise Mismatch("its words are not in the order of their ids")
    check_models(folder, tokenizers, sources, (list(words[0]), list(words[-1])))


def open_copy(folder: Path, exported: Exported, compute_type: str) -> OnnxEngine:
    """Open a folder that `write` has filled."""
    encoder, decoder = (folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx" for name in GRAPHS)
    return OnnxEngine(OnnxModel(encoder, decoder), exported.model.config.max_positions)


def usage(exported: Exported, compute_type: str) -> str:
    """Return how the folder is used, in Markdown."""
    tokenizers, tags = exported.tokenizers, exported.tags
    start = [BOS, *tokenizers.target.tag_ids(tags.target)]
    if sentencepiece_sides(tokenizers):
        front = tokenizers.source.tag_ids(tags.source)
        parts = {
            "library": "sentencepiece",
            "imports": SENTENCEPIECE_IMPORTS,
            "tokenizer": SENTENCEPIECE_TOKENIZER.format(tag=front, words=words_files(tokenizers)[-1]),
            "encode": "[*SOURCE_TAG, *(vocabulary.get(piece, unknown) for piece in pieces_of(text)), END]",
            "decode": f"spm[1].decode([pieces[id] for id in words[{len(start)} :] if id != END])",
            "more": known_tags(tokenizers),
        }
    else:
        own = 'tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))'
        other = f'\ntarget = tokenizers.Tokenizer.from_file(str(folder / "{TARGET_FILE}"))'
        encode, hint = "tokenizer.encode(text).ids", ""
        if tags.source:
            piece = tag_piece(tags.source)
            encode, hint = f'[tokenizer.token_to_id("{piece}"), *{encode}]', f" Put `{piece}` in front of each."
        parts = {
            "library": "tokenizers",
            "imports": OWN_IMPORTS,
            "tokenizer": own if tokenizers.is_one else own + other,
            "encode": encode,
            "decode": "tokenizer.decode(words)" if tokenizers.is_one else "target.decode(words)",
            "more": TRANSFORMERS_JS.format(hint=hint) if tokenizers.is_one and not tags.target else "",
        }
    longest = exported.model.config.max_positions or LONGEST
    return USAGE.format(start=start, end=EOS, longest=longest, suffix=SUFFIXES[compute_type], **parts)


ONNX = Target(
    title="as ONNX",
    compute_types=("float32", "int8"),
    search=SearchConfig(),
    check=check,
    write=write,
    check_subwords=check_subwords,
    open=open_copy,
    usage=usage,
)
