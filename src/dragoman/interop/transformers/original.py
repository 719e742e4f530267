"""Compare an imported model with its original, which `transformers` runs."""

from pathlib import Path

from dragoman.data.tokenizer import EOS
from dragoman.data.tokenizers import SideTokenizer
from dragoman.errors import DragomanError
from dragoman.interop.transformers.conversion import Layout
from dragoman.interop.transformers.engine import TransformersEngine
from dragoman.interop.verification import LONGEST, SOURCES, Agreement, made_up, read_sample, verify
from dragoman.interop.weights import MISSING, Original
from dragoman.model.transformer import Transformer


def compare_with_original(
    model: Transformer,
    original: Original,
    folder: Path,
    tokenizer: SideTokenizer,
    tag: str = "",
    sample: str | Path | None = None,
) -> Agreement:
    """Return how far an imported model agrees with its original, in a folder that `transformers` opens.

    tokenizer, tag: of its sources; sample: a file with a text in each line, the first SOURCES of which are translated;
    None for made-up sources. Each source is also scored with a made-up target. Raise Mismatch where they do not agree,
    and DragomanError where transformers is missing or cannot open the folder.
    """
    try:
        engine = TransformersEngine(folder, layout_of(original))
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise DragomanError(f"{folder}: transformers cannot open it: {' '.join(str(error).split())}") from None
    engine.forget_settings()
    front, silent = tokenizer.tag_ids(tag), {*original.unsayable}
    # The tag, the end, and what an output may be longer have places, too.
    longest = max(engine.model.config.max_position_embeddings - len(front) - LONGEST, LONGEST)
    texts = read_sample(sample, tokenizer, longest) if sample else made_up(len(original.source), SOURCES, longest)
    others = made_up(len(original.target), len(texts), longest, seed=1)
    sources, targets = [[*front, *ids] for ids in texts], [[id for id in ids if id not in silent] for ids in others]
    return verify(model, engine, sources, (sources, targets))


def layout_of(original: Original) -> Layout:
    """Return where our words are in an original."""
    source, target = (
        {row: id for id, row in enumerate(rows) if row != MISSING} for rows in (original.source, original.target)
    )  # a start that is the end, too, counts as the end
    pad, start, end = original.target[: EOS + 1]
    return Layout(
        [source[row] for row in range(len(source))],
        [target[row] for row in range(len(target))],
        pad=pad,
        start=start,
        end=end,
        silent=sorted({original.target[id] for id in original.unsayable} - {end}),
    )
