"""Ids of real sentences in four languages, held against SentencePiece and two tokenizers of Hugging Face.

The slow test reads 10,000 lines of each language from en-de.train.tsv, en-ko.train.tsv and en-es.train.tsv in the
folder that the environment variable DRAGOMAN_CORPORA names; the fast one takes the sentences of the demo.
"""

import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import sentencepiece
from imported import renumbered
from subwords import nasty_lines, train_spm
from transformers import M2M100Tokenizer, MarianTokenizer

from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.spm import SentencePieceModel, parse_spm
from dragoman.data.tokenizer import EOS
from dragoman.demo.phrasebook import phrasebook

KINDS = [
    (algorithm, rule, fallback)
    for algorithm in ("unigram", "bpe")
    for rule, fallback in (("nmt_nfkc", False), ("nfkc", False), ("identity", False), ("nmt_nfkc", True))
]
COUNT, NASTY = 10_000, 2000
# Hugging Face takes what looks like an entry of its own out of a text; for us, as for SentencePiece, it is text.
ENTRIES = ("<s>", "</s>", "<unk>", "<pad>", ">>", "__")


def trained(lines: Sequence[str], kind: tuple[str, str, bool], size: int) -> SentencePieceModel:
    algorithm, rule, fallback = kind
    more = {"byte_fallback": fallback, "character_coverage": 0.9995, "num_threads": 1}
    return parse_spm(train_spm(lines, algorithm, rule, size, **more))


def check(lines: Sequence[str], kind: tuple[str, str, bool], size: int, folder: Path) -> None:
    """The ids of all lines, and of nasty ones, are those of the three; a model of another kind gives others."""
    model = trained(lines[:: max(1, len(lines) // 8000)], kind, size)
    (folder / "spm").write_bytes(model.to_bytes())
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.to_bytes())
    pieces = [piece.text for piece in model.pieces if piece.text not in ("<unk>", "<s>", "</s>")]
    marian = ["</s>", "<unk>", *pieces, "<pad>"]
    m2m100 = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    for name, names in (("marian", marian), ("m2m100", m2m100)):
        ids = {name: id for id, name in enumerate(names)}
        (folder / f"{name}.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    files = [str(folder / name) for name in ("spm", "spm", "marian.json")]
    theirs = [MarianTokenizer(*files), M2M100Tokenizer(str(folder / "m2m100.json"), str(folder / "spm"), "en", "de")]
    m2m100 += [f"__{code}__" for code in theirs[1].lang_code_to_id]
    nasty = nasty_lines(NASTY)
    others = [line for line in nasty_lines(3 * NASTY) if not any(entry in line for entry in ENTRIES)][:NASTY]
    assert len(others) > NASTY / 2
    plain = [*(line for line in lines if not any(entry in line for entry in ENTRIES)), *others]
    for names, their, tag in ((marian, theirs[0], ""), (m2m100, theirs[1], "en")):
        vocabulary = renumbered(names, "<pad>", None, "</s>")
        places = {name: id for id, name in enumerate(vocabulary)}
        tags = {"en": places["__en__"]} if tag else {}
        ours = SentencePieceTokenizer(model, vocabulary, places["<unk>"], tags)
        cut = reference.encode([*lines, *nasty], out_type=str)
        expected = [[places.get(piece, ours.unknown) for piece in pieces] for pieces in cut]
        assert ours.encode_all([*lines, *nasty]) == expected
        mine = [[*ids, EOS] for ids in ours.encode_all(plain, tag)]
        assert mine == [[places[names[id]] for id in ids] for ids in their(plain)["input_ids"]]
    other = trained(lines[:2000], ("bpe" if kind[0] == "unigram" else "unigram", *kind[1:]), size)
    library = sentencepiece.SentencePieceProcessor(model_proto=other.to_bytes())
    assert library.encode(lines[:200], out_type=str) != cut[:200]  # the control


@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[5], marks=pytest.mark.slow), KINDS[7]], ids=str)
@pytest.mark.slow
def test_ids_of_the_demos_sentences(kind: tuple[str, str, bool], tmp_path: Path):
    books = [phrasebook("en", language, per_template=1, seed=1).train[:250] for language in ("de", "es", "ko")]
    lines = [text for pairs in books for pair in pairs for text in pair]
    check(lines, kind, 900 if kind[2] else 600, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ids_of_ten_thousand_lines_of_four_languages(kind: tuple[str, str, bool], tmp_path: Path):
    place = Path(os.environ.get("DRAGOMAN_CORPORA", "."))
    names = ["en-de.train.tsv", "en-de.train.tsv", "en-es.train.tsv", "en-ko.train.tsv"]
    if missing := [name for name in names if not (place / name).is_file()]:
        pytest.skip(f"no {missing[0]} in the folder that DRAGOMAN_CORPORA names")
    lines = []
    for name, side in zip(names, (0, 1, 1, 1), strict=True):
        with (place / name).open(encoding="utf-8") as file:
            lines += [line.rstrip("\n").split("\t")[side] for line in islice(file, COUNT)]
    assert len(lines) == 4 * COUNT
    check(lines, kind, 8000, tmp_path)
