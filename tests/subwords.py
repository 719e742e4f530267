"""SentencePiece models that the library trains, and lines that are hard to cut into subwords."""

import io
import itertools
import random
from collections.abc import Iterable
from functools import cache

import sentencepiece
from conftest import toy_pairs

# Runs, white space, the sign for a space, tags inside, scripts and characters that were never learned.
PARTS = [
    *(
        "." * 7,
        "-" * 30,
        "aaaaaaaa",
        "ㅋㅋㅋㅋ",
        "!?!?",
        "…",
        "  ",
        "\t",
        "▁",
        "▁▁the",
        " ",
        "\u3000",
        "\u200b",
        "\n",
        "\r",
    ),
    *(">>de<<", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<", "&amp;", "@@", "__de__"),
    *("개", "\u1100\u1162", "\u1112\u1161\u11ab", "e\u0301", "ǆ", "ﬁ", "Ⅷ", "①", "½", "ﷺ", "Ａ", "ｶﾞ", "℡", "İ", "ß"),
    *("ไทยนี้", "नमस्ते", "日本語", "Привет", "👩‍👩‍👧", "🇰🇷", "\ufffd", "\ufeff", "\u00ad", "\x7f", "\x01", "𝔘", "\ue000"),
    *("the", "dog", "sees", "5", "1234567890", "고양이가", "봐요."),
]


def nasty_lines(count: int = 2000) -> list[str]:
    """Return so many different lines, the empty one among them: single parts first, then several together."""
    drawn = random.Random(0)
    lines = dict.fromkeys(["", " ", *PARTS])
    while len(lines) < count:
        separator = drawn.choice(["", " ", "  "])
        lines[separator.join(drawn.choices(PARTS, k=drawn.randint(2, 9)))] = None
    return list(lines)[:count]


@cache
def trained_spm(
    algorithm: str = "unigram", normalisation: str = "nmt_nfkc", vocabulary: int = 200, **more: object
) -> bytes:
    """Return the file of a SentencePiece model of toy sentences in English and Korean and of a few other characters."""
    lines = [*itertools.chain.from_iterable(toy_pairs(300)), "é ñ ß ¿ ¡ 日本 ▁ >>de<< . , ! - 0123456789"]
    return train_spm(lines, algorithm, normalisation, vocabulary, **more)


def train_spm(lines: Iterable[str], algorithm: str, normalisation: str, vocabulary: int, **more: object) -> bytes:
    """Return the file of a SentencePiece model of these lines."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=file,
        model_type=algorithm,
        normalization_rule_name=normalisation,
        vocab_size=vocabulary,
        hard_vocab_limit=False,
        minloglevel=2,
        **more,
    )
    return file.getvalue()
