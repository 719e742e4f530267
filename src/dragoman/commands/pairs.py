"""Go through sentence pairs block by block with a model, as `score` and `align` do."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from dragoman.data.batches import Ids
from dragoman.data.corpus import LeftOut, stream_rows
from dragoman.data.lines import Row
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.forced import max_positions
from dragoman.model import Model
from dragoman.runtime.device import wide_products
from dragoman.text.extent import model_scripts
from dragoman.text.scripts import direction_warning
from dragoman.text.tags import DefaultTags

BLOCK = 1024  # pairs in memory
Result = TypeVar("Result")


class EncodedPair(NamedTuple):
    """A pair with its token ids, without EOS."""

    row: Row
    source: Ids  # with the tag of its corpus in front
    target: Ids  # with the target tag of its corpus in front
    tag: int  # how many tokens that tag has


def compute_by_pair(
    corpora: Sequence[CorpusSpec],
    folder: Path,
    model: Model,
    tokenizers: Tokenizers,
    compute: Callable[[list[Ids], list[Ids]], Sequence[Result]],
    lacking: str,
) -> Iterator[tuple[EncodedPair, Result | None]]:
    """Yield each pair with what `compute(sources, targets)` returns for it; None where a side is too long.

    compute: from ids of a block of pairs, the tags in front of sources, to one result for each. Pairs that are too long
    are reported on standard error with the words `lacking`, such as 'no score', and so are lines left out, and sources
    in a script that the model does not read. folder: that of the model. Raise DragomanError for an unknown tag and for
    a corpus that cannot be read.
    """
    max_length, default = max_positions(model), DefaultTags.load(folder)
    for corpus in corpora:
        tags = corpus.tag or default.source, corpus.target_tag or default.target
        tokenizers.source.tag_ids(tags[0])  # an unknown tag is an error before anything is read
        left_out, tag = LeftOut(corpus), len(tokenizers.target.tag_ids(tags[1]))
        rows = stream_rows(corpus, left_out)
        warning = None
        while block := list(islice(rows, BLOCK)):
            if warning is None:  # of the first block, once
                scripts = model_scripts(folder)
                if warning := direction_warning(corpus.name, (row.source for row in block), *scripts):
                    print(warning, file=sys.stderr)
            texts = [row.source for row in block], [row.target for row in block]
            sides = tokenizers.encode_sides(*texts, *tags)
            pairs = [EncodedPair(*pair, tag) for pair in zip(block, *sides, strict=True)]
            fitting = [pair for pair in pairs if max(len(pair.source), len(pair.target)) < max_length]
            with wide_products():
                results = iter(compute([pair.source for pair in fitting], [pair.target for pair in fitting]))
            for pair in pairs:
                if max(len(pair.source), len(pair.target)) < max_length:
                    yield pair, next(results)
                else:
                    location = f"{corpus.name}:{pair.row.number}"
                    print(f"{location}: a side has more than {max_length - 1:,} tokens: {lacking}", file=sys.stderr)
                    yield pair, None
        for note in left_out.notes():
            print(note, file=sys.stderr)
