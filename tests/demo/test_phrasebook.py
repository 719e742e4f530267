"""The made corpus: the same slots in every language, nothing left over, and held-out pairs that are really new."""

import itertools
import random
import re
from collections import Counter

import pytest

from dragoman.demo.phrasebook import LANGUAGES, NUMBER, SLOT, Phrasebook, fill, phrasebook, templates
from dragoman.demo.values import SLOTS
from dragoman.text.particles import choose_particle, fit_particles

PAIRS = [("en", "ko"), ("en", "de"), ("en", "es"), ("ko", "en"), ("de", "es")]
FEW = 3  # values per template here; the demonstration takes more


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def book(request: pytest.FixtureRequest) -> Phrasebook:
    return phrasebook(*request.param, per_template=FEW, seed=1)


def sentences(book: Phrasebook) -> list[str]:
    return [text for pairs in (book.train, book.dev, book.test) for pair in pairs for text in pair]


def test_templates_are_distinct_with_the_same_slots_in_all_languages():
    found = templates()
    for template in found:
        assert set(template) == set(LANGUAGES)
        slots = {language: Counter(SLOT.findall(text)) for language, text in template.items()}
        assert all(of_language == slots["en"] for of_language in slots.values()), template
        assert all(count == 1 for count in slots["en"].values()), template
        for text in template.values():
            assert set(re.findall(r"\{([^}]*?)\d?\}", text)) <= {NUMBER, *SLOTS}, text
            assert text == " ".join(text.split()), template
    for language in LANGUAGES:
        assert max(Counter(template[language] for template in found).values()) == 1


def test_held_out_sources_are_not_in_training_and_pairs_are_unique(book: Phrasebook):
    parts = (book.train, book.dev, book.test)
    assert all(len(set(pairs)) == len(pairs) for pairs in parts)
    sources = [{source for source, _ in pairs} for pairs in parts]
    assert not any(one & other for one, other in itertools.combinations(sources, 2))


def test_pairs_held_out_at_random_would_be_in_training():
    """The control for the tests above: drawn independently, slots with few values collide."""
    chance = random.Random(1)
    weekday = next(t for t in templates() if SLOT.findall(t["en"]) == [("weekday", "")])
    drawn = [fill(weekday, "en", "de", chance) for _ in range(20)]
    assert set(drawn[:10]) & set(drawn[10:])


def test_templates_are_all_learned_and_those_with_slots_also_held_out(book: Phrasebook):
    found = templates()
    slots = sum(bool(SLOT.search(template["en"])) for template in found)
    assert len(found) <= len(book.train) <= FEW * len(found)
    assert slots <= len(book.dev) <= 2 * slots
    assert slots <= len(book.test) <= 2 * slots


def test_filled_templates_have_nothing_left_over(book: Phrasebook):
    for text in sentences(book):
        assert not re.search(r"[{}]|\(\w+/\w+\)", text), text
        assert not re.search("[\u00a0\u202f\t\n]", text), text
        assert text == " ".join(text.split()), text
        assert text[0] == text[0].upper(), text


def test_phrasebook_depends_on_the_seed():
    one, two, other = (phrasebook("en", "de", per_template=2, seed=seed) for seed in (1, 1, 2))
    assert one == two
    assert one.train != other.train
    assert set(one.test) != set(other.test)


def test_values_agree_in_both_languages():
    """The number in the one sentence is the number in the other."""
    book = phrasebook("en", "es", per_template=2, seed=1)
    template = re.compile(r"^Please give me (\d+) grams of this cheese\.$")
    found = [(template.match(source), target) for source, target in book.train]
    numbers = [(match[1], target) for match, target in found if match]
    assert numbers
    assert all(number in re.findall(r"\d+", target) for number, target in numbers)


def test_slots_of_one_kind_have_different_values():
    two = next(t for t in templates() if {("weekday", ""), ("weekday", "2")} <= set(SLOT.findall(t["en"])))
    days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    chance = random.Random(0)
    for _ in range(50):
        source, _ = fill(two, "en", "ko", chance)
        assert len({day for day in days if day in source}) == 2


# Korean particles. The rule: after a consonant the one form, after a vowel the other; 으로 is 로 after ㄹ too.


CASES = """스페인 을 를 을; 한국어 을 를 를; 부엌 은 는 은; 나무 이 가 가; 스페인 으로 로 으로; 캐나다 으로 로 로;
독일 으로 로 로; 물 이 가 이; 0 은 는 은; 100 과 와 과; 1.2 이 가 가; 0.7 으로 로 로; 36 으로 로 으로; LSTM 은 는 은;
GRU 은 는 는; 5% 이에요 예요 예요"""  # ㄹ matters for 으로 alone


@pytest.mark.parametrize("case", CASES.split(";"))
def test_particle_fits_the_last_consonant(case: str):
    word, consonant, vowel, right = case.split()
    assert choose_particle(word[-1], consonant, vowel) == right


def test_particles_are_fitted_within_a_text():
    """And nothing else that stands in brackets is touched."""
    assert fit_particles("3(은/는) 12(과/와) 같지 않아요 (1/2, 예/아니요)") == "3은 12와 같지 않아요 (1/2, 예/아니요)"


FINALS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"


def test_particles_fit_every_syllable():
    """All 11,172 syllables are 19 beginnings times 21 vowels times none or 27 final consonants, in this order."""
    finals = itertools.chain.from_iterable(itertools.repeat(["", *FINALS], 19 * 21))
    for syllable, final in zip(range(0xAC00, 0xD7A4), finals, strict=True):
        assert choose_particle(chr(syllable), "을", "를") == ("을" if final else "를")
        assert choose_particle(chr(syllable), "으로", "로") == ("으로" if final and final != "ㄹ" else "로")


def test_particles_in_the_book_fit_the_words_before_them():
    """Each filled particle is checked in its sentence."""
    chance, checked = random.Random(3), 0
    for template in templates():
        places = re.findall(r"\{(\w+?)\}\((\w+)/(\w+)\)", template["ko"])
        if len(places) != 1:
            continue
        _, consonant, vowel = places[0]
        before, after = re.split(r"\{\w+?\}\(\w+/\w+\)", template["ko"])
        for _ in range(10):
            _, text = fill(template, "en", "ko", chance)
            if SLOT.search(before) or SLOT.search(after):
                continue
            middle = text[len(before) : len(text) - len(after)]
            form = consonant if middle.endswith(consonant) else vowel
            assert middle.endswith(form)
            assert form == choose_particle(middle.removesuffix(form)[-1], consonant, vowel), text
            checked += 1
    assert checked > 20
