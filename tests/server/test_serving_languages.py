"""A model of several languages is served for all of them: requests name languages, and the folder knows their tags."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import signed_again
from foreign import copy_of, m2m100_folder, marian_folder
from safetensors.torch import load_file, save_file
from serving import CONFIG, Running, running

from dragoman.config import SearchConfig
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.importing import import_model
from dragoman.server.languages import languages_of_tags
from dragoman.server.models import open_models, parse_models
from dragoman.text.tags import LanguageTags
from dragoman.translation.translator import Translator

TEXT = "The dog finds the blue cat."
TAGS = {"en": "eng_Latn", "ko": "kor_Hang", "es": "spa_Latn"}
DIRECTIONS = list(itertools.permutations(TAGS, 2))


def imported(folder: Path, make: Any, **how: Any) -> Path:
    make(folder / "their", **how)
    return import_model(folder / "their", folder / "ours")


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported(tmp_path_factory.mktemp("nllb"), nllb_folder)


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported(tmp_path_factory.mktemp("opus"), marian_folder, tags=[">>deu<<", ">>zho_Hant<<"])


def nllb_folder(folder: Path) -> None:
    """One in which the languages count for much: with random weights, they hardly would."""
    m2m100_folder(folder, nllb=True)
    weights = load_file(folder / "model.safetensors")
    weights["model.shared.weight"][-4:-1] *= 2
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def served(nllb: Path) -> Iterator[Running]:
    config = replace(CONFIG, beam=1)
    models = open_models(config, parse_models([str(nllb)], None))
    with running(models, config) as server:
        yield server
    models.close(5)


@cache
def opened(model: Path) -> Translator:
    return Translator.load(model, SearchConfig(beam=1), threads=1)


def expected(model: Path, tag: str, target_tag: str = "") -> str:
    """The translation; the server leaves a text as it is where the model says no word."""
    translation = opened(model).replace(tag=tag, target_tag=target_tag).translate(TEXT)
    return TEXT if "empty" in translation.flags else translation.text


@pytest.fixture(scope="module")
def translations(nllb: Path) -> dict[tuple[str, str], str]:
    """By their pairs."""
    found = {(one, other): expected(nllb, TAGS[one], TAGS[other]) for one, other in DIRECTIONS}
    assert len(set(found.values())) == len(DIRECTIONS)  # else a wrong tag would not be seen
    return found


def own(server: Running, source: str, target: str, **more: Any) -> Any:
    return server.ask("POST", "/api/v1/translate", {"texts": [TEXT], "source": source, "target": target, **more}).json


@pytest.mark.parametrize(("source", "target"), DIRECTIONS)
def test_apis_translate_with_the_tags_of_their_languages(
    source: str, target: str, served: Running, translations: dict[tuple[str, str], str]
):
    right = translations[source, target]
    assert served.translate(TEXT, source=source, target=target).json["translatedText"] == right
    body = {"text": [TEXT], "source_lang": source.upper(), "target_lang": target.upper()}
    answer = served.ask("POST", "/v2/translate", body, Authorization="DeepL-Auth-Key x").json
    assert answer["translations"][0]["text"] == right
    (answer,) = own(served, source, target, alignment=True, word_scores=True)["translations"]
    assert answer["text"] == right
    assert [word for word, _ in answer["words"]][:-1] == right.split() or right == TEXT
    body = {"text": TEXT, "source": source, "target": target}
    (inspected,) = served.ask("POST", "/api/v1/inspect", body).json["inspections"]
    assert (inspected["translation"] or TEXT) == right


def test_requests_for_several_languages_at_once_get_their_own(
    served: Running, translations: dict[tuple[str, str], str]
):
    asked = DIRECTIONS * 4
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda pair: own(served, *pair)["translations"][0]["text"], asked))
    assert answers == [translations[pair] for pair in asked]


def test_languages_are_listed(served: Running):
    listed = {each["code"]: sorted(each["targets"]) for each in served.ask("GET", "/languages").json}
    assert listed == {code: sorted(TAGS) for code in TAGS}
    names = served.ask("GET", "/v2/languages?type=target", Authorization="DeepL-Auth-Key x").json
    assert {each["language"][:2].lower() for each in names} == {*TAGS}
    answer = served.ask("GET", "/api/v1/models").json
    assert {(each["source"], each["target"]) for each in answer["pairs"]} == {*DIRECTIONS}
    assert [each["tags"] for each in answer["pairs"]] == [[]] * len(DIRECTIONS)  # which the languages choose
    (card,) = answer["models"]
    assert {"source": "es", "target": "ko", "tag": "spa_Latn", "target_tag": "kor_Hang"} in card["pairs"]
    assert served.translate(TEXT, target="de").status == 400


def test_served_languages_may_be_some_of_the_model(nllb: Path):
    def pairs(*flags: str) -> set[str]:
        return {str(source.pair) for source in parse_models(flags, None)}

    assert pairs(f"en-ko={nllb}") == {"en-ko"}
    assert pairs(f"en,ko={nllb}") == {"en-ko", "ko-en"}
    assert pairs(f"en-ko={nllb}", f"es-en={nllb}") == {"en-ko", "es-en"}
    (source,) = parse_models([f"en-ko={nllb}"], None)
    assert (source.tag, source.target_tag) == ("eng_Latn", "kor_Hang")
    for flag, says in (
        (f"en-de={nllb}", "has no tag for 'de': choose from en, es, ko"),
        (f"en={nllb}", "name two languages or more"),
        (f"en,de={nllb}", "no tag for 'de'"),
    ):
        with pytest.raises(UsageError, match=says):
            parse_models([flag], None)
    with pytest.raises(UsageError, match="two models for en-ko"):
        parse_models([str(nllb), f"en-ko={nllb}"], None)


def test_tags_in_front_of_sources_name_targets(opus: Path):
    """As OPUS-MT has them: the language of the sources is not recorded."""
    with pytest.raises(UsageError, match=r"write the language of its sources in front: en="):
        parse_models([str(opus)], None)
    config = replace(CONFIG, beam=1)
    models = open_models(config, parse_models([f"en={opus}"], None))
    assert {str(pair) for pair in models.by_pair} == {"en-de", "en-zh"}
    right = {"de": expected(opus, "deu"), "zh": expected(opus, "zho_Hant")}
    assert right["de"] != right["zh"]  # the control
    with running(models, config) as server:
        for target, text in right.items():
            assert own(server, "en", target)["translations"][0]["text"] == text
    models.close(5)


def test_model_without_such_tags_needs_a_pair(trained: Path):
    with pytest.raises(UsageError, match="has no tags of languages: write a pair"):
        parse_models([f"en,ko={trained}"], None)
    with pytest.raises(UsageError, match="does not record its languages"):
        parse_models([str(trained)], None)


def test_smaller_models_of_it_keep_its_languages(nllb: Path, tmp_path: Path):
    from dragoman.training.average import average

    average([nllb], tmp_path / "mean")
    assert LanguageTags.load(tmp_path / "mean") == LanguageTags.load(nllb) is not None


@pytest.mark.parametrize(
    "content", ['{"tags": ["a"]}', '{"tags": ["a"], "of": "x"}', '{"tags": [1], "of": "text"}', "["]
)
def test_damaged_record_is_refused(content: str, nllb: Path, tmp_path: Path):
    folder = copy_of(nllb, tmp_path / "copy")
    (folder / LanguageTags.RECORD).write_text(content)
    signed_again(folder)
    with pytest.raises(DragomanError, match="not a record of the tags of languages"):
        LanguageTags.load(folder)


def test_small100_begins_sources_with_the_target(tmp_path: Path):
    m2m100_folder(tmp_path / "their")
    (tmp_path / "their" / "tokenization_small100.py").write_text("")
    import_model(tmp_path / "their", tmp_path / "ours")
    record = json.loads((tmp_path / "ours" / LanguageTags.RECORD).read_text())
    assert (record["of"], sorted(record["tags"])) == ("target", ["en", "ko", "sp"])


def test_languages_of_tags_are_found_by_code():
    def codes(*tags: str) -> list[str]:
        found = languages_of_tags(tags)
        assert list(found.values()) == list(tags)
        return list(found)

    assert codes("eng_Latn", "kor_Hang", "zho_Hans", "zho_Hant") == ["en", "ko", "zh", "zh-Hant"]
    assert codes("ace_Arab", "ace_Latn", "srp_Cyrl") == ["ace-Arab", "ace", "sr"]
    assert codes("deu", "cmn_Hant", "pt_br", "fr") == ["de", "zh", "pt-BR", "fr"]
    assert languages_of_tags(["news", "2", "a"]) == {}
