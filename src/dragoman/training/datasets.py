"""Tokenise the corpora of a run into files, or reuse those of its earlier sessions."""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.lines import checksum_of
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.storage.records import read_json
from dragoman.storage.writing import replace_file
from dragoman.training.journal import Journal


def prepare_dataset(
    specs: Sequence[CorpusSpec],
    tokenizers: Tokenizers,
    max_tokens: int | None,
    file: Path,
    journal: Journal,
    expected: str,
    concatenate: float = 0.0,
) -> Pairs:
    """Write the tokenised pairs of the corpora into `file` and return them; log what was left out and why.

    max_tokens, expected, concatenate: as for `tokenise`, which also says what is raised. `file` is reused if it is
    intact and was made from the same texts with the same settings.
    """
    inputs = {
        "files": [[*map(checksum_of, spec.files)] for spec in specs],
        "settings": [
            [*spec.files, spec.weight, spec.share, spec.tag, spec.columns, *filter(None, [spec.target_tag, weights])]
            for spec in specs
            for weights in [spec.weight_column and f"weight-column={spec.weight_column}"]
        ],
        "tokenizer": hashlib.sha256("".join(tokenizers.as_files().values()).encode()).hexdigest(),
        "longest": max_tokens,
        "joined": concatenate,
    }
    record = file.with_suffix(".json")
    key = json.loads(json.dumps(inputs))
    # What is missing or damaged is made anew.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, DragomanError):
        known = read_json(record)
        if {name: known.get(name) for name in key} == key:
            pairs = Pairs.open(file)
            if expected in ("", pairs.fingerprint):
                for note in known["notes"]:
                    journal.log(note)
                return pairs
    record.unlink(missing_ok=True)
    if not expected:  # a resumed run may be refused below, and then logs nothing
        journal.log(f"tokenising {' '.join(spec.name for spec in specs)}")
    pairs, notes = tokenise(specs, tokenizers, max_tokens, file, concatenate, expected)
    for note in notes:
        journal.log(note)
    replace_file(record, json.dumps({**key, "notes": notes}, indent=1, ensure_ascii=False) + "\n")
    return pairs


def tag_notes(train: Sequence[CorpusSpec], dev: Sequence[CorpusSpec]) -> list[str]:
    """Return a warning for the user for each tag of a dev corpus that no training corpus has on that side."""
    learned = {(side, tag) for spec in train for side, tag in zip(("source", "target"), spec.tags, strict=True)}
    return [
        f"no training pair has the tag {tag!r} on its {side}, as those of {spec.name} have: the model learns nothing "
        "about it"
        for spec in dev
        for side, tag in zip(("source", "target"), spec.tags, strict=True)
        if tag and (side, tag) not in learned
    ]
