"""Export a model for CTranslate2."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.config import RecurrentConfig, SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import PAD, tag_piece
from dragoman.errors import DragomanError, UsageError
from dragoman.export.sentencepiece import (
    check_models,
    known_tags,
    names_of,
    sentencepiece_sides,
    tag_name,
    write_models,
)
from dragoman.export.target import Exported, Target
from dragoman.interop.ctranslate2.conversion import (
    LARGEST_WITHOUT_VNNI,
    convert,
    import_ctranslate2,
    unknown_settings,
)
from dragoman.interop.ctranslate2.engine import CTranslate2Engine, read_vocabularies
from dragoman.interop.tokenizer_json import TARGET_FILE, check_tokenizers, write_tokenizers
from dragoman.interop.verification import Mismatch

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
target = {target}
translator = ctranslate2.Translator(str(folder))


def score(hypothesis):  # with the length penalty that the model was checked with, not that of CTranslate2
    pieces, log_p = hypothesis
    return log_p / (({start} + len(pieces)) / 6) ** {alpha}


def translate(texts, beams=4):
    sources = [{tokens} for encoding in tokenizer.encode_batch(texts)]
    how = dict(beam_size=beams, length_penalty=1e-9, return_scores=True{prefix})
    count = beams + beams // 2
    results = translator.translate_batch(sources, num_hypotheses=count, patience=count / beams, **how)
    best = [max(zip(result.hypotheses, result.scores), key=score)[0] for result in results]
    return target.decode_batch([[target.token_to_id(piece) for piece in pieces] for pieces in best])


print(*translate(sys.argv[1:]), sep="\\n")
```
"""

SENTENCEPIECE_USAGE = """
The folder has all that translating needs. With `pip install ctranslate2 sentencepiece`, this program does it; save it
in this folder as `translate.py` and run `python translate.py "A sentence."`:

```python
import sys
from pathlib import Path

import ctranslate2
import sentencepiece

SOURCE_TAG, TARGET_TAG = {tags}

folder = Path(__file__).parent
source = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
target = sentencepiece.SentencePieceProcessor(str(folder / "target.spm"))
translator = ctranslate2.Translator(str(folder))


def score(hypothesis):  # with the length penalty that the model was checked with, not that of CTranslate2
    pieces, log_p = hypothesis
    return log_p / ((6 + len(pieces) - len(TARGET_TAG)) / 6) ** {alpha}


def translate(texts, beams=4):
    sources = [[*SOURCE_TAG, *source.encode(text, out_type=str), "</s>"] for text in texts]
    prefixes = [TARGET_TAG] * len(texts) if TARGET_TAG else None
    how = dict(beam_size=beams, length_penalty=1e-9, return_scores=True, target_prefix=prefixes)
    count = beams + beams // 2
    results = translator.translate_batch(sources, num_hypotheses=count, patience=count / beams, **how)
    best = [max(zip(result.hypotheses, result.scores), key=score)[0] for result in results]
    return [target.decode(pieces[len(TARGET_TAG) :]) for pieces in best]


print(*translate(sys.argv[1:]), sep="\\n")
```
{known}"""


def check(exported: Exported) -> None:
    """Raise DragomanError for a model that CTranslate2 cannot run, naming its settings and what to do."""
    config = exported.model.config
    if unknown := unknown_settings(config):
        other = "" if isinstance(config, RecurrentConfig) else "export it to ONNX, or "
        raise DragomanError(
            f"CTranslate2 does not support models with {' and '.join(unknown)}: "
            f"{other}train or distill with {' '.join(unknown.values())}"
        )


def words_of(exported: Exported) -> tuple[list[str], list[str]]:
    """Return how CTranslate2 calls the words of the source and of the target, by id."""
    if sides := sentencepiece_sides(exported.tokenizers):
        return names_of(sides[0]), names_of(sides[1])
    return exported.tokenizers.source.pieces, exported.tokenizers.target.pieces


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write the files of CTranslate2 and those of the subwords into a folder."""
    model, tokenizers, sides = exported.model, exported.tokenizers, sentencepiece_sides(exported.tokenizers)
    unknown = sides[1].unknown if sides else PAD
    # whatever this processor has, others may have no VNNI
    convert(model, words_of(exported), folder, compute_type, unknown, largest=LARGEST_WITHOUT_VNNI)
    if sides:
        write_models(sides, folder)
    else:
        write_tokenizers(tokenizers, folder, model.config.max_positions)


def check_subwords(folder: Path, exported: Exported, sources: Sequence[Ids]) -> None:
    """Raise Mismatch where the subwords in a folder do not do with the texts of sources, or a tag, what ours do."""
    if sentencepiece_sides(exported.tokenizers):
        check_models(folder, exported.tokenizers, sources, read_vocabularies(folder))
    else:
        check_tokenizers(folder, exported.tokenizers, sources)


def open_copy(folder: Path, exported: Exported, compute_type: str) -> CTranslate2Engine:
    """Open a folder that `write` has filled. Raise UsageError where this processor cannot compute in int8."""
    computed = "int8" if compute_type == "int8" else "float32"  # processors have no float16
    if computed not in import_ctranslate2().get_supported_compute_types("cpu"):
        raise UsageError(f"CTranslate2 cannot compute in {computed} on this processor, so it cannot be measured here")
    engine = CTranslate2Engine(folder, computed)
    if (engine.source_pieces, engine.pieces) != words_of(exported):
        raise Mismatch("its vocabulary has other subwords")
    return engine


def usage(exported: Exported, compute_type: str) -> str:
    """Return how the folder is used, in Markdown."""
    tags, alpha = exported.tags, SearchConfig().length_penalty
    if sentencepiece_sides(exported.tokenizers):
        own = ", ".join(repr([tag_name(tag)] if tag else []) for tag in (tags.source, tags.target))
        return SENTENCEPIECE_USAGE.format(tags=own, known=known_tags(exported.tokenizers), alpha=alpha)
    file = f'tokenizers.Tokenizer.from_file(str(folder / "{TARGET_FILE}"))'
    tokens = f'["{tag_piece(tags.source)}", *encoding.tokens]' if tags.source else "encoding.tokens"
    prefix = f', target_prefix=[["{tag_piece(tags.target)}"]] * len(texts)' if tags.target else ""
    target, start = "tokenizer" if exported.tokenizers.is_one else file, 5 if tags.target else 6  # EOS, but no tag
    return USAGE.format(target=target, tokens=tokens, prefix=prefix, start=start, alpha=alpha)


CTRANSLATE2 = Target(
    title="for CTranslate2",
    compute_types=("float32", "float16", "int8"),
    search=SearchConfig(),
    check=check,
    write=write,
    check_subwords=check_subwords,
    open=open_copy,
    usage=usage,
)
