"""Safeguards and the second search: placeholders come back once each, nonsense is flagged, the better one is kept."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from conftest import TINY
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import RecurrentConfig, SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import EOS, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.errors import UsageError
from dragoman.model import build
from dragoman.text import verbatim
from dragoman.text.extent import SourceExtent
from dragoman.text.faults import find_faults
from dragoman.text.glossary import Entry, Glossary, check_terms
from dragoman.text.known_words import KnownWords, known_words
from dragoman.translation import placement
from dragoman.translation.calibration import measure_copies
from dragoman.translation.retry import careful_search
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.terms import OPENING_MARKS, forbidden_sequences
from dragoman.translation.translator import Translator

Speech = Callable[[str, SearchConfig], str]  # the output for a source and the settings of a search

SPEECHES: dict[str, Speech] = {
    "the source": lambda text, _: text,
    "nothing": lambda text, _: "",
    "everything twice": lambda text, _: f"{text} {text}",
    "the words without placeholders": lambda text, _: verbatim.remove(text)[0],
    "something made up": lambda text, _: "%s <i>lorem {x} ipsum</i> https://other.example",
    "less at first, and then without an end": lambda text, search: (
        "Der Hund " * 60 if search.no_repeat_ngram else "Der Hund"
    ),
    "the words backwards": lambda text, _: " ".join(reversed(text.split())),
}


class DictatedEngine:
    """Find what a speech makes of each source, behind the prefix if asked to honour it, and count the searches."""

    max_positions: int | None = None

    def __init__(self, tokenizer: Tokenizer, speech: Speech, honour_prefix: bool = False):
        self.tokenizer, self.speech, self.honour_prefix, self.searches = tokenizer, speech, honour_prefix, 0

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        self.searches += len(sources)
        outputs = [self.tokenizer.encode(self.speech(self.tokenizer.decode(ids), config)) for ids in sources]
        if self.honour_prefix:
            outputs = [[*own.prefix, *ids] for own, ids in zip(constraints or [], outputs, strict=True)]
        return [[Hypothesis(ids, -1.0)] for ids in outputs]


@pytest.fixture(scope="module")
def dictated(tokenizer: Tokenizer) -> Callable[..., Translator]:
    """Return a function that makes a translator that says what `speech` makes of each source."""
    model = build(TINY, len(tokenizer)).eval()

    def make(speech: Speech, safeguards: Safeguards = Safeguards(), honour_prefix: bool = False) -> Translator:
        engine = DictatedEngine(tokenizer, speech, honour_prefix)
        return Translator(model, tokenizer, SearchConfig(beam=1), safeguards, engine)

    return make


# The second search.

HELD = ["{name}", "%s", "%(count)d", "${x}", "https://example.org/a?b=1", "me@example.org", "`code()`", "{0}", "&amp;"]
TAGS = ["<b>", "</b>", "<br/>", '<a href="x">', "</a>"]
WORDS = ["The", "dog", "sees", "5", "red", "horses", ".", ",", "ok", "!"]
SOURCE = "The dog sees 5 red horses."

mixed = st.lists(st.sampled_from(HELD + TAGS + WORDS), min_size=1, max_size=10).map(" ".join)


@pytest.mark.parametrize("speech", SPEECHES)
@settings(max_examples=20)
@given(texts=st.lists(mixed, min_size=1, max_size=4))
def test_placeholders_come_back_once_each_whatever_the_model_predicts(dictated, speech: str, texts: list[str]):
    translations = dictated(SPEECHES[speech]).translate(texts)
    for text, translation in zip(texts, translations, strict=True):
        assert verbatim.compare(text, translation.text) == ([], [])
        assert not any(flag.startswith(("lost", "invented")) for flag in translation.flags)


@pytest.mark.parametrize("speech", SPEECHES)
@pytest.mark.parametrize("prefix", ["Hallo {name},", "Hallo", "{name}", "<b>%s</b>:"])
def test_translation_begins_with_its_prefix_also_after_a_second_search(dictated, speech: str, prefix: str):
    texts = ["The dog sees {name}", "The dog", "{name} %s", "<b>The dog</b> sees %s"]
    translations = dictated(SPEECHES[speech], honour_prefix=True).translate(texts, prefixes=[prefix] * 4)
    for text, translation in zip(texts, translations, strict=True):
        assert translation.text.startswith(prefix)
        assert verbatim.compare(text, translation.text, prefix=prefix) == ([], [])
        assert not any("prefix" in flag or flag.startswith(("lost", "invented")) for flag in translation.flags)


def test_second_search_restores_placeholders_in_all_ranks_in_order(translator: Translator, pairs: list[Pair]):
    texts = [f"{source} {{name}} %s" for source, _ in pairs[:8]]
    translations = translator.replace(search=SearchConfig(beam=4, n_best=4)).translate(texts)
    assert sum(translation.retried for translation in translations) > 2
    for text, best in zip(texts, translations, strict=True):
        ranks = [best, *best.alternatives]
        assert len(ranks) == 4
        assert [rank.score for rank in ranks] == sorted((rank.score for rank in ranks), reverse=True)
        if best.retried and not best.flags:
            assert all(verbatim.compare(text, rank.text) == ([], []) for rank in ranks)


def test_translation_without_a_fault_is_not_searched_for_again(dictated):
    translator = dictated(lambda text, _: text.replace("The dog", "Der Hund"))
    (translation,) = translator.translate(["The dog {name}"])
    assert (translation.text, translation.retried) == ("Der Hund {name}", False)
    assert translator.engine.searches == 1


def test_words_beside_a_placeholder_are_translated_or_flagged(dictated):
    (translation,) = dictated(lambda text, _: "%d" if "%d" in text else "Mann").translate(["%d man"])
    assert (translation.text, translation.flags) == ("%d Mann", ())
    (translation,) = dictated(lambda text, _: "%d" if "%d" in text else "").translate(["%d man"])
    assert (translation.text, translation.flags, translation.retried) == ("%d", ("empty",), True)
    (translation,) = dictated(lambda *_: "%d 7").translate(["%d man"])  # the control: a number says something
    assert (translation.flags, translation.retried) == ((), False)


@pytest.mark.parametrize("label", ["%s:", "{name},", "(%d)", "%s -", "[{0}] –", "<b>%s</b>:"])
def test_marks_behind_a_placeholder_in_front_are_not_translated_without_it(dictated, label: str):
    """The control is a mark that touches the next word: it belongs to that."""
    words = {"the king": "der König", ".txt files": ".txt-Dateien"}
    translator = dictated(lambda text, _: words.get(text, ""))
    for text in (f"{label} the king", "{name}.txt files"):
        (translation,) = translator.translate([text])
        (expected,) = (text.replace(*pair) for pair in words.items() if pair[0] in text)
        assert (translation.text, translation.flags) == (expected, ())


def labels(text: str) -> list[str]:
    """The words without their placeholders; the placeholder where there is nothing else but marks."""
    bare = [(verbatim.remove(word)[0], verbatim.find(word)) for word in text.split()]
    return [word if any(map(str.isalnum, word)) else found[0].text for word, found in bare]


@pytest.mark.parametrize(
    ("text", "held"),
    [("The {name} king went", ["{name}"]), ("%s: the <b>dog</b> went  to {x} {y}", ["%s", "{x}", "{y}"])],
)
def test_words_are_aligned_as_without_the_placeholders_that_were_put_back(dictated, text: str, held: list[str]):
    def linked(source: str) -> set[tuple[str, str]]:
        found = translator.translate(source, alignments=True)
        (second,) = translator.annotator.links([found.segments], None, [found.tokens])
        assert tuple(second) == found.alignment
        return {(labels(source)[i], labels(found.text)[j]) for i, j in found.alignment}

    translator = dictated(lambda text, _: " ".join(reversed(verbatim.remove(text)[0].split())))
    plain = linked(verbatim.remove(text)[0].lstrip(": "))
    assert linked(text) == plain | {(placeholder, placeholder) for placeholder in held}
    assert plain


def test_empty_translation_is_replaced_by_one_with_words(dictated):
    def say_on_demand(text: str, search: SearchConfig) -> str:
        return "Der König." if search.min_length else ""

    (translation,) = dictated(say_on_demand).translate(["The king"])
    assert (translation.text, translation.flags, translation.retried) == ("Der König.", (), True)
    (translation,) = dictated(lambda _, search: "der " * 8 if search.min_length else "").translate(["The king"])
    assert (translation.text.split(), translation.flags) == (["der"] * 8, ("loop",))
    (translation,) = dictated(lambda *_: "").translate(["The king"])  # the control
    assert (translation.text, translation.flags, translation.retried) == ("", ("empty",), True)


def test_flag_of_several_segments_is_named_once(dictated):
    (translation,) = dictated(lambda *_: "der " * 9).translate(["The dog sees. " * 3])
    assert (len(translation.segments), translation.flags) == (3, ("loop",))


def test_nonsense_is_searched_for_again_and_the_better_one_is_kept(dictated):
    def stutter(text: str, search: SearchConfig) -> str:
        return "Der Hund " + "sieht " * (3 if search.no_repeat_ngram else 60)

    (translation,) = dictated(stutter).translate([SOURCE])
    assert (translation.retried, translation.flags) == (True, ())
    assert translation.text.count("sieht") == 3
    (careless,) = dictated(stutter, NO_SAFEGUARDS).translate([SOURCE])
    assert careless.text.count("sieht") == 60  # the control
    (translation,) = dictated(lambda *_: "sieht " * 60).translate([SOURCE])
    assert translation.retried
    assert "loop" in translation.flags  # what is still wrong


@pytest.mark.parametrize("search", [SearchConfig(beam=1), SearchConfig(beam=4, coverage_penalty=0.2)])
def test_output_that_reaches_the_last_position_breaks_nothing(tokenizer: Tokenizer, search: SearchConfig):
    """Its alignment would need one more position."""
    config = dataclasses.replace(TINY, positions="learned", max_length=24, output_bias=True)
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[EOS] = -1e3  # type: ignore[index]
    (translation,) = Translator(model, tokenizer, search, Safeguards(faults=False)).translate(["The {name} sees."])
    assert not translation.finished
    assert "{name}" in translation.text


# What translations are held to.


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SearchConfig(beam=2))


@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(beam=4, beam_groups=2, diversity_penalty=0.7, n_best=4),
        SearchConfig(beam=1, temperature=0.5, top_k=5, top_p=0.9, n_best=8),
        SearchConfig(beam=6, coverage_penalty=0.2, patience=2.0, no_repeat_ngram=2, min_length=3, n_best=6),
    ],
)
def test_second_search_is_always_a_plain_beam_search(trained: Path, search: SearchConfig, pairs: list[Pair]):
    second = careful_search(search)
    assert (second.beam_groups, second.temperature, second.n_best) == (1, None, min(search.n_best, second.beam))
    assert second.beam >= max(search.beam, 4)
    assert second.no_repeat_ngram == (search.no_repeat_ngram or 3)
    translator = Translator.load(trained, search)
    texts = [f"{source} {{n}} %s" for source, _ in pairs[:4]]
    assert any(translation.retried for translation in translator.translate(texts))


def test_without_safeguards_placeholders_are_lost(dictated):
    """The control for the tests of the second search."""
    for speech in ("nothing", "something made up"):
        (translation,) = dictated(SPEECHES[speech], NO_SAFEGUARDS).translate(["The {name} sees %s"])
        assert verbatim.compare("The {name} sees %s", translation.text) != ([], [])


@pytest.mark.parametrize(
    "text", ["The <b>dog</b> sees {name}", "<i>The <b>dog</b></i> sees <u>it</u> red", "`<b>` is the dog"]
)
def test_tags_are_read_only_by_a_model_that_has_learned_them(dictated, text: str):
    read: list[str] = []

    def speech(source: str, _: SearchConfig) -> str:
        read.append(source)
        return source.replace("dog", "Hund").replace("sees", "sieht")

    translator = dictated(speech)
    (translation,) = translator.translate([text])
    assert verbatim.find(read[0], verbatim.TAGS) == []
    assert read == [verbatim.remove(text, verbatim.TAGS)[0]]  # whatever else is to stay is there; one search is enough
    assert verbatim.compare(text, translation.text) == ([], [])
    assert (
        verbatim.remove(translation.text)[0] == verbatim.remove(text.replace("dog", "Hund").replace("sees", "sieht"))[0]
    )
    read.clear()
    reads_tags = Translator(
        translator.model,
        translator.tokenizers.source,
        SearchConfig(beam=1),
        engine=translator.engine,
        extent=SourceExtent(9, 512, markup=True),
    )
    reads_tags.translate([text])
    assert read[0] == text  # the control
    read.clear()
    inside_quotes = "The <i title='<b>dog</b>'>dog</i> sees"  # without its tags there is another one
    translator.translate([inside_quotes])
    assert read[0] == inside_quotes


def test_pair_of_tags_is_around_the_word_that_needs_what_it_enclosed(trained: Path, pairs: list[Pair]):
    """Not around one beside it that happens to attend to the same word."""
    translator = Translator.load(trained, SearchConfig(beam=1))
    for source, _ in pairs[:40]:
        animal = source.split()[1]
        plain = translator.translate(source)
        (tagged,) = translator.translate([source.replace(animal, f"<b>{animal}</b>", 1)])
        assert re.sub("</?b>", "", tagged.text) == plain.text
        ids, tokens = translator.tokenizers.source.encode(source), plain.tokens[0]
        starts = [source.index(animal)]
        ((_, start),) = translator.annotator.links_by_loss(ids, tokens, [], starts) or [(0, -1)]
        if start >= 0:
            assert tagged.text.index("<b>") == start


def test_units_stay_with_their_numbers_on_request(dictated):
    text, speech = "The dog sees 3.5 min of horses", lambda text, _: re.sub(r"dog|min", "DOG", text)
    assert "3.5 DOG" in dictated(speech).translate([text])[0].text
    assert "3.5 min" in dictated(speech, Safeguards(numbers=True)).translate([text])[0].text


NUMBERED = "The 12 dogs see 47228 horses in 8.11 km, 5 of them red"


@pytest.mark.parametrize(
    "speech",
    [
        lambda text, _: re.sub(r"(\d)\d", r"\1", text).replace("dog", "Hund"),  # digits get lost, of any number
        lambda text, _: re.sub(r"\d\d\d+", "47", text).replace("dog", "Hund"),  # only of those that are long
        lambda text, _: re.sub(r"\d", "", text).replace("dog", "Hund"),
        lambda text, _: "Hund " + re.sub(r"(\d+)", r"\g<1>1", text),
        lambda *_: "Der Hund sieht",
        lambda *_: "",
    ],
)
def test_numbers_have_their_values_whatever_the_model_predicts(dictated, speech: Speech):
    (translation,) = dictated(speech).translate([NUMBERED])
    assert verbatim.compare_numbers(NUMBERED, translation.text) == ([], [])
    assert not any("number" in flag or flag.startswith(("lost", "invented")) for flag in translation.flags)
    (careless,) = dictated(speech, NO_SAFEGUARDS).translate([NUMBERED])
    assert verbatim.compare_numbers(NUMBERED, careless.text) != ([], [])  # the control


@pytest.mark.parametrize("text", ["!!!", "ok", "😀", "-", "1", "A", "?", "...", "OK.", "…"])
def test_short_text_that_comes_back_as_it_is_has_no_fault(dictated, text: str):
    (translation,) = dictated(SPEECHES["the source"]).translate([text])
    assert (translation.text, translation.flags, translation.retried) == (text, (), False)


def test_real_pair_has_no_fault(pairs: list[Pair]):
    assert not [pair for pair in pairs if find_faults(*pair)]


def test_forbidden_words_change_only_the_translations_that_have_them(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:40]]
    free = translator.translate(sources)
    said = [word for translation in free for word in translation.text.split() if word.isalpha()]
    word = max(set(said), key=said.count)
    for safeguards in (Safeguards(forbidden=(word,)), Safeguards(forbidden_exact=(word,))):
        bound = translator.replace(safeguards=safeguards).translate(sources)
        words = safeguards.forbidden_words
        assert words
        with_word = [bool(words.find(one.text)) for one in free]
        assert 3 < sum(with_word) < len(sources)
        assert [one == other for one, other in zip(free, bound, strict=True)] == [not has for has in with_word]
        assert not any(words.find(one.text) for one in bound)


@pytest.mark.parametrize(
    ("word", "exact", "found", "not_found"),
    [
        ("rey", False, ["El Rey.", "¿rey?", "REY"], ["reyes", "virrey"]), ("Rey", False, ["el rey"], ["reyes"]),
        ("Rey", True, ["el Rey"], ["rey", "REY"]), ("de", False, ["De"], ["del", "bandera"]),
        ("y", False, ["¿y"], ["ya"]), ("IT", False, ["the IT"], ["it", "It"]),
        ("no  fue", False, ["No fue"], ["no", "fue"]),
        ("개", False, ["개가 개"], ["무지개"]),
    ],
)  # fmt: skip
def test_forbidden_word_is_a_whole_word(dictated, word: str, exact: bool, found: list[str], not_found: list[str]):
    """In the case that was asked for; it is flagged where a search cannot avoid it."""
    safeguards = Safeguards(faults=False, **{"forbidden_exact" if exact else "forbidden": (word,)})
    for text in found + not_found:
        (translation,) = dictated(lambda *_, text=text: text, safeguards).translate(["The dog"])
        assert translation.flags == (f"has {' '.join(word.split())}",) * (text in found), text


def test_forbidden_word_is_kept_from_the_search_after_opening_marks_too(tokenizer: Tokenizer):
    words = Safeguards(forbidden=("dog",)).forbidden_words
    sequences = {tokenizer.decode(ids) for ids in forbidden_sequences(words, tokenizer)}
    assert {"dog", "Dog", "DOG", "¿dog", "(Dog", "“DOG"} < sequences
    exact = Safeguards(forbidden_exact=("Dog",)).forbidden_words
    assert {tokenizer.decode(ids).lstrip(OPENING_MARKS) for ids in forbidden_sequences(exact, tokenizer)} == {"Dog"}
    horse = forbidden_sequences(Safeguards(forbidden=("말",)).forbidden_words, tokenizer)
    longer = {piece for piece in tokenizer.pieces if len(piece) > 2 and piece.startswith(" 말")}
    assert {tokenizer.pieces[ids[0]] for ids in horse if len(ids) == 1} >= longer != set()


def test_forbidden_word_is_not_blank():
    with pytest.raises(UsageError, match="a forbidden word must not be blank"):
        Safeguards(forbidden=("dog", " "))


def test_glossary_and_forbidden_words_do_not_contradict_each_other():
    """A term that can only be written with a forbidden word is refused; of several forms the others are left."""
    for targets, forbidden in ((("Rey",), {"forbidden": ("rey",)}), (("el Rey", "Rey"), {"forbidden_exact": ("Rey",)})):
        with pytest.raises(UsageError, match=r"the glossary translates 'king' as '(el )?Rey'.* forbidden"):
            Safeguards(glossary=Glossary([Entry("king", targets)]), **forbidden)
    glossary = Glossary([Entry("king", ("rey", "monarca"))])
    free, bound = (
        Safeguards(glossary=glossary, forbidden=words).find_terms("a king") for words in ((), ("REYES", "rey"))
    )
    assert (free[0].targets, bound[0].targets) == (("rey", "monarca", "Rey", "Monarca"), ("monarca", "Monarca"))


def test_terms_of_a_glossary_stand_in_the_output(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:60]]
    glossary = Glossary([Entry("dog", ("개",), "any"), Entry("horses", ("토끼", "곰"), "any")])
    free, bound = (
        translator.replace(safeguards=Safeguards(glossary=terms)).translate(sources) for terms in (None, glossary)
    )
    with_terms = [bool(glossary.find(text)) for text in sources]
    assert 5 < sum(with_terms) < len(sources)
    for wanted, one, other in zip(with_terms, bound, free, strict=True):
        if wanted:
            assert one.terms_met or any(flag.startswith("no ") for flag in one.flags)
        else:
            assert one == other
    assert sum(bool(one.terms_met) and not one.flags for one in bound) > sum(with_terms) / 3


@pytest.mark.parametrize("n_best", [1, 2])
def test_glossary_changes_only_translations_that_miss_a_term(
    monkeypatch: pytest.MonkeyPatch, translator: Translator, pairs: list[Pair], n_best: int
):
    monkeypatch.setattr(placement, "MIN_LOSS", 0.0)  # a model trained so shortly hardly depends on any source word
    translator = translator.replace(search=SearchConfig(beam=2, n_best=n_best))
    sources = [source for source, _ in pairs[:120]]
    glossary = Glossary([Entry("dog", ("개",)), Entry("red", ("빨간",)), Entry("black", ("검은",))])
    free = translator.translate(sources)
    bound = translator.replace(safeguards=Safeguards(glossary=glossary)).translate(sources)
    has_all = [not check_terms(glossary.find(text), one.text).missed for text, one in zip(sources, free, strict=True)]
    assert 10 < sum(has_all) < len(sources) - 3
    same = [one.text == other.text for one, other in zip(free, bound, strict=True)]
    assert all(itertools.compress(same, has_all))
    assert all(one.flags for one, stays, has in zip(bound, same, has_all, strict=True) if stays and not has)
    assert sum(same) < len(sources) - 3  # the control
    for one in itertools.compress(bound, has_all):
        terms = glossary.find(one.segments[0][0])
        assert all(other.flags or not check_terms(terms, other.text).missed for other in one.alternatives)


@pytest.mark.parametrize(
    ("text", "expected", "searches"),
    [("dog", "Hund", 0), ("Dog:", "Hund:", 0), ("(cat)", "(katze)", 0), ("Cat", "Katze", 0), ("the cat", "x", 1)],
)
def test_segment_that_is_a_term_is_its_target(dictated, text: str, expected: str, searches: int):
    translator = dictated(lambda *_: "x")
    glossary = Glossary([Entry("dog", ("Hund", "Hunde")), Entry("cat", ("katze",))])
    (found,) = translator.replace(safeguards=Safeguards(glossary=glossary, faults=False)).translate([text])
    assert (found.text, translator.engine.searches > 0) == (expected, bool(searches))
    assert (found.terms_met, found.flags) == (((text.strip("():").lower(),), ()) if not searches else ((), ("no cat",)))


def test_terms_in_compounds_are_reported_and_not_flagged(dictated):
    translator = dictated(lambda text, _: "Ein Hofhund, ein Hundehaus" if "house" in text else "Hund")
    safeguards = Safeguards(glossary=Glossary([Entry("dog", ("Hund",)), Entry("cat", ("Katze",))]))
    (found,) = translator.replace(safeguards=safeguards).translate(["The dog house has a yard dog, and a cat."])
    assert (found.terms_met, found.terms_in_compounds) == ((), ("dog",))
    assert sorted((*found.terms_missed, *found.terms_refused)) == ["cat", "dog"]
    assert found.flags[-2:] == ("no dog", "no cat")


def test_names_and_own_patterns_come_back_unchanged(dictated):
    translator = dictated(
        lambda text, _: text.replace("Acme Cloud", "Wolke").replace("Zorkh-7", "Z").replace("open", "auf")
    )
    glossary = Glossary([Entry("Acme Cloud", ("Acme Cloud",))])
    text = "You may open Acme Cloud with Zorkh-7a today"
    for safeguards in (Safeguards(keep=(r"Zorkh-\w+",), glossary=glossary), Safeguards()):
        (found,) = translator.replace(safeguards=safeguards).translate([text])
        kept = [name in found.text for name in ("Acme Cloud", "Zorkh-7a", "auf")]
        assert kept == ([True, True, True] if safeguards.glossary else [False, False, True])  # the control


@pytest.mark.parametrize(
    ("output", "retried"),
    [
        ("Der Hund sieht Kowalczyk", False), ("Der Hund sieht Kowalczyks", False), ("Der Hund sieht Kovalczik", False),
        ("Der Hund sieht", True), ("Der Hund sieht Kowal", True), ("Der Hund sieht die Katze", True),
    ],
)  # fmt: skip
def test_names_that_a_model_has_never_read_come_back(dictated, output: str, retried: bool):
    words = known_words(["The dog sees the horses", "in the house of"])
    for known in (words, None):
        safeguards = Safeguards(faults=False, known_words=known)
        (found,) = dictated(lambda *_: output, safeguards).translate(["The dog sees Kowalczyk"])
        assert (found.retried, found.flags) == (retried and known is not None, ())
        assert {"Der", "Hund"} <= {*found.text.split()}
        if retried:
            assert ("Kowalczyk" in found.text) == (known is not None)  # the control: a model without the list


def test_name_that_the_model_copies_stands_for_one_that_it_loses(dictated):
    """So the sentence is whole; what the model does not copy is taken out, as all names are without such a name."""
    words = known_words(["The dog sees Anna and Berta in the house"]).words
    text = "The dog of Kowalczyk sees Zsófia, and Kowalczyk sees it"

    def speech(source: str, _: SearchConfig) -> str:
        return "Annas Hund sieht Berta, und Anna sieht ihn" if "Anna" in source else "Der Hund sieht ihn"

    def translate(*copied: str) -> str:
        (found,) = dictated(speech, Safeguards(faults=False, known_words=KnownWords(words, copied))).translate([text])
        assert found.flags == ()
        return found.text

    assert translate("Anna", "Berta") == "Kowalczyks Hund sieht Zsófia, und Kowalczyk sieht ihn"
    assert translate("Xaver") == translate()
    assert sorted(translate().split()) == sorted("Der Hund sieht ihn Kowalczyk Kowalczyk Zsófia".split())


def test_unknown_first_word_is_flagged_where_the_translation_lacks_it(dictated):
    safeguards = Safeguards(faults=False, known_words=known_words(["The dog sees the horses"]))
    for output, flags in (("Der Hund sieht ihn", ("unknown Kowalczyk",)), ("Kowalczyks Hund", ())):
        (found,) = dictated(lambda *_, output=output: output, safeguards).translate(["Kowalczyk sees the dog"])
        assert (found.text, found.flags, found.retried) == (output, flags, False)


def test_names_that_a_model_copies_are_measured(tokenizer: Tokenizer):
    """In the shortest sources with words enough, in the place of a name; those that come back most often are first."""
    both = Tokenizers.from_tokenizer(tokenizer)
    sources = [tokenizer.encode(text) for text in ("I see it", "the dog sees Anna there", "a cat in the big house")]
    read: list[str] = []

    def speech(source: str, _: SearchConfig) -> str:
        read.append(source)
        return source if "Berta" in source or ("Xaver" in source and "cat" in source) else "nothing"

    engine = DictatedEngine(tokenizer, speech, False)
    assert measure_copies(engine, both, sources, ["Xaver", "Berta", "Otto"]) == ["Berta"]
    assert "the dog sees Berta there" in read
    assert not any(text.endswith("see it") for text in read)
    assert measure_copies(engine, both, [], ["Berta"]) == []


@pytest.mark.parametrize("pattern", ["(", "a*", "|x", "\\"])
def test_pattern_that_says_nothing_is_refused(pattern: str):
    with pytest.raises(UsageError, match="regular expression"):
        Safeguards(keep=(pattern,))


def test_term_inside_a_placeholder_is_not_translated():
    glossary = Glossary([Entry("dog", ("Hund",))])
    text = "Open {dog} at https://example.org/dog with `dog` <dog> and a dog"
    assert len(Safeguards(glossary=glossary).find_terms(text)) == 1
    assert len(Safeguards(glossary=glossary, placeholders=False).find_terms(text)) == 5  # the control


def test_missed_term_is_flagged_and_a_met_one_reported(tokenizer: Tokenizer):
    """By a model without attention, which cannot show in the place of which word the other term belongs."""
    safeguards = Safeguards(glossary=Glossary([Entry("dog", ("Hund",)), Entry("cat", ("Katze",))]))
    model = build(RecurrentConfig(d_model=16, attention="none"), len(tokenizer)).eval()
    engine = DictatedEngine(tokenizer, lambda *_: "Der Hund sieht sie", False)
    translator = Translator(model, tokenizer, SearchConfig(beam=1), safeguards, engine)
    (translation,) = translator.translate(["The dog, a cat"])
    assert (translation.flags, translation.terms_met) == (("no cat",), ("dog",))


def test_text_of_a_prefix_is_kept(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:10]]
    prefixes = [" ".join(target.split()[:1]) for _, target in pairs[1:11]]
    translator = translator.replace(safeguards=NO_SAFEGUARDS)
    free, bound = translator.translate(sources), translator.translate(sources, prefixes=prefixes)
    assert all(one.text.startswith(prefix) for one, prefix in zip(bound, prefixes, strict=True))
    assert [one.text for one in free] != [one.text for one in bound]


def test_text_without_words_stays_behind_its_prefix(dictated):
    texts = ["42", "3.5", "!", "{x}", "4 < 5", ""]
    translator = dictated(lambda source, search: "nonsense", honour_prefix=True)
    found = [translation.text for translation in translator.translate(texts, prefixes="4")]
    assert found == ["42", "4 3.5", "4 !", "4 {x}", "4 < 5", ""]
    assert "nonsense" in translator.translate(["dog"], prefixes="4")[0].text  # the control


def test_lost_prefix_is_flagged(dictated):
    translator = dictated(SPEECHES["the words backwards"])
    (translation,) = translator.translate(["The dog sees"], prefixes=["Hallo"])
    assert "lost prefix" in translation.flags


@pytest.mark.parametrize("safeguards", [NO_SAFEGUARDS, Safeguards()])
def test_prefix_that_repeats_itself_stays_where_repetitions_are_forbidden(trained: Path, safeguards: Safeguards):
    prefix = "한 한 한 한 한 한"
    translator = Translator.load(trained, SearchConfig(beam=2, no_repeat_ngram=2), safeguards)
    (translation,) = translator.translate(["The dog sees {name}"], prefixes=[prefix])
    assert translation.text.startswith(prefix)
