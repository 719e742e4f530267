"""How sure a model is of its translations: what the server says of it, what it leaves out, and who hears nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIDENCE, CONFIG, NOTHING, Running, running, with_confidence

from dragoman.errors import UsageError
from dragoman.server.models import Models, open_models, parse_models
from dragoman.translation.annotate import word_offsets
from dragoman.translation.translator import Translator

TEXTS = ["The dog sees 4 red cats.", "Bear the rabbit red."]
SENTENCES = " ".join(TEXTS)


@pytest.fixture(scope="module")
def alone(sure_model: Path) -> Translator:
    """The model without a server."""
    return Translator.load(sure_model, threads=1)


@pytest.fixture(scope="module")
def sure_first(alone: Translator) -> list[str]:
    """Two texts, of which the model is surer of the first; of which ones it is depends on the processor's last bits."""
    asked = [*TEXTS, "The cat likes 3 black bears.", "Red red red.", "4 dogs", "A rabbit, the bear and 7 of the cats."]
    return sorted(asked, key=lambda text: alone.translate(text).confidence or 0, reverse=True)[:: len(asked) - 1]


@pytest.fixture(scope="module")
def between(alone: Translator, sure_first: list[str]) -> float:
    """A confidence between those in the two texts."""
    more, less = (alone.translate(text).confidence for text in sure_first)
    assert None not in (more, less)
    assert less < more - 0.01
    return (more + less) / 2


@pytest.fixture(scope="module")
def strict(sure_models: Models, between: float) -> Iterator[Running]:
    """A server that leaves out the second text."""
    with running(sure_models, replace(CONFIG, min_confidence=between)) as started:
        yield started


def own(server: Running, *texts: str, **fields: Any) -> list[dict[str, Any]]:
    request = {"texts": texts, "source": "en", "target": "ko", **fields}
    answer = server.ask("POST", "/api/v1/translate", request)
    assert answer.status == 200, answer
    return answer.json["translations"]


def test_texts_and_segments_have_the_confidence_of_the_model(sure_server: Running, alone: Translator):
    found, lines = own(sure_server, SENTENCES, "\n".join(TEXTS))
    expected = [alone.translate(text).confidence for text in TEXTS]
    assert [one["confidence"] for one in found["segments"]] == pytest.approx(expected, abs=1e-4)
    assert [one["confidence"] for one in lines["segments"]] == pytest.approx(expected, abs=1e-4)
    assert found["confidence"] == lines["confidence"] == min(one["confidence"] for one in found["segments"])
    assert alone.translate(SENTENCES).confidence == pytest.approx(min(expected), abs=1e-4)


def test_confidence_is_null_where_nothing_is_known(server: Running, sure_server: Running):
    (found,) = own(server, SENTENCES, word_scores=True)
    assert found["confidence"] is None
    assert [one["confidence"] for one in found["segments"]] == [None, None]
    assert found["words"]
    assert "word_confidences" not in found
    (copied,) = own(sure_server, "12:30")
    assert copied["confidence"] is None


def test_word_confidences_are_those_of_the_translator(sure_server: Running, alone: Translator):
    translation = alone.translate(SENTENCES)
    ((*expected,),) = alone.word_confidences([translation])
    (found,) = own(sure_server, SENTENCES, word_scores=True)
    assert [word for word, _ in found["words"][:-1]] == [word for word, _ in expected]
    assert found["word_confidences"] == pytest.approx([sure for _, sure in expected], abs=1e-4)
    _, second = word_offsets([output for _, output in translation.segments])
    (alike,) = own(sure_server, TEXTS[1], word_scores=True)
    assert found["word_confidences"][second:] == pytest.approx(alike["word_confidences"], abs=1e-4)
    (unasked,) = own(sure_server, SENTENCES, others=True, alignment=True)
    assert "word_confidences" not in unasked


def test_confidence_in_a_detected_language_has_its_own_name(sure_server: Running):
    (found,) = own(sure_server, TEXTS[0], source="auto")
    assert 1 < found["source_confidence"] <= 100
    assert found["confidence"] < 1


def test_other_apis_answer_byte_for_byte_as_without_confidence(server: Running, sure_server: Running):
    deepl = {"text": [*TEXTS, SENTENCES], "source_lang": "EN", "target_lang": "KO"}
    libre = {"q": [*TEXTS, SENTENCES], "source": "en", "target": "ko", "alternatives": 2}
    for path, body in (
        ("/v2/translate", deepl),
        ("/v2/translate", {**deepl, "tag_handling": "html"}),
        ("/translate", libre),
        ("/translate", {**libre, "q": SENTENCES, "source": "auto"}),
    ):
        answers = [each.ask("POST", path, body, Authorization="DeepL-Auth-Key x") for each in (server, sure_server)]
        assert [answer.status for answer in answers] == [200, 200]
        assert answers[0].body == answers[1].body
    own_answers = [own(each, SENTENCES) for each in (server, sure_server)]
    assert own_answers[0] != own_answers[1]


def test_translations_below_the_least_confidence_are_left_out(
    strict: Running, alone: Translator, sure_first: list[str]
):
    kept = alone.translate(sure_first[0]).text
    found = own(strict, *sure_first, "\n".join(sure_first), alternatives=1, word_scores=True)
    assert [one["text"] for one in found] == [kept, "", ""]
    assert ["unsure" in one["flags"] for one in found] == [False, True, True]
    assert found[0]["words"]
    for one in found[1:]:
        assert one["alternatives"] == one["segments"] == one["words"] == one["word_confidences"] == []
        assert one["confidence"] < found[0]["confidence"]
    assert strict.translate(sure_first).json["translatedText"] == [kept, ""]
    body = {"text": sure_first, "source_lang": "EN", "target_lang": "KO"}
    deepl = strict.ask("POST", "/v2/translate", body, Authorization="DeepL-Auth-Key x").json["translations"]
    assert [one["text"] for one in deepl] == [kept, ""]


def test_least_confidence_of_a_request_goes_before_that_of_the_server(
    sure_server: Running, strict: Running, server: Running, between: float, alone: Translator, sure_first: list[str]
):
    wholes = [alone.translate(text).text for text in sure_first]
    assert [one["text"] for one in own(strict, *sure_first, min_confidence=0)] == wholes
    assert [one["text"] for one in own(strict, *sure_first, min_confidence=1)] == ["", ""]
    assert [one["text"] for one in own(sure_server, *sure_first, min_confidence=between)] == [wholes[0], ""]
    for value in (-0.1, 1.5, "much"):
        request = {"texts": sure_first, "source": "en", "target": "ko", "min_confidence": value}
        assert sure_server.ask("POST", "/api/v1/translate", request).status == 400
    request = {"texts": sure_first, "source": "en", "target": "ko", "min_confidence": 0.5}
    refused = server.ask("POST", "/api/v1/translate", request)
    assert refused.status == 400
    assert "a model that knows how sure it may be" in refused.json["error"]["message"]


def test_model_that_was_not_measured_is_not_served_with_a_least_confidence(trained: Path, sure_model: Path):
    sources = parse_models([f"en-ko={trained}"], None)
    with pytest.raises(UsageError, match=r"--min-confidence needs a model that knows how sure it may be: dragoman"):
        open_models(replace(CONFIG, min_confidence=0.5), sources)
    open_models(replace(CONFIG, min_confidence=0.5), parse_models([f"en-ko={sure_model}"], None)).close(5)


@pytest.mark.parametrize(
    ("offsets", "least"), [((50, 1000), 0.5), ((1000, 50), 0.5), ((1000, None), None), ((None, 1000), None)]
)
def test_confidence_through_a_pivot_is_that_of_the_less_sure_model(
    trained: Path, tmp_path: Path, offsets: tuple[float | None, float | None], least: float | None
):
    always = replace(CONFIDENCE, weights=NOTHING)  # whatever the text is
    first, second = (
        trained if offset is None else with_confidence(trained, tmp_path / side, replace(always, offset=offset))
        for side, offset in zip("ab", offsets, strict=True)
    )
    models = open_models(replace(CONFIG, pivot="ko"), parse_models([f"en-ko={first}", f"ko-de={second}"], "ko"))
    with running(models, CONFIG) as started:
        (found,) = own(started, SENTENCES, target="de")
        assert found["text"]
        assert (found["confidence"], [one["confidence"] for one in found["segments"]]) == (least, [least])
        pairs = {(one["source"], one["target"]): one for one in started.ask("GET", "/api/v1/models").json["pairs"]}
        assert pairs["en", "de"]["confidence"] == (least is not None)
        assert [pairs[pair]["confidence"] for pair in (("en", "ko"), ("ko", "de"))] == [x is not None for x in offsets]
        request = {"texts": [SENTENCES], "source": "en", "target": "de", "min_confidence": 0.6}
        strict = started.ask("POST", "/api/v1/translate", request)
        assert strict.status == (200 if least else 400)
        if least:
            (left_out,) = strict.json["translations"]
            assert (left_out["text"], left_out["segments"], "unsure" in left_out["flags"]) == ("", [], True)
    models.close(5)


def test_histogram_counts_the_confidences_of_measured_models(server: Running, sure_models: Models, between: float):
    with running(sure_models, CONFIG) as started:
        assert "dragoman_confidence_count" not in started.ask("GET", "/metrics").body.decode()
        own(started, *TEXTS, "12:30", "")
        counts = [
            started.metric(f'dragoman_confidence_bucket{{le="{tenth / 10}",pair="en-ko"}}') for tenth in range(1, 10)
        ]
        expected = [one["confidence"] for one in own(started, *TEXTS)]
        assert counts == [sum(sure <= tenth / 10 for sure in expected) for tenth in range(1, 10)]
        assert started.metric('dragoman_confidence_count{pair="en-ko"}') == 4
    own(server, *TEXTS)
    assert "dragoman_confidence_count" not in server.ask("GET", "/metrics").body.decode()


def test_openapi_says_where_there_is_no_confidence(server: Running):
    schemas = server.ask("GET", "/openapi.json").json["components"]["schemas"]
    text = next(name for name in schemas if name.endswith("own.texts.TranslatedText"))
    for name in (text, "Segment"):
        field = schemas[name]["properties"]["confidence"]
        assert "null where" in field["description"]
        assert {one["type"] for one in field["anyOf"]} == {"number", "null"}
    words = schemas[text]["properties"]["word_confidences"]
    assert "absent for a model that was not measured" in words["description"]
    assert "word_confidences" not in schemas[text]["required"]


def test_card_of_a_model_says_how_good_its_confidence_is(server: Running, sure_server: Running):
    (card,) = sure_server.ask("GET", "/api/v1/models").json["models"]
    assert (card["confidence"]["threshold"], card["confidence"]["auc"]) == (50.0, 0.75)
    assert server.ask("GET", "/api/v1/models").json["models"][0]["confidence"] is None
