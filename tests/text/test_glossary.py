"""Glossaries: read, found in a source, turned into tokens, and looked for in the output."""

import random
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.text.glossary import MAX_TARGETS, MAX_TERM_LENGTH, Entry, Glossary, TermMatch, TermReport, check_terms
from dragoman.translation.terms import OPEN, STEM, WORD, target_tokens, token_boundaries

ANIMALS = Glossary([Entry("dog", ("perro", "perra")), Entry("guide dog", ("perro guía",)), Entry("cat", ("gato",))])


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "terms.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def spans(glossary: Glossary, text: str) -> list[str]:
    return [text[one.start : one.end] for one in glossary.find(text)]


def single(source: str, target: str = "x", case="match") -> Glossary:
    return Glossary([Entry(source, (target,), case)])


def targets(source: str, target: str, text: str, case="match") -> list[tuple[str, ...]]:
    return [one.targets for one in single(source, target, case).find(text)]


# Reading.


def test_file_is_read_line_by_line(tmp_path: Path):
    path = write(
        tmp_path,
        "# animals\n\ndog\tperro|perra\n  guide   dog \tperro guía\t\nPolish\tpolaco | polaca\texact\r\nC#\tC#\tany",
    )
    assert Glossary.read(path).entries == (
        Entry("dog", ("perro", "perra"), "match", 3),
        Entry("guide dog", ("perro guía",), "match", 4),
        Entry("Polish", ("polaco", "polaca"), "exact", 5),
        Entry("C#", ("C#",), "any", 6),
    )
    found = Glossary.read(write(tmp_path, "polish\tpulir\nPolish\tpolaco\texact\n")).find("polish Polish POLISH")
    assert [one.targets[0] for one in found] == ["pulir", "polaco", "PULIR"]  # one term may have several case rules


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a\tb\ndog perro\n", 2, "no tab"),
        ("dog\tperro\tany\tmore\n", 1, "4 columns"),
        ("\tperro\n", 1, "an empty term"),
        ("dog\t\n", 1, "an empty term"),
        ("dog\tperro||perra\n", 1, "an empty term"),
        ("dog\t \n", 1, "an empty term"),
        ("dog\tperro\tnever\n", 1, "'never' is not a case rule: choose from exact, match, any"),
        ("dog\tperro\n\nDog\tperra\n", 3, "'Dog' is on line 1 already"),
        ("dog\tperro\texact\ndog\tperra\texact\n", 2, "'dog' is on line 1 already"),
        (f"dog\t{'x' * (MAX_TERM_LENGTH + 1)}\n", 1, "more than 200 characters"),
        (f"{'x' * (MAX_TERM_LENGTH + 1)}\tdog\n", 1, "more than 200 characters"),
        (f"dog\t{'|'.join(map(str, range(MAX_TARGETS + 1)))}\n", 1, "101 alternatives"),
        (b"dog\tperro\ncat\tgat\xf3\n", 2, "not UTF-8"),
        ("dog\tperro".encode("utf-16"), 1, "text in UTF-16: convert it"),
    ],
)
def test_wrong_glossary_lines_are_named(tmp_path: Path, text: str | bytes, line: int, said: str):
    path = write(tmp_path, text)
    with pytest.raises(DragomanError, match=rf"^{re.escape(str(path))}(:{line})?: .*{re.escape(said)}"):
        Glossary.read(path)


def test_file_without_terms_is_refused_and_a_missing_one_named(tmp_path: Path):
    for text in ("", "\n\n", "# only a comment\n", "\ufeff"):
        with pytest.raises(DragomanError, match="it has no terms"):
            Glossary.read(write(tmp_path, text))
    with pytest.raises(DragomanError, match=r"nowhere.tsv: no such file"):
        Glossary.read(tmp_path / "nowhere.tsv")


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_glossary_reads_any_bytes_or_raises(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    path = write(tmp_path_factory.getbasetemp(), data)
    try:
        named = str(path) if Glossary.read(path).entries else ""
    except DragomanError as error:
        named = str(error)
    assert named.startswith(str(path))


# Finding.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the dog", ["dog"]), ("dogs, dogma, hotdog, dog_1, dog2", []), ("dog" * 3, []), ("", []),
        ("dog's, hot-dog (dog) “dog” dog.", ["dog"] * 5), ("a guide dog and a dog", ["guide dog", "dog"]),
        ("guide  dog\u00a0cat", ["guide  dog", "cat"]), ("guide\u2003dog", ["guide\u2003dog"]), ("guide-dog", ["dog"]),
        ("Dog DOG dOg", ["Dog", "DOG", "dOg"]), ("dog\u200ddog", []), ("dog\u0301", []),  # an accent makes another word
    ],
)  # fmt: skip
def test_terms_are_whole_words(text: str, expected: list[str]):
    assert spans(ANIMALS, text) == expected


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("猫", "黒猫が好き", ["猫"]), ("東京", "東京都東京", ["東京", "東京"]), ("แมว", "ฉันรักแมวมาก", ["แมว"]),
        ("กา", "กา กา่ กาก", ["กา", "กา"]),  # with a tone mark it is another vowel
        ("개", "개가 무지개를 개", ["개", "개"]),  # in Hangul a term begins a word, and endings follow
        ("인공 지능", "인공 지능은", ["인공 지능"]),
        ("GPU", "GPU를 GPU가속 GPUs", ["GPU", "GPU"]), ("GPU", "このGPUは", ["GPU"]),
        ("हिन्दी", "हिन्दी में, हिन्दीभाषी", ["हिन्दी"]),
        ("कि", "कि किताब की", ["कि"]),  # vowel signs are part of the word
        ("می\u200cخواهم", "من می\u200cخواهم", ["می\u200cخواهم"]),
        ("C++", "C++ is not C, C+++ is not either", ["C++", "C++"]), (".NET", "use .NET here", [".NET"]),
        ("👩", "👩 👩\u200d🚀", ["👩"]), ("Straße", "STRASSE strasse", ["STRASSE", "strasse"]),
        ("ΟΔΟΣ", "ΟΔΟΣ", ["ΟΔΟΣ"]), ("οδος", "ΟΔΟΣ οδοσ", ["ΟΔΟΣ", "οδοσ"]),
    ],
)  # fmt: skip
def test_terms_in_other_scripts(source: str, text: str, expected: list[str]):
    assert spans(single(source), text) == expected


@pytest.mark.parametrize("text", ["un café", "개가", "がく", "हिन्दी", "Ω"])
@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
def test_composed_and_decomposed_text_is_the_same(tmp_path: Path, text: str, forms: tuple[str, str]):
    """And the span is that of the text as it was given."""
    entry, given_text = (unicodedata.normalize(form, text) for form in forms)
    glossary = Glossary.read(write(tmp_path, f"{entry}\tx\n"))
    (found,) = glossary.find(f"- {given_text}")
    assert (found.start, found.end) == (2, 2 + len(given_text))


@pytest.mark.parametrize(
    ("source", "case", "matching", "others"),
    [
        ("Polish", "exact", ["Polish"], ["polish", "POLISH"]),
        ("Polish", "any", ["Polish", "polish", "POLISH", "pOLISH"], []),
        ("Polish", "match", ["Polish", "polish", "POLISH"], []),
        ("IT", "match", ["IT"], ["it", "It"]),
        ("IT", "any", ["IT", "it", "It"], []),
    ],
)
def test_case_rule_says_what_matches(source: str, case: str, matching: list[str], others: list[str]):
    for text in matching + others:
        assert spans(single(source, case=case), f"x {text} y") == [text] * (text in matching)


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("cat", "chat", "a cat", ("chat", "Chat")),  # which one it is depends on where it comes in the output
        ("cat", "chat", "the Cat", ("Chat",)),
        ("cat", "chat", "Cat!", ("chat", "Chat")),  # at the beginning of a sentence a capital says nothing
        ("cat", "chat", "Yes. “Cat!", ("chat", "Chat")),
        ("cat", "chat", "MY CAT", ("CHAT",)), ("cat", "Katze", "a cat", ("Katze",)),
        ("cat", "Katze", "MY CAT", ("KATZE",)), ("phone", "iPhone", "The Phone", ("iPhone",)),
        ("Apple", "Apple", "an apple", ("Apple",)), ("NATO", "OTAN", "NATO", ("OTAN",)),
        ("IT", "informatique", "the IT", ("informatique", "Informatique")),
        ("street", "straße", "STREET", ("STRASSE",)),
        ("artificial intelligence", "künstliche Intelligenz", "the Artificial Intelligence",
         ("Künstliche Intelligenz",)),
        ("cat", "고양이", "the Cat", ("고양이",)), ("cat", "猫", "CAT", ("猫",)),
    ],
)  # fmt: skip
def test_capitals_follow_the_source(source: str, target: str, text: str, expected: tuple[str, ...]):
    assert targets(source, target, text) == [expected]


@pytest.mark.parametrize("rule", ["any", "exact"])
@pytest.mark.parametrize("text", ["a Cat", "A CAT", "Cat"])
def test_other_rules_leave_the_target_as_it_is_written(rule: str, text: str):
    assert targets(text.split()[-1], "chat", text, rule) == [("chat",)]


def slowly(entries: list[Entry], text: str) -> list[tuple[int, int, Entry]]:
    """The longest at each place from the left, each tried with a pattern of its own."""
    found, place = [], 0
    while place < len(text):
        ends = []
        for entry in entries:
            pattern = re.compile(rf"(?<!\w){re.escape(entry.source)}(?!\w)", re.IGNORECASE)
            if match := pattern.match(text, place):
                ends.append((match.end(), entry))
        if ends:
            end, entry = max(ends, key=lambda pair: pair[0])
            found.append((place, end, entry))
        place = end if ends else place + 1
    return found


words = st.sampled_from(["a", "b", "A", "ab", "ba", "."])


@settings(max_examples=300)
@given(st.lists(st.lists(words, min_size=1, max_size=3), min_size=1, max_size=6), st.lists(words, max_size=12))
def test_finding_equals_trying_every_term_at_every_place(phrases: list[list[str]], said: list[str]):
    sources = {" ".join(phrase).casefold() for phrase in phrases}
    entries = [Entry(source, ("x",), "any") for source in sorted(sources)]
    text = " ".join(said)
    found = [(one.start, one.end, one.entry) for one in Glossary(entries).find(text)]
    assert found == slowly(entries, text)


@settings(max_examples=300)
@given(st.text(max_size=40))
def test_glossary_spans_are_in_order_and_inside_any_text(text: str):
    glossary = Glossary([Entry(character, (character,)) for character in "aé개猫.\u0301 " if character.strip()])
    place = 0
    for one in glossary.find(text):
        assert place <= one.start < one.end <= len(text)
        assert unicodedata.normalize("NFC", text[one.start : one.end]).casefold() == one.entry.source.casefold()
        place = one.end
    check_terms(glossary.find(text), text)


@settings(max_examples=300)
@given(st.text(min_size=1, max_size=8))
def test_terms_are_found_in_themselves(source: str):
    """Whatever is in it, a tab, a line feed, | and surrogates apart."""
    source = " ".join(unicodedata.normalize("NFC", source).split())
    if source and not re.search("[\ud800-\udfff]", source):
        assert spans(single(source, case="any"), source) == [source]


@pytest.fixture(scope="module")
def many_terms() -> Glossary:
    phrases = {" ".join(random.Random(seed).choices(["dog", "cat", "개", "a", "."], k=6)) for seed in range(10_000)}
    return Glossary([Entry(phrase, ("perro",)) for phrase in sorted(phrases)] + [Entry("dog " * 40 + "x", ("y",))])


@pytest.mark.parametrize("text", ["dog " * 20_000, "a" * 100_000, "개" * 30_000, "." * 50_000, "\u0301" * 50_000])
def test_long_texts_and_many_terms_take_their_length_in_time(many_terms: Glossary, text: str):
    """With time in proportion to terms times text, or to the square of the text, this would take hours."""
    found = many_terms.find(text)
    assert check_terms(found, text) == TermReport((), tuple(found))
    many = check_terms([TermMatch(0, 1, Entry("dog", ("dog",)), ("dog",))] * 30_000, text)
    assert len(many.met) == text.count("dog")


# What it asks of a search.


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    text = "El perro (perro) guía ve al gato. Gatos y perros, ¡Perro! 개가 개를 보고 猫が猫を見る 3 perros"
    return Tokenizer.train([text] * 20)


@pytest.mark.parametrize(
    "target", ["perro", "perro guía", "猫", "개", "C++", "naïve Ω", "10 %", "👩\u200d🚀", "e\u0301"]
)
@pytest.mark.parametrize("around", ["{} x", "x {} x", "x ({}) x", "x “{}”", "猫{}を"])
def test_tokens_are_those_of_the_term_inside_a_sentence(pieces: Tokenizer, target: str, around: str):
    """What is written with them reads as the term, at the beginning and inside."""
    spaced, bare = target_tokens(target, pieces)
    before, after = around.split("{}")
    inside = before and not before.endswith(" ")
    ids = [*pieces.encode(before), *bare] if inside else [*pieces.encode(before[:-1]), *spaced]
    text = unicodedata.normalize("NFC", around.format(target))
    assert pieces.decode([*ids, *pieces.encode("\n" + after)[2:]]) == text


@pytest.mark.parametrize("around", ["{} ve", "ve {} ve", "ve ({}), ve", "ve “{}”", "{}, ve"])
@pytest.mark.parametrize("target", ["perro", "perro guía", "gato"])
def test_sentence_with_the_term_has_one_of_its_sequences(pieces: Tokenizer, target: str, around: str):
    ids = pieces.encode(around.format(target))
    runs = {tuple(ids[start:end]) for start in range(len(ids)) for end in range(start, len(ids) + 1)}
    assert runs & set(target_tokens(target, pieces))


def test_tokens_tell_where_words_begin_and_end(pieces: Tokenizer):
    table = dict(zip(pieces.pieces, token_boundaries(pieces), strict=True))
    assert len(table) == len(token_boundaries(pieces)) == len(pieces)
    expected = {
        (OPEN, OPEN): ["<s>", "</s>", "<pad>", "<0x20>", ".", " (", "猫"], (OPEN, WORD): [" perro"],
        (WORD, WORD): ["<0x61>", "<0xC3>", "p"], (STEM, STEM): ["개"],
    }  # fmt: skip
    for boundaries, some in expected.items():
        assert {piece: table[piece] for piece in some} == dict.fromkeys(some, boundaries)


# What the output has.


def checked(source: str, output: str, glossary: Glossary = ANIMALS) -> tuple[list[str], list[str]]:
    found = check_terms(glossary.find(source), output)
    return tuple([source[one.start : one.end] for one in side] for side in (found.met, found.missed))


@pytest.mark.parametrize(
    ("source", "output", "met", "missed"),
    [
        ("the dog", "el perro", ["dog"], []), ("the dog", "la perra.", ["dog"], []),
        ("the dog", "el Perro", ["dog"], []), ("the dog", "el PERRO", [], ["dog"]),
        ("the dog", "los perros", [], ["dog"]), ("the dog", "superperro", [], ["dog"]), ("the dog", "", [], ["dog"]),
        ("dog, dog", "perro", ["dog"], ["dog"]), ("dog, dog", "perro, perra", ["dog", "dog"], []),
        ("guide dog", "perro  guía", ["guide dog"], []), ("guide dog", "perro gui\u0301a", ["guide dog"], []),
        ("dog, cat", "un gato", ["cat"], ["dog"]), ("THE DOG", "EL PERRO", ["DOG"], []),
        ("THE DOG", "el perro", [], ["DOG"]), ("nothing", "nada", [], []),
    ],
)  # fmt: skip
def test_report_says_what_is_there(source: str, output: str, met: list[str], missed: list[str]):
    assert checked(source, output) == (met, missed)


def test_occurrences_of_one_term_do_not_overlap_and_those_of_two_may():
    twice = Glossary([Entry("one", ("a a",), "any"), Entry("two", ("a b",), "any"), Entry("three", ("b c",), "any")])
    assert checked("one one", "a a a", twice) == (["one"], ["one"])
    assert checked("one one", "a a a a", twice) == (["one", "one"], [])
    assert checked("two three", "a b c", twice) == (["two", "three"], [])
    nested = Glossary([Entry("one", ("a b c", "b", "c"), "any")])
    assert checked("one one", "a b c", nested) == (["one", "one"], [])


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["a", "b", "a b", "b a a"]), max_size=4), st.text("ab ", max_size=12))
def test_report_counts_as_many_as_fit_beside_each_other(wanted: list[str], output: str):
    found = [TermMatch(0, 1, Entry("x", (target,)), (target,)) for target in wanted]
    met = [one.targets[0] for one in check_terms(found, output).met]
    for target in set(wanted):
        pattern = re.compile(rf"\b{target.replace(' ', ' +')}\b")
        assert met.count(target) == min(wanted.count(target), len(pattern.findall(output)))
