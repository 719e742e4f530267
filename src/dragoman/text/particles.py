"""Fit Korean particles to the words before them: 은 or 는, 이 or 가, 을 or 를, 과 or 와, 으로 or 로."""

import re

PARTICLE = re.compile(r"(\S)\(([가-힣]+)/([가-힣]+)\)")  # the form after a consonant / after a vowel
# What follows a noun as one word with it: a plural, then particles or a form of 이다.
ENDING = re.compile(
    "들?(?:은|는|이|가|을|를|과|와|으로|로|에|에서|에게|의|도|만|까지|부터|처럼|보다|이나|나|이란|란|인|이다|입니다)?(?:는|은|도|만|의)?"
)
FORMS = {"은": "는", "이": "가", "을": "를", "과": "와", "으로": "로", "이나": "나", "이란": "란"}  # after a vowel
DIGITS = "영일이삼사오육칠팔구"  # how they are read; the names of all powers of ten end in a consonant, as that of 0
LETTERS = {"L": "엘", "M": "엠", "N": "엔", "R": "알"}  # whose names end in a consonant


def fit_particles(text: str) -> str:
    """Return the text with the form of each particle that fits: '사과(은/는)' becomes '사과는'."""
    return PARTICLE.sub(lambda match: match[1] + choose_particle(match[1], match[2], match[3]), text)


def swap_noun(word: str, noun: str, other: str) -> str:
    """Return a word that begins with a noun with another one in its place, and the particle that fits it.

    >>> swap_noun("개는", "개", "말"), swap_noun("말을", "말", "개")
    ('말은', '개를')
    """
    ending = word[len(noun) :]
    for after_consonant, after_vowel in FORMS.items():
        if ending in (after_consonant, after_vowel):
            return other + choose_particle(other[-1], after_consonant, after_vowel)
    return other + ending


def choose_particle(before: str, after_consonant: str, after_vowel: str) -> str:
    """Return the form of a Korean particle that fits the character `before` it: after a final consonant, or a vowel.

    The final consonant ㄹ counts as a vowel for 으로/로. Digits and capital letters count as they are read, and
    whatever else is not a Hangul syllable as a vowel for all.
    """
    syllable = DIGITS[int(before)] if before in "0123456789" else LETTERS.get(before, before)
    final = (ord(syllable) - 0xAC00) % 28 if "가" <= syllable <= "힣" else 0
    if final == 0 or (final == 8 and after_consonant == "으로"):
        return after_vowel
    return after_consonant
