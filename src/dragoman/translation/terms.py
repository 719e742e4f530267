"""Turn terms into tokens, and forbidden words into the token sequences that a search must not use."""

from functools import lru_cache

from dragoman.data.tokenizer import BYTE
from dragoman.data.tokenizers import SideTokenizer
from dragoman.text.glossary import HANGUL, LETTER, Glossary, capitalise

# What a token begins or ends with: a mark or a character that stands for itself; a letter or digit of a word; a letter
# of a word that a term may end inside of, because endings follow without a space.
OPEN, WORD, STEM = 0, 1, 2
OPENING_MARKS = "¿¡([{«“‘„\"'—–-"  # what a word may follow without a space


def target_tokens(target: str, tokenizer: SideTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens of a target term after a space, and those after another character, such as a bracket."""
    return tuple(tokenizer.encode(target)), tuple(tokenizer.encode_inside(target))


def forbidden_sequences(words: Glossary, tokenizer: SideTokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of forbidden words, in every case in which they are forbidden.

    A word is tokenised as at the beginning of a text, where it begins with a space as inside a text, and as after each
    opening mark. Tokens that contain a whole forbidden word, as " 개가" contains "개", are sequences of their own.
    """
    spellings = dict.fromkeys(
        form
        for entry in words.entries
        for form in (entry.source, entry.source.lower(), capitalise(entry.source), entry.source.upper())
        if entry.matches(form)
    )
    forms = [mark + spelling for spelling in spellings for mark in ("", *OPENING_MARKS)]
    longer = [
        [id]
        for id, piece in enumerate(tokenizer.pieces)
        if any(spelling in piece for spelling in spellings) and may_hold_words(piece) and words.find(piece)
    ]
    return tuple(dict.fromkeys(tuple(ids) for ids in [*tokenizer.encode_all(forms), *longer]))


def may_hold_words(piece: str) -> bool:
    """Return whether a piece of the vocabulary can be more than one whole word: where words have no space between."""
    kind = character_class(piece.strip()[:1])
    return kind == OPEN or (kind == STEM and piece.startswith(" "))


def token_boundaries(tokenizer: SideTokenizer) -> list[tuple[int, int]]:
    """Return, for each token, the `character_class` that it begins with and ends with."""
    return [piece_boundaries(piece) for piece in tokenizer.pieces]


def piece_boundaries(piece: str) -> tuple[int, int]:
    """Return the `character_class` of the first and of the last character of a piece of the vocabulary."""
    if piece in BYTE:  # beyond ASCII it is most likely part of a letter
        piece = chr(BYTE[piece]) if BYTE[piece] < 0x80 else "x"
    return character_class(piece[:1]), character_class(piece[-1:])


@lru_cache(10_000)  # vocabularies have tens of thousands of pieces and few characters
def character_class(character: str) -> int:
    """Return STEM for Hangul, WORD for letters, marks and digits of other scripts with spaces between words, else OPEN.

    So Han, kana and Thai characters, spaces, punctuation and '' are OPEN. '_' counts as a letter.
    """
    if HANGUL.match(character):
        return STEM
    return WORD if LETTER.match(character) else OPEN
