"""Subwords: every text comes back, and nothing in a text or in a file is ever more than text."""

import contextlib
import copy
import itertools
import json
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data import tokenizer as module
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import BOS, BYTES, EOS, PAD, RESERVED, SPECIAL, Tokenizer, normalise, sample_texts
from dragoman.errors import DragomanError, UsageError

LITERALS = [*SPECIAL, "<0x41>", "<0x0A>", "<0xFF>", "<unk>", "a</s>b", " </s>", "<s><pad></s>"]
ODD = ["", "  ", " a", "a ", "a\u2028b", "e\u0301", "\u1112\u1161", *" \0\n\r\ufeff\u200d\u202e😀"]

HAN = "".join(chr(0x4E00 + i) for i in range(1000))  # a thousand characters

NEW = ["Die Überprüfung der Überprüfungen", "überprüft ☃ ☃ 물고기", "The doghouse and the cathouse of 2024"] * 20

PARTS = [*LITERALS, *ODD, *NEW[:3], "<tag:med>", "<tag:", "med", ">", "<", "tag", ":", "n", "물", "ü", "house"]
texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.lists(st.sampled_from(PARTS)).map("".join)


@pytest.fixture(scope="module")
def tagged(pairs: list[Pair]) -> Tokenizer:
    tags = ["<tag:med> <tag:news>"] * 99
    return Tokenizer.train([text for pair in pairs for text in pair] + tags, tags=("med", "news"))


@pytest.fixture(scope="module")
def extended(tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer.extend(NEW, len(tokenizer) + 40, tags=("sea",))


@pytest.fixture(scope="module", params=["plain", "tagged", "extended"])
def each(request: pytest.FixtureRequest, tokenizer: Tokenizer, tagged: Tokenizer, extended: Tokenizer) -> Tokenizer:
    """Each kind of tokenizer in turn."""
    return {"plain": tokenizer, "tagged": tagged, "extended": extended}[request.param]


@settings(max_examples=300)
@given(text=texts)
def test_texts_come_back_and_nothing_in_them_is_more_than_text(each: Tokenizer, text: str):
    ids = each.encode(text)
    assert each.decode(ids) == normalise(text)
    assert all(EOS < id < len(each) for id in ids)
    assert not set(ids) & each.special_ids
    assert each.encode_with_dropout(text, 0.0, Random(1)) == ids  # our own merging, and that of the library


@pytest.mark.slow
def test_characters_of_unicode_all_come_back(tokenizer: Tokenizer):
    scalars = [*range(0xD800), *range(0xE000, 0x110000)]
    chunks = ["".join(map(chr, scalars[i : i + 4096])) for i in range(0, len(scalars), 4096)]
    for chunk, ids in zip(chunks, tokenizer.encode_all(chunks), strict=True):
        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", chunk)
    # The control: without bytes, a character that was not learned would be lost.
    without, ids = copy.deepcopy(tokenizer), {piece: id for id, piece in enumerate(tokenizer.pieces)}
    without.inner.model = tokenizers.models.BPE(ids, tokenizer.merges, byte_fallback=False)
    assert without.decode(without.encode("a 😀 b")) != "a 😀 b"


@given(text=st.text(st.sampled_from("a가\ud800\udfff😀")))
def test_lone_surrogate_becomes_the_replacement_character(tokenizer: Tokenizer, text: str):
    expected = "".join("\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_name_of_a_reserved_entry_is_only_text(tokenizer: Tokenizer):
    learned = Tokenizer.train(["</s> <s> <pad> <0x41> <0x0A>"] * 50)  # nor is it learned
    assert learned.pieces[: len(RESERVED)] == RESERVED == [*SPECIAL, *BYTES]
    for some, literal in itertools.product((tokenizer, learned), LITERALS):
        ids = some.encode(literal)
        assert some.decode(ids) == literal
        assert len(ids) > 1
        assert not {PAD, BOS, EOS} & set(ids)
    # The control: registering them with the library makes more of them than text.
    registered = tokenizers.Tokenizer.from_str(tokenizer.inner.to_str())
    registered.add_special_tokens(SPECIAL)
    assert EOS in registered.encode("a</s>b", add_special_tokens=False).ids


def test_decode_drops_what_is_no_text(tokenizer: Tokenizer):
    ids = tokenizer.encode("The dog sees 2 cats.")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "The dog sees 2 cats."
    assert set(tokenizer.decode([len(SPECIAL) + byte for byte in (0xED, 0x41)])) <= {"\ufffd", "A"}


def test_digits_stand_alone(tokenizer: Tokenizer):
    learned = Tokenizer.train(["in 2024 and 2024"] * 9)
    assert [learned.pieces[id] for id in learned.encode("2024")] == [" 2", "0", "2", "4"]
    # The control: other characters that always come together are one piece.
    assert [learned.pieces[id] for id in learned.encode("and")] == [" and"]


def test_tokenizer_file_is_read_as_by_the_library_of_the_format(each: Tokenizer, tmp_path: Path, pairs: list[Pair]):
    each.save(tmp_path / "a.json")
    ours = Tokenizer.load(tmp_path / "a.json")
    ours.save(tmp_path / "b.json")
    assert (ours.pieces, ours.merges, ours.tags) == (each.pieces, each.merges, each.tags)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    many = [text for pair in pairs for text in pair] + NEW + PARTS
    assert each.encode_all(many) == [each.encode(text) for text in many]
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "a.json"))
    assert {tag: theirs.token_to_id(f"<tag:{tag}>") for tag in each.tags} == each.tags
    for text in map(normalise, many):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ids == each.encode(text) == ours.encode(text)
        assert theirs.decode(ids, skip_special_tokens=False) == text


def test_same_texts_give_the_same_file(tmp_path: Path, pairs: list[Pair]):
    for name, some in (("a", pairs), ("b", pairs), ("c", pairs[:50])):
        Tokenizer.train(text for pair in some for text in pair).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()
    # Also where characters are equally frequent and only some of them fit into the vocabulary.
    assert len({Tokenizer.train([HAN, HAN], suggested=400).inner.to_str() for _ in range(5)}) == 1


@pytest.mark.parametrize("script", ["letters", "thousands of characters"])
def test_vocabulary_larger_than_the_text_supports_is_refused_with_the_largest(pairs: list[Pair], script: str):
    texts = [text for pair in pairs for text in pair]
    if script != "letters":
        texts = [HAN, HAN, *["der Zug"] * 50]
    with pytest.raises(UsageError, match=r"choose [0-9,]+ or fewer") as error:
        Tokenizer.train(texts, 5000)
    largest = int(str(error.value).split("choose ")[1].split(" ")[0].replace(",", ""))
    assert len(Tokenizer.train(texts, largest)) == largest
    with pytest.raises(UsageError):
        Tokenizer.train(texts, largest + 1)


def test_vocabulary_has_the_requested_or_the_supported_size(pairs: list[Pair]):
    texts = [text for pair in pairs for text in pair]
    assert [len(Tokenizer.train(texts, size)) for size in (300, 333, 400)] == [300, 333, 400]
    assert len(Tokenizer.train(texts, suggested=300)) == 300
    assert len(RESERVED) < len(Tokenizer.train(texts, suggested=5000)) < 5000


def test_rare_characters_do_not_crowd_out_subwords():
    learned = Tokenizer.train([HAN, HAN, *["der Zug fährt ab"] * 50], suggested=400)
    assert " Zug" in learned.pieces
    assert learned.decode(learned.encode(HAN)) == HAN


# A sample of a large corpus.


def test_sample_is_of_all_alike_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SAMPLE", 1000)
    texts = [str(number) for number in range(10_000)]
    found = sample_texts(iter(texts))
    assert found == sample_texts(texts)
    assert len(set(found)) == len(found) == 1000
    tenths = Counter(int(text) // 1000 for text in found)
    assert all(60 < tenths[tenth] < 140 for tenth in range(10))  # four standard deviations around 100
    # Sources and targets take turns: neither may be preferred.
    assert 420 < sum(int(text) % 2 for text in found) < 580
    assert sample_texts(texts[:1000]) == texts[:1000]
    assert len(sample_texts(texts[:1001])) == 1000


def test_very_long_texts_are_learned_from_their_beginning():
    learned = Tokenizer.train(["dog " * 250 + "cat " * 100_000] * 2)
    assert " dog" in learned.pieces
    assert " cat" not in learned.pieces


# Tags.


def test_tag_stands_in_front_and_is_no_text(tagged: Tokenizer):
    assert tagged.tags == {"med": len(RESERVED), "news": len(RESERVED) + 1}
    text = "The dog sees 2 cats."
    assert tagged.encode(text, "news") == [tagged.tags["news"], *tagged.encode(text)]
    assert tagged.encode_all([text, ""], "med") == [tagged.encode(text, "med"), [tagged.tags["med"]]]
    assert tagged.decode(tagged.encode(text, "news")) == text


def test_tag_that_is_unknown_or_no_name_is_refused(tagged: Tokenizer, tokenizer: Tokenizer):
    with pytest.raises(DragomanError, match=r"unknown tag 'legal': choose from med, news"):
        tagged.encode("a", "legal")
    with pytest.raises(DragomanError, match=r"unknown tag 'legal': this model was trained without tags"):
        tokenizer.encode("a", "legal")
    for tag in ("", "a b", "a>", "x" * 41, "a\n"):
        with pytest.raises(UsageError, match="a tag is 1 to 40 letters"):
            Tokenizer.train(["a"], tags=(tag,))
    with pytest.raises(UsageError, match=r"vocabulary 300 is too small: tags and bytes need 309"):
        Tokenizer.train(["a"], 300, tags=[f"t{n}" for n in range(50)])


# More subwords for new text.


def test_extended_tokenizer_keeps_ids_and_merges_and_needs_fewer_pieces(tokenizer: Tokenizer, extended: Tokenizer):
    assert extended.pieces[: len(tokenizer)] == tokenizer.pieces
    assert extended.merges[: len(tokenizer.merges)] == tokenizer.merges
    assert len(extended) == len(tokenizer) + 40
    assert extended.tags == {"sea": len(tokenizer)}
    assert tokenizer.extend(NEW, len(tokenizer) + 40, tags=("sea",)).merges == extended.merges
    before, after = (sum(map(len, some.encode_all(NEW))) for some in (tokenizer, extended))
    assert after < before / 2
    assert {"☃", "물", " Überprüfung"} <= set(extended.pieces)
    assert {"☃", "물", " Überprüfung"}.isdisjoint(tokenizer.pieces)


def test_new_subwords_are_made_of_old_ones(tokenizer: Tokenizer, extended: Tokenizer, pairs: list[Pair]):
    """A text of the old corpus is cut as before, or some of its pieces have grown together."""
    for text in [text for pair in pairs[:50] for text in pair]:
        old, new = ([some.pieces[id] for id in some.encode(text)] for some in (tokenizer, extended))
        ends = [set(itertools.accumulate(map(len, pieces))) for pieces in (old, new)]
        assert ends[1] <= ends[0]


def test_subwords_never_reach_over_a_word_or_into_bytes(tokenizer: Tokenizer):
    found = tokenizer.extend(["ab 漢字 cd 漢字 ef"] * 9 + ["漢"] * 99, 10_000)
    for piece in found.pieces[len(tokenizer) :]:
        assert "0x" not in piece
        assert " " not in piece[1:]
    assert {" 漢", "漢字"} & set(found.pieces)
    few = tokenizer.extend([HAN] * 9, len(tokenizer) + 20)  # ten of the characters; the others stay bytes
    assert len(few) == len(tokenizer) + 20
    assert "0x" not in "".join(few.pieces[len(tokenizer) :])


def test_extension_without_room_is_refused(tokenizer: Tokenizer):
    with pytest.raises(UsageError, match=rf"vocabulary 300 is too small: the existing subwords need {len(tokenizer)}"):
        tokenizer.extend(NEW, 300)
    assert tokenizer.extend(NEW, len(tokenizer)).pieces == tokenizer.pieces


# BPE-dropout.


@given(text=texts, rate=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 3))
def test_dropout_changes_no_text_and_leaves_characters_without_any_merge(
    tokenizer: Tokenizer, text: str, rate: float, seed: int
):
    ids = tokenizer.encode_with_dropout(text, rate, Random(seed))
    assert tokenizer.decode(ids) == normalise(text)
    assert ids == tokenizer.encode_with_dropout(text, rate, Random(seed))
    assert not set(ids) & tokenizer.special_ids
    characters = [[c] if c in tokenizer.pieces else [f"<0x{byte:02X}>" for byte in c.encode()] for c in normalise(text)]
    alone = tokenizer.encode_with_dropout(text, 1.0, Random(seed))  # every merge is left out
    assert [tokenizer.pieces[id] for id in alone] == ([" ", *itertools.chain(*characters)] if characters else [])


def outcomes(pieces: tuple[str, ...], ranks: dict[tuple[str, str], int], rate: float) -> Counter[tuple[str, ...]]:
    """The probability of each way to cut, from the definition: at each step each possible merge is left out by itself,
    and the best of the others is made.
    """
    possible = sorted((ranks[pair], place) for place, pair in enumerate(itertools.pairwise(pieces)) if pair in ranks)
    found: Counter[tuple[str, ...]] = Counter()
    found[pieces] += rate ** len(possible)  # type: ignore[assignment]
    for number, (_, place) in enumerate(possible):
        merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
        for way, probability in outcomes(merged, ranks, rate).items():
            found[way] += rate**number * (1 - rate) * probability  # type: ignore[assignment]
    return found


def test_dropout_cuts_as_often_in_each_way_as_the_definition_says():
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "a"), ("aa", "b"), ("c", "a")]
    pieces = [*RESERVED, " ", "a", "b", "c", *(left + right for left, right in merges)]
    learned = Tokenizer({piece: id for id, piece in enumerate(dict.fromkeys(pieces))}, merges)
    random, draws = Random(1), 20_000
    found = Counter(
        tuple(learned.pieces[id] for id in learned.encode_with_dropout("aabca", 0.3, random)) for _ in range(draws)
    )
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    expected = outcomes((" ", *"aabca"), ranks, 0.3)
    assert abs(sum(expected.values()) - 1) < 1e-12
    assert len(expected) > 8

    def distance(rate: float) -> float:
        """Half the sum of the differences of two distributions: 0 where they are equal, 1 where they are apart."""
        other = outcomes((" ", *"aabca"), ranks, rate)
        return sum(abs(found[way] / draws - other[way]) for way in {*found, *other}) / 2

    assert distance(0.3) < 0.02
    assert distance(0.25) > 0.03  # the control


# Files from strangers.

HOSTILE: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {  # what is changed of the model and its pieces
    "no vocabulary": lambda model, ids: model.pop("vocab"),
    "no merges": lambda model, ids: model.pop("merges"),
    "a piece missing": lambda model, ids: ids.pop("a"),
    "a byte missing": lambda model, ids: ids.pop("<0x41>"),
    "a special entry missing": lambda model, ids: ids.pop("</s>"),
    # There already, a gap, too large for 31 and for 64 bits, negative, and no numbers.
    **{
        f"id {id}": lambda model, ids, id=id: ids.update(a=id)  # type: ignore[misc]
        for id in (300, 100_000, 2**31, 2**64, -1, "300", None, float("nan"))
    },
    "bytes exchanged": lambda model, ids: ids.update({"<0x41>": 4, "<0x01>": 68}),
    "a surrogate as a piece": lambda model, ids: ids.update({"\ud800": ids.pop("a")}),
    **{
        f"pieces {some}": lambda model, ids, some=some: model.update(vocab=some)  # type: ignore[misc]
        for some in (["a", "b"], {}, None)
    },
    **{
        f"merges {some}": lambda model, ids, some=some: model.update(merges=some)  # type: ignore[misc]
        for some in ([["no", "such"]], [["<0x41>", "<0x42>"]], [["a", "b", "c"]], [[1, 2]], 5, "a b")
    },
}


@pytest.fixture
def file(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    tokenizer.save(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


def rewrite(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    file.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_by_name(file: Path, name: str):
    rewrite(file, lambda data: None)
    Tokenizer.load(file)  # so it is the change that is refused
    rewrite(file, lambda data: HOSTILE[name](data["model"], data["model"]["vocab"]))
    with pytest.raises(DragomanError) as error:
        Tokenizer.load(file)
    assert str(error.value).startswith(f"{file}: not a dragoman tokenizer")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("vocabulary", [4000, 32_000, pytest.param(256_000, marks=pytest.mark.slow)])
def test_file_of_any_honest_size_is_read(file: Path, vocabulary: int):
    """Subwords of up to 12 Hangul, each with its merge: more bytes than training would learn."""
    random, pieces = Random(0), [chr(0xAC00 + number) for number in range(1000)]
    merges = []
    known = set(pieces)
    while len(pieces) < vocabulary - len(RESERVED):
        left, right = random.choice(pieces), random.choice(pieces)
        if len(left + right) <= 12 and left + right not in known:
            merges.append((left, right))
            pieces.append(left + right)
            known.add(left + right)
    whole = Tokenizer({piece: id for id, piece in enumerate([*RESERVED, *pieces])}, merges)
    whole.save(file)
    assert Tokenizer.load(file, vocabulary).pieces == whole.pieces
    if vocabulary > 4000:
        with pytest.raises(DragomanError, match="it has more than"):
            Tokenizer.load(file, 4000)


NO_TOKENIZERS = [
    b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"1" * 5000, b"NaN", b'"text"', b"{}", b"[{}]",
    b'{"model": "BPE"}',
]  # fmt: skip


@pytest.mark.parametrize("data", NO_TOKENIZERS, ids=lambda data: data[:9])
def test_file_of_something_else_is_refused_by_name(file: Path, data: bytes):
    file.write_bytes(data)
    with pytest.raises(DragomanError, match=f"^{file}: not a dragoman tokenizer"):
        Tokenizer.load(file)
    file.unlink()
    with pytest.raises(DragomanError, match=f"^{file}: no such file"):
        Tokenizer.load(file)


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_file_is_refused_or_read_but_never_worse(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    """A panic of the library below is no Exception: it would come through here."""
    content = bytearray(tokenizer.inner.to_str().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.getbasetemp() / "damaged.json"
    file.write_bytes(content)
    with contextlib.suppress(DragomanError):
        Tokenizer.load(file).encode("The dog sees 2 cats. 😀")


BOMB = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
FLOOD = {
    "type": "Sequence",
    "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10} for _ in range(8)],
}


@pytest.mark.parametrize(("part", "value"), [("pre_tokenizer", BOMB), ("normalizer", FLOOD)])
def test_patterns_in_a_file_are_not_run(tokenizer: Tokenizer, file: Path, part: str, value: dict[str, Any]):
    rewrite(file, lambda data: data.update({part: value}))
    began = time.monotonic()
    text = "a" * 5000 + "b"
    assert Tokenizer.load(file).encode(text) == tokenizer.encode(text)
    assert time.monotonic() - began < 20  # the pattern alone would take for ever


def test_library_would_run_them(file: Path):
    """The control: in the library's hands the same file ends in a panic, which `except Exception` does not catch."""
    rewrite(file, lambda data: data.update(pre_tokenizer=BOMB))
    theirs = tokenizers.Tokenizer.from_file(str(file))
    with pytest.raises(BaseException, match="retry-limit") as error:
        theirs.encode("a" * 5000 + "b")
    assert not isinstance(error.value, Exception)
