"""Ids of SentencePiece models, held against the library itself and against the tokenizers of Hugging Face."""

import dataclasses
import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from conftest import TINY
from imported import LINES, NASTY, renumbered, tokenizer_of, trained_model
from subwords import nasty_lines
from transformers import M2M100Tokenizer, MarianTokenizer, NllbTokenizer
from transformers.convert_slow_tokenizer import generate_merges

from dragoman.alignment.words import character_spans, fill_gaps, subwords, words
from dragoman.config import SearchConfig
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.spm import SentencePieceModel
from dragoman.data.tokenizer import BOS, EOS, PAD, Tokenizer
from dragoman.data.tokenizers import SideTokenizer, load_tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.inspection import is_special
from dragoman.model import build
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.terms import forbidden_sequences, target_tokens
from dragoman.translation.translator import Translator

ALL = [*LINES, *NASTY]
KINDS = [
    ("unigram", "nmt_nfkc", False),
    ("bpe", "nmt_nfkc", False),
    ("unigram", "identity", False),
    ("bpe", "nfkc", True),
    ("unigram", "nmt_nfkc", True),
]


def library(model: SentencePieceModel) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model.to_bytes())


def written(model: SentencePieceModel, file: Path) -> str:
    file.write_bytes(model.to_bytes())
    return str(file)


def mapped(theirs: list[int], names: list[str], vocabulary: list[str]) -> list[int]:
    """Our ids for those of another tokenizer, whose vocabulary is `names`."""
    index = {name: id for id, name in enumerate(vocabulary)}
    return [index[names[id]] for id in theirs]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ids_are_those_of_the_library_in_our_order(kind: tuple[str, str, bool]):
    model = trained_model(*kind)
    tokenizer, reference = tokenizer_of(model), library(model)
    names = [piece.text for piece in model.pieces]
    lines = [*ALL, *nasty_lines()]
    expected = [mapped(ids, names, tokenizer.vocabulary) for ids in reference.encode(lines)]
    assert tokenizer.encode_all(lines) == expected
    assert [tokenizer.encode(line) for line in NASTY] == expected[len(LINES) : len(ALL)]
    assert sum(tokenizer.unknown in ids for ids in expected) > 3 or kind[2]
    other = tokenizer_of(trained_model("bpe" if kind[0] == "unigram" else "unigram", *kind[1:]))
    assert [[other.pieces[id] for id in ids] for ids in other.encode_all(LINES)] != [
        [tokenizer.pieces[id] for id in ids] for ids in tokenizer.encode_all(LINES)
    ]  # the control


@pytest.mark.parametrize("separate", [False, True])
def test_ids_are_those_of_marian_with_lists(separate: bool, tmp_path: Path):
    """Each side has a SentencePiece model; pieces and unknown runs are looked up in the joint list."""
    models = [trained_model(side=0, size=90), trained_model(side=1, size=120)]
    pieces = [sorted({piece.text for piece in model.pieces} - {"<unk>", "<s>", "</s>"}) for model in models]
    if not separate:
        pieces = [sorted({*pieces[0], *pieces[1]})] * 2
    lists = [["</s>", "<unk>", *own, ">>de<<", ">>ko<<", "<pad>"] for own in pieces]
    files = [tmp_path / name for name in ("vocab.json", "target_vocab.json")]
    for file, names in zip(files, lists, strict=True):
        file.write_text(json.dumps({name: id for id, name in enumerate(names)}, ensure_ascii=False))
    spm = [written(model, tmp_path / name) for model, name in zip(models, ("source.spm", "target.spm"), strict=True)]
    theirs = MarianTokenizer(*spm, str(files[0]), str(files[1]), separate_vocabs=separate)
    ours = []
    for model, names in zip(models, lists, strict=True):
        vocabulary = renumbered(names, "<pad>", None, "</s>")
        tags = {tag: vocabulary.index(f">>{tag}<<") for tag in ("de", "ko")}
        ours.append(SentencePieceTokenizer(model, vocabulary, vocabulary.index("<unk>"), tags))
    source, target = ours
    # Hugging Face takes a tag at the front, and what looks like an entry of its own, out of a text; for us it is text.
    lines = [line for line in ALL if not line.startswith(">>") and "</s>" not in line]
    assert len(lines) == len(ALL) - 2
    for line in lines:
        assert [*source.encode(line), EOS] == mapped(theirs(line)["input_ids"], lists[0], source.vocabulary), line
        tagged = theirs(f">>de<< {line}")["input_ids"]
        assert [*source.encode(line, "de"), EOS] == mapped(tagged, lists[0], source.vocabulary), line
        if ">>" not in line:
            labels = theirs(text_target=line)["input_ids"]
            assert [*target.encode(line), EOS] == mapped(labels, lists[1], target.vocabulary), line
    # A word of the other language is one piece with its text, which the joint list has and the separate one has not.
    inner = max((piece.text for piece in models[1].pieces if piece.text.isalpha()), key=len)
    assert (source.unknown in source.encode(inner)) == separate
    # Where the characters of a tag are unknown, Hugging Face finds the tag in the list. For us no text becomes one.
    inside = "a tag >>de<< inside"
    assert lists[1].index(">>de<<") in theirs(text_target=inside)["input_ids"]
    assert not {*target.encode(inside)} & target.special_ids
    swapped = [target.encode(line) for line in LINES]
    assert swapped != [source.encode(line) for line in LINES]  # the control


def test_ids_are_those_of_m2m100(tmp_path: Path):
    model = trained_model("bpe")
    own = [piece.text for piece in model.pieces if piece.text not in ("<unk>", "<s>", "</s>")]
    names = ["<s>", "<pad>", "</s>", "<unk>", *own]
    (tmp_path / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}, ensure_ascii=False))
    theirs = M2M100Tokenizer(str(tmp_path / "vocab.json"), written(model, tmp_path / "spm.model"), "en", "de")
    names += [f"__{code}__" for code in theirs.lang_code_to_id]
    assert all(names[id] == f"__{code}__" for code, id in theirs.lang_code_to_id.items())
    vocabulary = renumbered(names, "<pad>", None, "</s>")
    tags = {code: vocabulary.index(f"__{code}__") for code in theirs.lang_code_to_id}
    ours = SentencePieceTokenizer(model, vocabulary, vocabulary.index("<unk>"), tags)
    # Hugging Face cuts what looks like an entry of its own out of a text; for us it is text, as for SentencePiece.
    for line in (line for line in ALL if "<" not in line and "__" not in line):
        assert [*ours.encode(line, "en"), EOS] == mapped(theirs(line)["input_ids"], names, vocabulary), line
        labels = theirs(text_target=line)["input_ids"]
        assert [*ours.encode(line, "de"), EOS] == mapped(labels, names, vocabulary), line
    assert ours.pieces[ours.tags["de"]] == "<tag:de>"
    assert is_special("<tag:de>")
    assert ours.pieces[vocabulary.index("<s>")] == f"<s>#{vocabulary.index('<s>')}"  # not the start of ours
    assert vocabulary.index("<s>") in ours.special_ids


def test_ids_of_nllb_are_those_of_the_library_one_higher():
    """Its ids: four entries of fairseq, then the pieces from the fourth on; the languages behind them."""
    model = trained_model("bpe", "nfkc")
    reference = library(model)
    names = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *(piece.text for piece in model.pieces[3:]),
        "eng_Latn",
        "kor_Hang",
        "<mask>",
    ]
    vocabulary = renumbered(names, "<pad>", None, "</s>")
    tags = {code: vocabulary.index(code) for code in ("eng_Latn", "kor_Hang")}
    ours = SentencePieceTokenizer(model, vocabulary, vocabulary.index("<unk>"), tags)
    for line in ALL:
        shifted = [id + 1 if id else 3 for id in reference.encode(line)]
        assert ours.encode(line, "eng_Latn") == mapped([names.index("eng_Latn"), *shifted], names, vocabulary), line
    assert not {*ours.encode(NASTY[9])} & ours.special_ids


def test_fast_tokenizer_of_nllb_gives_the_same_ids_for_ordinary_lines():
    """It runs on another library: 18 of 22 nasty lines, and 1,224 of 2,000 mixed ones, were equal in November 2026."""
    model = trained_model("bpe", "nfkc")
    pieces = {piece.text: piece.score for piece in model.pieces[3:]}
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    vocab = {name: id for id, name in enumerate(names)}
    merges = generate_merges(vocab, pieces)
    charsmap = model.normalisation.charsmap
    theirs = NllbTokenizer(vocab, merges, src_lang="eng_Latn", tgt_lang="kor_Hang", _spm_precompiled_charsmap=charsmap)
    names = sorted(theirs.get_vocab(), key=theirs.get_vocab().__getitem__)
    vocabulary = renumbered(names, "<pad>", None, "</s>")
    tags = {code: vocabulary.index(code) for code in ("eng_Latn", "kor_Hang")}
    ours = SentencePieceTokenizer(model, vocabulary, vocabulary.index("<unk>"), tags)
    for line in map(str.strip, LINES):
        assert [*ours.encode(line, "eng_Latn"), EOS] == mapped(theirs(line)["input_ids"], names, vocabulary), line
        labels = theirs(text_target=line)["input_ids"]
        assert [*ours.encode(line, "kor_Hang"), EOS] == mapped(labels, names, vocabulary), line
    nasty = [[*ours.encode(line, "eng_Latn"), EOS] for line in NASTY]
    assert nasty != [mapped(theirs(line)["input_ids"], names, vocabulary) for line in NASTY]  # the control


def test_forbidden_words_have_their_tokens():
    tokenizer = tokenizer_of(trained_model("bpe"))
    forbidden = forbidden_sequences(Glossary([Entry("Monday", ("Monday",), "any")]), tokenizer)
    assert {tuple(tokenizer.encode(text)) for text in ("Monday", "(Monday", "MONDAY")} <= {*forbidden}
    assert tuple(tokenizer.encode("Mondays")) not in forbidden  # the control


def test_term_without_tokens_is_missed():
    """Such as a zero-width space alone, which the normalisation of SentencePiece leaves out."""
    tokenizer = tokenizer_of(trained_model("bpe", "nmt_nfkc"))
    assert tokenizer.encode("\u200b") == []
    torch.manual_seed(0)
    model = build(TINY, len(tokenizer)).eval()
    glossary = Glossary([Entry("Lee", ("\u200b",)), Entry("him", ("Monday",))])
    search, safeguards = SearchConfig(beam=4, extra_length=8), Safeguards(faults=False, glossary=glossary)
    assert target_tokens("\u200b", tokenizer) == ((), ())
    assert {tokenizer.decode(ids) for ids in target_tokens("Monday", tokenizer)} == {"Monday"}  # the control
    for text in ("Dr. Lee", "Dr. Lee met him."):
        assert "Lee" in Translator(model, tokenizer, search, safeguards).translate(text).terms_missed


def test_term_behind_an_unknown_word_has_no_position():
    tokenizer = tokenizer_of(trained_model("bpe"))
    safeguards = Safeguards(glossary=Glossary([Entry("Monday", ("lundi",), "any")]))
    translator = Translator(build(TINY, len(tokenizer)).eval(), tokenizer, safeguards=safeguards)
    for text, position in (("Dr. Lee, Monday", (9, 15)), ("\U00010348\U00010330, Monday", (0, 0))):
        (segment,) = translator.segmenter.cut(text, tokenizer.encode(text), 99)
        assert (tokenizer.unknown in segment.ids) == (position == (0, 0))
        (term,) = translator.safeguards.segment_terms(segment, tokenizer)
        assert (term.start, term.end) == position


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_text_comes_back_as_the_library_gives_it_back(kind: tuple[str, str, bool]):
    model = trained_model(*kind)
    tokenizer, reference = tokenizer_of(model), library(model)
    known = [line for line in ALL if tokenizer.unknown not in tokenizer.encode(line)]
    assert len(known) > 80
    assert [tokenizer.decode(tokenizer.encode(line)) for line in known] == reference.decode(reference.encode(known))
    assert [tokenizer.plain_spaces(line) for line in known] == reference.decode(reference.encode(known))
    assert tokenizer.decode([PAD, BOS, *tokenizer.encode("a dog"), EOS]) == "a dog"


def test_bytes_that_are_no_text_become_one_sign_each():
    tokenizer = tokenizer_of(trained_model("bpe", "nfkc", True))
    byte = {value: id for id, value in tokenizer.byte_values.items()}
    assert tokenizer.decode([byte[value] for value in "한".encode()]) == "한"
    assert tokenizer.decode([byte[0xED], byte[0x95]]) == "\ufffd\ufffd"
    assert len(tokenizer.byte_values) == 256


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_words_and_spans_are_those_of_the_text(kind: tuple[str, str, bool]):
    tokenizer: SideTokenizer = tokenizer_of(trained_model(*kind), ("de",))
    for line in ALL:
        ids = tokenizer.encode(line, "de")
        text = tokenizer.decode(ids)
        assert [word.label for word in words(tokenizer, ids)] == text.split()
        covered = [position for word in fill_gaps(words(tokenizer, ids), tokenizer, ids) for position in word.tokens]
        assert covered == list(range(len(ids) + 1))
        assert fill_gaps(words(tokenizer, ids), tokenizer, ids)[0].label == "<tag:de>"
        for word in subwords(tokenizer, ids):
            (position,) = word.tokens
            if ids[position] not in tokenizer.byte_values:
                assert tokenizer.pieces[ids[position]].strip() == text[slice(*word.span)].strip()
        assert character_spans(tokenizer, ids)[0] == (0, 0)


def test_word_inside_others_has_no_space_in_front():
    tokenizer = tokenizer_of(trained_model("bpe"))
    assert tokenizer.decode(tokenizer.encode_inside("Monday")) == "Monday"
    joined = [*tokenizer.encode("("), *tokenizer.encode_inside("Monday")]
    assert tokenizer.decode(joined) == "(Monday"
    assert tokenizer.decode([*tokenizer.encode("("), *tokenizer.encode("Monday")]) == "( Monday"  # the control


def test_tokenizer_comes_back_from_its_file(tmp_path: Path):
    tokenizer = tokenizer_of(trained_model("unigram", "nmt_nfkc", True), ("de", "ko"))
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    found = load_tokenizer(tmp_path / "tokenizer.json", len(tokenizer))
    assert isinstance(found, SentencePieceTokenizer)
    assert found.to_json() == tokenizer.to_json()
    assert (found.pieces, found.tags, found.special_ids) == (tokenizer.pieces, tokenizer.tags, tokenizer.special_ids)
    assert found.encode_all(ALL, "ko") == tokenizer.encode_all(ALL, "ko")
    other = tokenizer_of(trained_model("bpe", "nfkc", True), ("de", "ko"))
    assert other.to_json() != tokenizer.to_json()  # the control
    with pytest.raises(DragomanError, match="not a dragoman tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")


DAMAGE = {
    "no list": {"pieces": {"a": 1}},
    "a piece that is no string": {"pieces": ["<pad>", "<s>", "</s>", "<unk>", 5]},
    "a piece twice": {"pieces": ["<pad>", "<s>", "</s>", "<unk>", "a", "a"]},
    "an empty piece": {"pieces": ["<pad>", "<s>", "</s>", "<unk>", ""]},
    "an unknown word out of range": {"unknown": 10**6},
    "an unknown word that is the end": {"unknown": 2},
    "an unknown word that is no number": {"unknown": "3"},
    "a tag out of range": {"tags": {"de": -1}},
    "a tag that is a special entry": {"tags": {"de": 0}},
    "two tags that are one": {"tags": {"de": 5, "ko": 5}},
    "a tag that is no name": {"tags": {"a b": 5}},
    "tags that are a list": {"tags": [5]},
    "a model that is not base64": {"sentencepiece": "§"},
    "a model that is something else": {"sentencepiece": "AAAA"},
    "no model": {"sentencepiece": None},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_file_is_refused(case: str, tmp_path: Path):
    content = json.loads(tokenizer_of(trained_model(), ("de",)).to_json())
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(content))
    load_tokenizer(file)  # the control
    file.write_text(json.dumps({**content, **DAMAGE[case]}))
    with pytest.raises(DragomanError, match=r"tokenizer\.json: not a dragoman tokenizer"):
        load_tokenizer(file)


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(DragomanError, match=r"pip install 'dragoman\[import\]'"):
        tokenizer_of(dataclasses.replace(trained_model()))


def test_encode_refuses_what_is_no_text_and_no_tag():
    tokenizer = tokenizer_of(trained_model(), ("de",))
    with pytest.raises(UsageError, match="a text must be a string, not 5"):
        tokenizer.encode(5)  # type: ignore[arg-type]
    with pytest.raises(DragomanError, match="unknown tag 'fr': choose from de"):
        tokenizer.encode("a", "fr")
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert repr(tokenizer) == f"<SentencePieceTokenizer: {len(tokenizer)} subwords, tags de>"
