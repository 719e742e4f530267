"""Terms of a glossary in the place of a translation's own words, as attention shows it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from conftest import TINY

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import words
from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints
from dragoman.decoding.forced import score
from dragoman.decoding.search import Hypothesis
from dragoman.model import Model, build
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation import placement
from dragoman.translation.placement import TermPlacer
from dragoman.translation.retry import prepare_retries
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.segments import Segment
from dragoman.translation.translator import Translator

SOURCE = "The king saw the house"
GLOSSARY = Glossary([Entry("king", ("monarca",)), Entry("house", ("hogar", "hogares"))])
Draft = Callable[..., list[str]]


@pytest.fixture(scope="module")
def spanish() -> Tokenizer:
    return Tokenizer.train([SOURCE, "El rey vio la casa. Casas, hogar, hogares y monarca; el Rey, ¿la casa?"] * 20)


@pytest.fixture
def placer(spanish: Tokenizer) -> TermPlacer:
    torch.manual_seed(1)
    return TermPlacer(build(TINY, len(spanish)).eval(), Tokenizers.from_tokenizer(spanish), AlignmentHead(1))


def attention(
    tokenizer: Tokenizer, source: str, output: str, links: dict[str, str], weight: float = 1.0
) -> torch.Tensor:
    """Attention of the words of an output on words of the source, as if a head linked them."""
    ids = [tokenizer.encode(text) for text in (output, source)]
    table = torch.zeros(len(ids[0]) + 1, len(ids[1]) + 1)
    targets, sources = (words(tokenizer, own) for own in ids)
    for target, origin in links.items():
        row = next(word.tokens for word in targets if word.label.strip("¿?.,") == target)
        column = next(word.tokens.start for word in sources if word.label == origin)
        table[row.start : row.stop, column] = weight
    return table


@pytest.fixture
def drafts(placer: TermPlacer) -> Draft:
    def make(
        output: str,
        links: dict[str, str],
        prefix: str = "",
        target_tag_ids: Sequence[int] = (),
        weight: float = 1.0,
        glossary: Glossary = GLOSSARY,
        loss: float = 1.0,
    ) -> list[str]:
        encode = placer.tokenizers.source.encode
        segment = Segment(
            SOURCE,
            encode(SOURCE),
            target_tag_ids=list(target_tag_ids),
            prefix_ids=encode(prefix),
            terms=tuple(glossary.find(SOURCE)),
        )
        losses = dict.fromkeys(placer._missing(segment, encode(output)), torch.full([len(encode(output))], loss))
        weights = attention(placer.tokenizers.source, SOURCE, output, links, weight)
        found = placer._draft(segment, encode(output), weights, losses, {}, {})
        return [placer.tokenizers.source.decode(found)] if found else []

    return make


LINKS = {"rey": "king", "casa": "house"}


@pytest.mark.parametrize(
    ("output", "links", "expected"),
    [
        ("El rey vio la casa.", LINKS, ["El monarca vio la hogar."]),
        ("Casa, ¿rey?", {"rey": "king", "Casa": "house"}, ["Hogar, ¿monarca?"]),
        ("El Rey vio hogar", {"Rey": "king"}, ["El monarca vio hogar"]),
        ("El rey y la casa del rey.", LINKS, ["El monarca y la hogar del rey."]),
        ("monarca vio la casa", {"casa": "house"}, ["monarca vio la hogar"]),
        ("El rey vio la casa.", {"rey": "king"}, ["El monarca vio la casa."]),
        ("El rey vio", {"rey": "king", "vio": "house", "El": "saw"}, ["El monarca hogar"]),
        ("hogar y monarca", {}, []),
    ],
)  # fmt: skip
def test_term_replaces_the_word_that_attends_to_its_source(
    drafts: Draft, output: str, links: dict[str, str], expected: list[str]
):
    """In its first form; the words around it stay; nothing where a term has no place."""
    assert drafts(output, links) == expected


def test_word_as_probable_without_the_source_of_a_term_stays(drafts: Draft):
    """Attention alone is often wrong."""
    assert drafts("El rey vio la casa.", {"rey": "king"}, loss=0.9) == []
    assert drafts("El rey vio la casa.", {"rey": "king"}, loss=1.1) == ["El monarca vio la casa."]


@pytest.mark.parametrize(("word", "replaced"), [("rey", True), ("5", False), ("5rey", False), ("r5y", False)])
def test_numbers_and_parts_of_words_are_never_replaced(drafts: Draft, word: str, replaced: bool):
    assert drafts(f"El {word} vio.", {word: "king"}) == ["El monarca vio."] * replaced


@pytest.mark.parametrize(
    ("output", "said", "linked", "expected"),
    [
        ("El rey vio la casa.", ("casa",), "casa", "El rey vio la hogar."),
        ("El rey vio las casas.", ("casa", "casas"), "casas", "El rey vio las hogar."),
        ("El rey vio la supercasa.", ("casa",), "supercasa", "El rey vio la superhogar."),
        ("El rey vio la casaruina.", ("casa",), "casaruina", None),  # half of a compound
        ("La casa del rey, casaruina.", ("casa",), "casaruina", None),  # the term is that of the compound
        ("La casa del rey, casaruina.", ("casa",), "casa", "La hogar del rey, casaruina."),
        ("El rey vio la casa.", ("mansión",), "casa", None),
        ("El rey vio la casa.", ("casa",), "", None),
    ],
)  # fmt: skip
def test_term_takes_the_place_of_what_the_model_says_for_it_alone(
    placer: TermPlacer, output: str, said: tuple[str, ...], linked: str, expected: str | None
):
    """Without a look at what it needs. The house is what the model says, and it must look there a little."""
    encode, decode = placer.tokenizers.source.encode, placer.tokenizers.source.decode
    segment = Segment(SOURCE, encode(SOURCE), terms=tuple(GLOSSARY.find(SOURCE))[1:])
    weights = attention(placer.tokenizers.source, SOURCE, output, {linked: "house"} if linked else {}, 0.1)
    own = dict.fromkeys(segment.terms, said)
    places = placer._own_places(segment, encode(output), weights, segment.terms, own)
    draft = placer._draft(segment, encode(output), weights, {}, places, own)
    assert (draft and decode(draft)) == expected
    refused = "casaruina" in output and linked == "casaruina"
    assert list(places) == list(segment.terms) * (expected is not None or refused)


@pytest.mark.parametrize("loss", [0.9, 1.1])
def test_word_of_grammar_gives_no_place_to_a_noun(placer: TermPlacer, loss: float):
    """The model says nouns with a capital."""
    encode, output = placer.tokenizers.source.encode, "El rey vio la casa."
    segment = Segment(SOURCE, encode(SOURCE), terms=tuple(GLOSSARY.find(SOURCE))[1:])
    weights = attention(placer.tokenizers.source, SOURCE, output, {"la": "house"})
    losses = dict.fromkeys(segment.terms, torch.full([len(encode(output))], loss))
    for word, replaced in (("Mansión", False), ("mansión", True)):
        own = dict.fromkeys(segment.terms, (word,))
        assert bool(placer._draft(segment, encode(output), weights, losses, {}, own)) == (replaced and loss > 1)


def test_losses_are_measured_without_the_source_of_the_term(placer: TermPlacer):
    encode = placer.tokenizers.source.encode
    segment, output = Segment(SOURCE, encode(SOURCE), terms=tuple(GLOSSARY.find(SOURCE))), encode("El rey vio la casa.")
    (losses,) = placer._losses([segment], [output], [segment.terms])
    complete, *without = score(
        placer.model, [encode(text) for text in (SOURCE, "The saw the house", "The king saw the")], [output] * 3
    )
    for loss, other in zip(losses.values(), without, strict=True):
        expected = torch.tensor(complete.log_p) - torch.tensor(other.log_p)
        torch.testing.assert_close(loss, expected[:-1])
    assert not torch.allclose(*losses.values())  # the control


def test_term_of_several_words_replaces_neighbours_that_belong_to_it(drafts: Draft):
    links, output = {"la": "the", "casa": "house"}, "El rey vio la casa."
    terms = [Glossary([Entry(source, ("el hogar",), "any")]) for source in ("the house", "house")]
    expected = ["El rey vio el hogar.", "El rey vio la el hogar."]
    assert [drafts(output, links, glossary=glossary)[0] for glossary in terms] == expected


def test_terms_do_not_share_words(placer: TermPlacer):
    glossary, output = Glossary([Entry("The king", ("hogares",)), Entry("house", ("monarca",))]), "El rey vio la casa"
    encode, decode = placer.tokenizers.source.encode, placer.tokenizers.source.decode
    segment = Segment(SOURCE, encode(SOURCE), terms=tuple(glossary.find(SOURCE)))
    losses = {term: torch.ones(len(encode(output))) for term in segment.terms}

    def draft(*links: dict[str, str]) -> str:
        weights = sum(attention(placer.tokenizers.source, SOURCE, output, own) for own in links)
        return decode(placer._draft(segment, encode(output), weights, losses, {}, {}) or [])

    king = {"El": "The", "rey": "king"}
    assert draft(king, {"casa": "house"}) == "Hogares vio la monarca"  # the control
    assert draft(king, {"El": "house"}) == "Hogares vio la casa"


def test_prefix_stays_and_faint_attention_says_nothing(drafts: Draft):
    output = "El rey vio la casa."
    assert drafts(output, LINKS, prefix="El") == drafts(output, LINKS, weight=0.5) != []  # the control
    assert drafts(output, LINKS, prefix="El rey") == ["El rey vio la hogar."]
    assert drafts(output, LINKS, weight=0.1) == []


def test_target_tag_stays_as_a_prefix_does(drafts: Draft, spanish: Tokenizer):
    output, begun = "El rey vio la casa.", spanish.encode("El rey")
    assert drafts(output, LINKS, target_tag_ids=begun) == drafts(output, LINKS, prefix="El rey")
    assert drafts(output, LINKS, target_tag_ids=begun[:1], prefix="rey") == drafts(output, LINKS, prefix="El rey")
    assert drafts(output, LINKS, target_tag_ids=begun) != drafts(output, LINKS)  # the control


def test_terms_in_place_have_the_score_of_the_model(placer: TermPlacer, drafts: Draft, monkeypatch: pytest.MonkeyPatch):
    output = "El rey vio la casa."
    links = attention(placer.tokenizers.source, SOURCE, output, LINKS)
    monkeypatch.setattr(placement, "alignment_weights", lambda *_: [links, links * 0])
    monkeypatch.setattr(placement, "MIN_LOSS", -9.0)  # nothing depends on anything in a model without training
    encode = placer.tokenizers.source.encode
    segment = Segment(SOURCE, encode(SOURCE), terms=tuple(GLOSSARY.find(SOURCE)))
    placed, nothing = placer.place([segment] * 2, [Hypothesis(encode(output), 0.0)] * 2, 0.0)
    forms = [encode(draft) for draft in drafts(output, LINKS)]
    totals = [own.total for own in score(placer.model, [segment.ids] * len(forms), forms)]
    assert placed
    assert (placed.tokens, placed.score) == (forms[totals.index(max(totals))], pytest.approx(max(totals)))
    assert nothing is None
    monkeypatch.setattr(placement, "alignment_weights", lambda *_: [links])
    tagged = replace(segment, target_tag_ids=encode("El"))
    (behind_tag,) = placer.place([tagged], [Hypothesis(encode(output), 0.0)], 0.0)
    likelihoods = [own.after(len(encode("El"))).total for own in score(placer.model, [segment.ids] * len(forms), forms)]
    assert behind_tag
    assert behind_tag.score == pytest.approx(max(likelihoods))
    assert behind_tag.score > placed.score  # the control: a score without the tag's tokens


@pytest.mark.parametrize(
    ("plain", "without_rey", "expected", "searches"),
    [
        ("El rey vio la casa.", "", "El monarca vio la casa.", 2),
        ("El rey vio al rey.", "El vio al hogar.", "El monarca al hogar.", 3),
        ("El rey vio al rey.", "El rey vio.", "El monarca vio.", 3),
        ("El rey vio al rey.", "El rey y el rey.", "El monarca vio al rey.", 3),
    ],
)  # fmt: skip
def test_term_takes_the_place_of_a_forbidden_word(
    spanish: Tokenizer, monkeypatch: pytest.MonkeyPatch, plain: str, without_rey: str, expected: str, searches: int
):
    """The result is checked again: what is still forbidden is avoided by another search, or flagged."""

    def links(model: Model, sources: list[Ids], outputs: list[Ids], head: AlignmentHead) -> list[torch.Tensor]:
        texts = [spanish.decode(ids) for ids in outputs]
        return [attention(spanish, "The king", text, {"rey" if "rey" in text else "vio": "king"}) for text in texts]

    class Engine:
        max_positions, searches = None, 0

        def search(
            self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints]
        ) -> list[list[Hypothesis]]:
            self.searches += 1  # one of them for the word that the model says for "king" alone
            text = without_rey if constraints[0].forbidden else plain
            return [[Hypothesis(spanish.encode(text), -1.0)]]

    monkeypatch.setattr(placement, "alignment_weights", links)
    monkeypatch.setattr(placement, "MIN_LOSS", -9.0)
    glossary, engine = Glossary([Entry("king", ("monarca",))]), Engine()
    safeguards = Safeguards(faults=False, glossary=glossary, forbidden=("rey",))
    model = build(TINY, len(spanish)).eval()
    found = Translator(model, spanish, SearchConfig(beam=1), safeguards, engine).translate("The king")
    flags = ("has rey",) * ("rey" in expected)
    assert (found.text, found.flags, engine.searches) == (expected, flags, searches)


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_with_terms_are_distinct_and_in_order_of_score(
    spanish: Tokenizer, monkeypatch: pytest.MonkeyPatch, beam: int
):
    """The best of the search stays the best, as without alternatives."""
    texts = ["El rey vio la casa.", "El rey la vio.", "El Rey vio la casa.", "El monarca vio."][:beam]
    scores = {"El monarca vio la casa.": -3.0, "El monarca la vio.": -5.0}

    class Engine:
        max_positions = None

        def search(self, sources: list[Ids], config: SearchConfig, constraints: object) -> list[list[Hypothesis]]:
            return [[Hypothesis(spanish.encode(text), -1.0 - rank) for rank, text in enumerate(texts)]]

    def place(self: TermPlacer, segments: object, hypotheses: list[Hypothesis], *_: object) -> list[Hypothesis]:
        found = [spanish.decode(one.tokens).replace("rey", "monarca").replace("Rey", "monarca") for one in hypotheses]
        return [Hypothesis(spanish.encode(text), scores[text]) for text in found]

    monkeypatch.setattr(TermPlacer, "place", place)
    safeguards = Safeguards(faults=False, glossary=Glossary([Entry("king", ("monarca",))]))
    search, model = SearchConfig(beam=beam, n_best=beam), build(TINY, len(spanish)).eval()
    found = Translator(model, spanish, search, safeguards, Engine()).translate("The king")  # type: ignore[arg-type]
    expected = ["El monarca vio la casa.", "El monarca vio.", "El monarca la vio."]
    assert [found.text, *(one.text for one in found.alternatives)] == (expected if beam > 1 else expected[:1])


def test_terms_are_found_again_in_a_text_without_its_placeholders(spanish: Tokenizer):
    safeguards, text = Safeguards(glossary=GLOSSARY), "{x} The king %s saw {y} the house"
    segment = Segment(text, spanish.encode(text), terms=safeguards.find_terms(text))
    (retry,) = prepare_retries([segment], spanish, safeguards)
    assert [retry.bare.text[term.start : term.end] for term in retry.bare.terms] == ["king", "house"]
    assert [retry.bare.text[term.start : term.end] for term in segment.terms] != ["king", "house"]  # the control
