"""Tokenizers as imported models have them: SentencePiece models and the ids of a vocabulary; lines to cut with them."""

import io
from functools import cache

import sentencepiece
from conftest import toy_pairs
from sentences import MARKED

from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.spm import SentencePieceModel, parse_spm

NASTY = [
    "",
    " ",
    "  two  spaces   between  ",
    "\ttab\tand\u00a0no-break\u3000wide\n line",
    "▁a▁b ▁▁ c",
    "." * 41 + " " + "…" * 7 + "!" * 33,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ">>de<< inside >>ko<< and >>xx<< >>de<<",
    "a tag >>de<< inside",
    "__de__ eng_Latn </s> <s> <pad> <unk> <0x41>",
    "\u1112\u1161\u11ab\u1100\u1173\u11af and 한글",  # decomposed Hangul, then composed
    "e\u0301 \u212b \ufb01 ｆｕｌｌ ｱｲｳ ①②",
    "สวัสดีครับ ผมชื่อ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "𐍈𐌰 ꙮ ᚠᚢᚦ ⰀⰁ unknown scripts 漢字かな",
    "a\u200bb\u200dc\ufeffd\u00ade",
    "\x01\x02\x7f control",
    "\ufffd\ufffe\U0010ffff",
    "İstanbul ıI ŞŞ ß ẞ",
    "1,234.56 + 7×8 = ½ 10² €5 %20",
    "http://example.com/a?b=c&d=e#f user@example.org",
    "שלום עולם مرحبا بالعالم",
]
LINES = [text.replace("|", "") for _, texts in MARKED.values() for text in texts]


@cache
def trained_model(
    kind: str = "unigram", rule: str = "nmt_nfkc", byte_fallback: bool = False, side: int | None = None, size: int = 400
) -> SentencePieceModel:
    """A model of all lines, or of one side of the toy pairs (0: English, 1: Korean)."""
    lines = LINES if side is None else [pair[side] for pair in toy_pairs()]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=size + 256 * byte_fallback,
        model_type=kind,
        normalization_rule_name=rule,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        character_coverage=0.98 if side is None else 1.0,
        max_sentence_length=4192,
        num_threads=1,
        minloglevel=2,
    )
    return parse_spm(written.getvalue())


def renumbered(names: list[str], pad: str | None, start: str | None, end: str) -> list[str]:
    """A vocabulary in our order: padding, start and end first; one that there is not gets a name that no text has."""
    first = [pad or "<our pad>", start or "<our start>", end]
    return [*first, *(name for name in names if name not in first)]


def tokenizer_of(model: SentencePieceModel, tags: tuple[str, ...] = ()) -> SentencePieceTokenizer:
    """The tokenizer of a model whose vocabulary is the SentencePiece model, as HPLT's are, with tags behind it."""
    names = [piece.text for piece in model.pieces]
    vocabulary = renumbered([*names, *(f">>{tag}<<" for tag in tags)], None, None, "</s>")
    ids = {tag: vocabulary.index(f">>{tag}<<") for tag in tags}
    return SentencePieceTokenizer(model, vocabulary, vocabulary.index("<unk>"), ids)
