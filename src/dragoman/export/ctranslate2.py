"""Export a model for CTranslate2."""

from pathlib import Path

from dragoman.config import ModelConfig, RecurrentConfig, SearchConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.export.target import Target
from dragoman.export.tokenizer import write_tokenizer
from dragoman.interop.ctranslate2.conversion import convert, import_ctranslate2, unknown_settings
from dragoman.interop.ctranslate2.engine import CTranslate2Engine
from dragoman.interop.verification import Mismatch
from dragoman.model import Model

USAGE = """
The folder has all that translating needs. With `pip install ctranslate2 tokenizers`, this program does it; save it in
this folder as `translate.py` and run `python translate.py "A sentence."`:

```python
import sys
from pathlib import Path

import ctranslate2
import tokenizers

folder = Path(__file__).parent
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
translator = ctranslate2.Translator(str(folder))


def translate(texts, beams=4):
    sources = [encoding.tokens for encoding in tokenizer.encode_batch(texts)]
    results = translator.translate_batch(sources, beam_size=beams)
    outputs = [[tokenizer.token_to_id(piece) for piece in result.hypotheses[0]] for result in results]
    return tokenizer.decode_batch(outputs)


print(*translate(sys.argv[1:]), sep="\\n")
```
"""


def check(config: ModelConfig) -> None:
    """Raise DragomanError for a model that CTranslate2 cannot run, naming its settings and what to do."""
    if unknown := unknown_settings(config):
        other = "" if isinstance(config, RecurrentConfig) else "export it to ONNX, or "
        raise DragomanError(
            f"CTranslate2 does not support models with {' and '.join(unknown)}: "
            f"{other}train or distill with {' '.join(unknown.values())}"
        )


def write(model: Model, tokenizer: Tokenizer, folder: Path, compute_type: str) -> None:
    """Write the files of CTranslate2 and the tokenizer's into a folder."""
    convert(model, (tokenizer.pieces, tokenizer.pieces), folder, compute_type)
    write_tokenizer(tokenizer, folder, model.config.max_positions)


def open_copy(folder: Path, model: Model, tokenizer: Tokenizer, compute_type: str) -> CTranslate2Engine:
    """Open a folder that `write` has filled. Raise UsageError where this processor cannot compute in int8."""
    computed = "int8" if compute_type == "int8" else "float32"  # processors have no float16
    if computed not in import_ctranslate2().get_supported_compute_types("cpu"):
        raise UsageError(f"CTranslate2 cannot compute in {computed} on this processor, so it cannot be measured here")
    engine = CTranslate2Engine(folder, computed)
    if not engine.source_pieces == engine.pieces == tokenizer.pieces:
        raise Mismatch("its vocabulary has other subwords")
    return engine


def usage(model: Model, compute_type: str) -> str:
    """Return how the folder is used, in Markdown."""
    return USAGE


CTRANSLATE2 = Target(
    title="for CTranslate2",
    compute_types=("float32", "float16", "int8"),
    search=SearchConfig(),
    check=check,
    write=write,
    open=open_copy,
    usage=usage,
)
