"""SentencePiece models of strangers: what is sound comes through unchanged, and nothing else comes through."""

import struct
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sentencepiece
from subwords import nasty_lines, trained_spm

from dragoman.data import spm
from dragoman.data.spm import SentencePieceModel, check_charsmap, parse_spm, read_spm, write_bytes
from dragoman.errors import DragomanError

MODELS: dict[str, dict[str, object]] = {
    **{
        f"{algorithm} {rule}": {"algorithm": algorithm, "normalisation": rule}
        for algorithm in ("unigram", "bpe")
        for rule in ("nmt_nfkc", "nfkc", "identity", "nmt_nfkc_cf")
    },
    "unigram bytes": {"algorithm": "unigram", "byte_fallback": True, "vocabulary": 420},
    "bpe bytes": {"algorithm": "bpe", "byte_fallback": True, "vocabulary": 420},
    "plain spaces": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "own words": {"user_defined_symbols": ">>de<<,▁▁,ㅋㅋ", "control_symbols": "<2ko>", "pad_id": 3},
    "as M2M100": {"algorithm": "bpe", "unk_id": 3, "bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_surface": "?"},
}


@pytest.mark.parametrize("name", MODELS)
def test_model_written_anew_gives_the_same_ids(name: str):
    data = trained_spm(**MODELS[name])
    found = parse_spm(data)
    anew = found.to_bytes()
    assert parse_spm(anew) == found
    assert parse_spm(anew).to_bytes() == anew
    theirs, ours = (sentencepiece.SentencePieceProcessor(model_proto=each) for each in (data, anew))
    assert [piece.text for piece in found.pieces] == [theirs.id_to_piece(id) for id in range(theirs.vocab_size())]
    lines = nasty_lines()
    ids = theirs.encode(lines)
    assert ours.encode(lines) == ids
    assert ours.encode(lines, out_type=str) == theirs.encode(lines, out_type=str)
    assert ours.decode(ids) == theirs.decode(ids)
    every = list(range(theirs.vocab_size()))
    assert ours.decode(every) == theirs.decode(every)
    for special in ("unk_id", "bos_id", "eos_id", "pad_id"):
        assert getattr(ours, special)() == getattr(theirs, special)()


CHANGES: dict[str, Callable[[SentencePieceModel], SentencePieceModel]] = {
    "a score": lambda model: replace(
        model, pieces=tuple(piece._replace(score=-99.0) if piece.text == "▁dog" else piece for piece in model.pieces)
    ),
    "the map of characters": lambda model: replace(model, normalisation=replace(model.normalisation, charsmap=b"")),
    "the space in front": lambda model: replace(model, normalisation=replace(model.normalisation, dummy_prefix=False)),
    "several spaces": lambda model: replace(model, normalisation=replace(model.normalisation, single_spaces=False)),
    "the algorithm": lambda model: replace(model, algorithm="bpe"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_what_is_kept_gives_other_ids(change: str):
    """The control for the test above."""
    found = parse_spm(trained_spm())
    theirs = sentencepiece.SentencePieceProcessor(model_proto=found.to_bytes())
    ours = sentencepiece.SentencePieceProcessor(model_proto=CHANGES[change](found).to_bytes())
    assert ours.encode(nasty_lines()) != theirs.encode(nasty_lines())


def test_parse_spm_keeps_only_what_it_knows():
    """The library runs the tests that a file has of itself, and a trainer's paths are in its file."""
    data = trained_spm()
    more = write_bytes(4, write_bytes(1, write_bytes(1, b"a") + write_bytes(2, b"b"))) + write_bytes(77, b"secret")
    assert parse_spm(data + more).to_bytes() == parse_spm(data).to_bytes()


# Hostile files.


def piece(text: bytes, score: bytes = b"", kind: bytes = b"") -> bytes:
    return write_bytes(
        1, write_bytes(1, text) + (b"\x15" + score if score else b"") + (b"\x18" + kind if kind else b"")
    )


def number(value: float) -> bytes:
    return struct.pack("<f", value)


def with_map(size: int, units: list[int], texts: bytes = b"x\0") -> bytes:
    trie = np.array(units, "<u4").tobytes()
    return size.to_bytes(4, "little") + trie + texts


def unit(offset: int, label: int = 0, leaf: bool = False) -> int:
    return offset << 10 | leaf << 8 | label


def trie(changes: dict[int, int], length: int = 512) -> list[int]:
    """A double array whose root has its children at 256 XOR label."""
    units = [1 << 31] * length
    for at, value in ({0: unit(256)} | changes).items():
        units[at] = value
    return units


A = 256 ^ ord("a")
SOUND = trie({A: unit(A ^ 512, ord("a"), leaf=True), 512: 1 << 31}, 768)


def loop() -> list[int]:
    """'a' leads to the children of the root, 'a' among them."""
    return trie({A: unit(A ^ 256, ord("a"))})


def many_prefixes() -> list[int]:
    """a, aa, aaa, ... are all replaced."""
    units = trie({}, 256 * 40)
    for depth in range(1, 36):
        here = 256 * depth ^ ord("a")
        units[here] = unit(here ^ 256 * (depth + 1), ord("a"), leaf=True)
    return units


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 pieces are for the unknown"),
    "no model": (b"hello, world\n", "begins no field|ends within"),
    "a pickle": (b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x02os\x94.", "begins no field|ends within"),
    "cut off": (trained_spm()[:5000], "ends within"),
    "double pieces": (piece(b"a") + piece(b"b") + piece(b"a"), "piece 2 is there twice"),
    "an empty piece": (piece(b"a") + piece(b""), "piece 1 is empty"),
    "a piece without text": (write_bytes(1, b""), "piece 0 is empty"),
    "a score that is no number": (piece(b"a", number(float("nan"))), "piece 0 has the score nan"),
    "an infinite score": (piece(b"u", kind=b"\x02") + piece(b"a", number(float("-inf"))), "piece 1 has the score -inf"),
    "a huge score": (piece(b"u", kind=b"\x02") + piece(b"a", number(-3e38)), "piece 1 has the score -"),
    "a score of another type": (write_bytes(1, write_bytes(1, b"a") + b"\x10\x01"), "piece 0 has the score 1"),
    "an unknown kind": (piece(b"a", kind=b"\x07"), "piece 0 is of an unknown kind, 7"),
    "no unknown piece": (piece(b"a"), "0 pieces are for the unknown"),
    "two unknown pieces": (piece(b"a", kind=b"\x02") + piece(b"b", kind=b"\x02"), "2 pieces are for the unknown"),
    "a piece that is no UTF-8": (piece(b"\xff"), "piece 0 is not UTF-8"),
    "a piece with a zero byte": (piece(b"a\0b"), "piece 0 has a character that is zero"),
    "a long piece": (piece(b"a" * 1001), "piece 0 has 1,001 characters"),
    "bytes without fallback": (piece(b"u", kind=b"\x02") + piece(b"<0x41>", kind=b"\x06"), "1 pieces are for bytes"),
    "fallback without bytes": (piece(b"u", kind=b"\x02") + write_bytes(2, b"\x98\x02\x01"), "0 pieces are for bytes"),
    "ten million pieces": (piece(b"a") * 2 + b"\x0a\x00" * 10_000_000, "more than 16,777,216 bytes"),
    "millions of empty pieces": (b"\x0a\x00" * 8_000_000, "more than 400,000 fields"),
    "too many pieces": (piece(b"a") * 300_001, "more than 300,000 pieces"),
    "words": (trained_spm(algorithm="word", vocabulary=60), "its type is 3"),
    "characters": (trained_spm(algorithm="char", vocabulary=60), "its type is 4"),
    "an unknown type": (write_bytes(2, b"\x18\x63"), "its type is 99"),
    "spaces behind words": (trained_spm(treat_whitespace_as_suffix=True), "do not begin with '▁'"),
    "real spaces": (write_bytes(3, b"\x28\x00"), "do not begin with '▁'"),
    "a second map": (write_bytes(5, write_bytes(2, b"abcd")), "after joining"),
    "a group": (b"\x0b" * 10, "byte 1 begins no field"),
    "a number without end": (b"\x80" * 20, "does not end"),
    "a field of 2^60 bytes": (b"\x0a" + b"\x80" * 8 + b"\x10", "within a field of 1,152,921,504,606,846,976 bytes"),
    "a flag that is a text": (write_bytes(3, b"\x1a\x01a"), "setting 3"),
    "a text that is a number": (write_bytes(2, b"\xe0\x02\x05"), "instead of bytes"),
    "a long name": (write_bytes(3, write_bytes(1, b"a" * 2000)), "setting 1 has 2,000 bytes"),
}
MAPS: dict[str, tuple[bytes, str]] = {
    "a trie that is longer than its map": (with_map(4096, SOUND), "4,096 of them for the trie"),
    "a trie of 3 bytes": (b"\x03\0\0\0abc", "3 of them for the trie"),
    "a huge trie": (b"\0\0\0\x40" + bytes(600_000), "for the trie"),
    "a loop": (with_map(2048, loop()), "has a loop"),
    "a way out of it": (with_map(2048, trie({A: unit(A ^ 1 << 20, ord("a"))})), "leads out of itself"),
    "a root that leads out": (with_map(4, [unit(512)]), "leads out of itself"),
    "a text out of range": (with_map(3072, [*SOUND[:512], 1 << 31 | 9, *SOUND[513:]], b"x\0"), "does not end"),
    "a text without end": (with_map(3072, SOUND, b"x"), "does not end"),
    "a long text": (with_map(3072, SOUND, b"x" * 300 + b"\0"), "does not end"),
    "a text that is no UTF-8": (with_map(3072, SOUND, b"\xff\0"), "is not UTF-8"),
    "a key without a text": (with_map(3072, [*SOUND[:512], unit(1, 5), *SOUND[513:]]), "key without a text"),
    "an empty key": (with_map(2048, trie({0: unit(256, leaf=True), 256: 1 << 31})), "key without a text"),
    "keys that all begin alike": (with_map(4 * 256 * 40, many_prefixes()), "more than 32 keys"),
}
HOSTILE |= {name: (write_bytes(3, write_bytes(2, data)), words) for name, (data, words) in MAPS.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_in_one_sentence(tmp_path: Path, name: str):
    data, words = HOSTILE[name]
    file = tmp_path / "source.spm"
    file.write_bytes(data)
    with pytest.raises(DragomanError, match=words) as refused:
        read_spm(file)
    message = str(refused.value)
    assert message.startswith(f"{file}: not a sound SentencePiece model: ")
    assert len(message) < 400
    assert "\n" not in message


def test_map_that_the_hostile_ones_are_made_of_is_sound():
    """The control for the maps above: 'a' becomes 'x'."""
    anew = check_charsmap(with_map(3072, SOUND))
    model = replace(parse_spm(trained_spm()), normalisation=spm.Normalisation(charsmap=anew))
    found = sentencepiece.SentencePieceProcessor(model_proto=model.to_bytes()).normalize("banana")
    assert found == "▁bxnxnx"


@pytest.mark.slow  # what it measures is only fair on a machine with nothing else to do
@pytest.mark.parametrize("name", ["ten million pieces", "millions of empty pieces", "a loop", "a huge trie"])
def test_hostile_file_costs_little(tmp_path: Path, name: str):
    file = tmp_path / "source.spm"
    file.write_bytes(HOSTILE[name][0])
    began = time.process_time()
    with pytest.raises(DragomanError):
        read_spm(file)
    assert time.process_time() - began < 1
    tracemalloc.start()
    with pytest.raises(DragomanError):
        read_spm(file)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()


@pytest.mark.slow
def test_changed_bytes_are_refused_or_come_through_as_the_library_reads_them():
    """What is let through never makes the library fail: it loads, and cuts every line."""
    random, lines, through = Random(0), nasty_lines(60), 0
    for data in (trained_spm(normalisation="identity"), trained_spm("bpe", byte_fallback=True, vocabulary=420)):
        for _ in range(150):
            changed = bytearray(data)
            for _ in range(random.choice((1, 1, 2, 8))):
                changed[random.randrange(len(data))] = random.randrange(256)
            try:
                found = parse_spm(bytes(changed))
            except (ValueError, struct.error):
                continue
            through += 1
            assert len(sentencepiece.SentencePieceProcessor(model_proto=found.to_bytes()).encode(lines)) == len(lines)
    assert 20 < through < 280
