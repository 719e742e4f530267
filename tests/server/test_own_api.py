"""Our own API below /api/v1: what it says of a translation, documents, glossaries, cards of models."""

import errno
import io
import json
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import deepl
import pytest
from conftest import TINY, Ran, save_random, toy_pairs
from serving import CONFIG, Answer, Running, multipart, running, until

from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.rows import Ticket
from dragoman.inspection.summary import Summary
from dragoman.server import files
from dragoman.server.keys import MAX_CALLERS, Key, Usage, digest
from dragoman.server.models import Models, open_models, parse_models
from dragoman.translation.annotate import Annotator
from dragoman.translation.translator import Translator

TEXT = "The dog sees 4 red cats."
KEYS = [Key("one", digest("first")), Key("two", digest("second"))]


@pytest.fixture(scope="module")
def kept(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with keys and a folder."""
    with running(models, replace(CONFIG, state=str(tmp_path_factory.mktemp("state"))), KEYS) as started:
        yield started


@pytest.fixture(scope="module")
def alone(models: Models) -> str:
    """How the model translates TEXT without a server."""
    return next(iter(models.by_pair.values())).translator.translate(TEXT).text


def own(server: Running, **fields: Any) -> Any:
    answer = server.ask("POST", "/api/v1/translate", {"source": "en", "target": "ko", **fields})
    assert answer.status == 200, answer
    return answer.json["translations"]


def ask(server: Running, method: str, path: str, body: Any = None, key: str = "first", **headers: str) -> Answer:
    return server.ask(method, f"/api/v1/{path}", body, Authorization=f"Bearer {key}", **headers)


# --- Texts


def test_segments_are_spans_of_both_texts(server: Running, alone: str):
    (second, _), (third, _) = toy_pairs(2)
    text = f"  {TEXT} {second}\n\n7\n{third}"
    (found,) = own(server, texts=[text])
    sources = [text[slice(*one["source"])] for one in found["segments"]]
    targets = [found["text"][slice(*one["target"])] for one in found["segments"]]
    assert sources == [TEXT, second, third]
    assert targets == [own(server, texts=[one])[0]["text"] for one in sources]
    assert targets[0] == alone
    assert found["score"] < 0
    (same,) = own(server, texts=["개가 봐요.\n말"], source="ko", word_scores=True, alignment=True)
    assert (same["text"], same["segments"], same["words"], same["alignment"]) == ("개가 봐요.\n말", [], [], [])


def test_words_are_scored_and_aligned_as_the_command_does(server: Running, dragoman: Any, trained: Path):
    """With placeholders that a second search puts back, with several sentences, and without letters."""
    texts = [TEXT, f"{TEXT}  {TEXT}", "The {name} sees <b>4</b> red cats.", "7 8", toy_pairs(1)[0][0]]
    flags = ["--output-format", "jsonl", "--word-scores", "--alignment", "--quiet"]
    ran: Ran = dragoman("translate", "-m", trained, *flags, *texts)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    found = own(server, texts=texts, word_scores=True, alignment=True)
    for row, one in zip(rows, found, strict=True):
        assert (one["text"], one["finished"], one["retried"]) == (
            row["translation"], row["finished"], row.get("retried", False),
        )  # fmt: skip
        assert [word for word, _ in one["words"]] == [word for word, _ in row["words"]] == [*one["text"].split(), ""]
        assert [p for _, p in one["words"]] == pytest.approx([p for _, p in row["words"]], abs=2e-4)
        assert " ".join(f"{i}-{j}" for i, j in one["alignment"]) == row["alignment"]
    assert found[0]["words"] != found[4]["words"]  # else the comparison would say nothing
    assert any(found[2]["alignment"])
    assert {"words", "alignment"} & set(own(server, texts=[TEXT])[0]) == set()


def test_words_are_counted_over_all_lines(server: Running):
    """What the lines of a text have alone, with the numbers of their words shifted; lines that are copied have 0."""
    lines = [TEXT, toy_pairs(1)[0][0], "7 8", f"{TEXT} {TEXT}"]
    (whole,) = own(server, texts=[" \n" + "\n\n ".join(lines) + "\n"], word_scores=True, alignment=True)
    parts = own(server, texts=lines, word_scores=True, alignment=True)
    assert [word for word, _ in whole["words"]] == [word for one in parts for word, _ in one["words"][:-1]] + [""]
    log_p = [p for one in parts for _, p in one["words"][:-1]] + [sum(one["words"][-1][1] for one in parts)]
    assert [p for _, p in whole["words"]] == pytest.approx(log_p, abs=1e-3)
    before = list(accumulate((len(line.split()) for line in lines), initial=0))
    after = list(accumulate((len(one["text"].split()) for one in parts), initial=0))
    assert whole["alignment"] == [
        [i + before[n], j + after[n]] for n, one in enumerate(parts) for i, j in one["alignment"]
    ]


def test_work_beside_the_search_is_serial_and_has_a_deadline(models: Models):
    with running(models, replace(CONFIG, deadline=0.5)) as server, server.service.beside:
        body = {"texts": [TEXT], "source": "en", "target": "ko", "word_scores": True}
        late = server.ask("POST", "/api/v1/translate", body)
        assert (late.status, "longer than 0.5 seconds" in late.json["error"]["message"]) == (503, True)
        assert server.ask("POST", "/api/v1/translate", {**body, "word_scores": False}).status == 200


def test_deadline_of_words_counts_between_two_translations(models: Models, monkeypatch: pytest.MonkeyPatch):
    tickets, others = list[Ticket](), Annotator.others

    def take_long(*task: Any) -> Any:
        tickets[-1].deadline = deadline
        return others(*task)

    with running(models, CONFIG) as server:
        turn = server.service.turn
        monkeypatch.setattr(server.service, "turn", lambda ticket: (tickets.append(ticket), turn(ticket))[1])
        monkeypatch.setattr(Annotator, "others", take_long)
        body, deadline = {"texts": [TEXT] * 3, "translations": ["개"] * 3, "source": "en", "target": "ko"}, 0.0
        assert (server.ask("POST", "/api/v1/words", body).status, len(tickets)) == (503, 2)
        deadline = math.inf
        assert (server.ask("POST", "/api/v1/words", body).status, len(tickets)) == (200, 2 + 3)


def test_alternatives_have_scores_and_a_sentence_in_parts_says_so(server: Running, models: Models):
    (found,) = own(server, texts=[f"{TEXT}\n{TEXT}"], alternatives=3)
    (served,) = models.by_pair.values()
    search = replace(served.translator.search, beam=CONFIG.beam, n_best=4)
    best = served.translator.replace(search=search).translate(TEXT)
    scores = [2 * one.score for one in best.alternatives]
    assert found["alternative_scores"] == pytest.approx(scores[: len(found["alternatives"])], abs=1e-4)
    assert "parts" not in found
    (long,) = own(server, texts=["dog and " * 400 + "cat."], split="none")
    assert long["parts"] == len(long["segments"]) > 1


def test_request_has_its_own_glossary_and_prefix(server: Running, alone: str):
    (plain,), (bound,), (begun,) = (
        own(server, texts=[TEXT]),
        own(server, texts=[TEXT], glossary=["dog\t개들", "red\t엉뚱한 말"]),
        own(server, texts=[TEXT + "\n" + TEXT], prefix="말"),
    )
    assert plain["text"] == alone
    assert plain["terms_met"] == plain["terms_missed"] == []
    assert sorted(bound["terms_met"] + bound["terms_missed"]) == ["dog", "red"]
    assert {f"no {term}" for term in bound["terms_missed"]} <= set(bound["flags"])
    assert ("개들" in bound["text"]) == ("dog" in bound["terms_met"])
    assert [bound] == own(server, texts=[TEXT], glossary=["dog\t개들\nred\t엉뚱한 말\n"])
    first, second = begun["text"].split("\n")
    assert first.startswith("말")
    assert second == alone
    assert own(server, texts=[TEXT])[0]["text"] == alone  # nothing of one request stays for the next
    begun, left = own(server, texts=[TEXT, TEXT], prefix=["말", ""])
    assert begun["text"].startswith("말")
    assert left["text"] == alone != begun["text"]
    body = {"texts": [TEXT], "source": "en", "target": "ko", "prefix": ["말", ""]}
    assert server.ask("POST", "/api/v1/translate", body).status == 400


def steered(server: Running, path: str, **fields: Any) -> Any:
    answer = server.ask("POST", f"/api/v1/{path}", {"source": "en", "target": "ko", **fields})
    assert answer.status == 200, answer
    return answer.json


def test_other_words_are_those_that_python_finds(server: Running, models: Models, alone: str):
    (served,) = models.by_pair.values()
    before = alone.split()[0] + " "
    answer = steered(server, "alternatives", text=TEXT, prefix=before, count=4)
    translator = served.translator.replace(search=replace(served.translator.search, beam=2))
    expected = translator.alternatives(TEXT, before, count=4)
    assert [(one["word"], one["text"]) for one in answer["words"]] == [
        (one.word, one.translation.text) for one in expected
    ]
    assert [one["probability"] for one in answer["words"]] == [round(one.probability, 4) for one in expected]
    assert answer["words"][0]["flags"] == list(expected[0].translation.flags)
    assert steered(server, "alternatives", text=TEXT, prefix=before, forbid=["봐요"])["words"]
    assert steered(server, "alternatives", text=TEXT, target="en")["words"] == []
    for wrong in ({"text": ""}, {"count": 9}, {"text": TEXT, "prefix": "x " * 2000}):
        body = {"text": TEXT, "source": "en", "target": "ko", **wrong}
        assert server.ask("POST", "/api/v1/alternatives", body).status == 400


def test_other_words_are_those_of_one_line(server: Running):
    for wrong, named in (({"text": f"{TEXT}\n{TEXT}"}, "text has line"), ({"prefix": "말\n봐요"}, "a prefix has line")):
        body = {"text": TEXT, "source": "en", "target": "ko", **wrong}
        refused = server.ask("POST", "/api/v1/alternatives", body)
        assert (refused.status, named in refused.json["error"]["message"]) == (400, True)
    body = {"texts": [TEXT], "source": "en", "target": "ko", "prefix": ["말\n봐요"]}
    assert server.ask("POST", "/api/v1/translate", body).status == 400
    assert steered(server, "alternatives", text=f"{TEXT}\n", prefix="말\n")["words"]  # the control


def test_words_of_a_handwritten_translation_are_scored(server: Running, alone: str):
    body = {"alignment": True, "word_scores": True, "others": True}
    (found,) = own(server, texts=[TEXT], **body)
    (words,) = steered(server, "words", texts=[TEXT], translations=[alone])["translations"]
    assert words == {"words": found["words"], "others": found["others"], "alignment": found["alignment"]}
    (other,) = steered(server, "words", texts=[TEXT], translations=["고양이 고양이"])["translations"]
    assert [word for word, _ in other["words"]] == ["고양이", "고양이", ""]
    assert len(other["others"]) == 2
    assert other["words"][1][1] < math.log(max(other["others"])) < 0
    for wrong in ({"translations": ["a", "b"]}, {"source": "ko", "target": "en"}, {"tag": "news"}):
        sent = {"texts": [TEXT], "translations": [alone], "source": "en", "target": "ko", **wrong}
        assert server.ask("POST", "/api/v1/words", sent).status == 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": []}, "length >= 1"),
        ({"glossary": ["dog"]}, "no tab"),
        ({"glossary_ids": [32 * "0"], "source": "auto"}, "needs the source language"),
        ({"tag": "news"}, "unknown tag"),
        ({"beam": 1000}, "at most 8"),
        ({"forbid": [" "]}, "must not be blank"),
        ({"source": "ko", "target": "en"}, "cannot be translated"),
        ({"format": "html", "alignment": True}, "not for html"),
        ({"glosary": ["dog"]}, "there is no field 'glosary'; did you mean 'glossary'?"),
        ({"": 1}, "there is no field ''; there are target, source, "),
    ],
)
def test_wrong_requests_are_explained(server: Running, changes: dict[str, Any], message: str):
    answer = server.ask("POST", "/api/v1/translate", {"texts": ["x"], "source": "en", "target": "ko", **changes})
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


def test_unknown_fields_are_refused_here_and_ignored_elsewhere(server: Running, kept: Running):
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    names = {"detect": "texts", "documents": "target", "glossaries": "dictionaries", "inspect": "source"}
    for path, near in names.items():
        for answer in (
            ask(kept, "POST", path, {near + "s": "x"}),
            ask(kept, "POST", path, f"{near}s=x", **form),
        ):
            message = f"there is no field '{near}s'; did you mean '{near}'?"
            assert (answer.status, answer.json["error"]["message"]) == (400, message)
    body, kind = multipart([("source", "en"), ("target", "ko"), ("file", "The dog.")])
    answer = ask(kept, "POST", "documents", body, Content_Type=kind)
    message = "'file' is text: send it as a file, which has a file name"
    assert (answer.status, answer.json["error"]["message"]) == (400, message)
    body, kind = multipart([("target", "ko"), ("qqqqq", "x")], {"a.txt": "The dog."})
    answer = ask(kept, "POST", "documents", body, Content_Type=kind)
    assert answer.json["error"]["message"].startswith("there is no field 'qqqqq'; there are target, source, ")
    assert answer.json["error"]["message"].endswith(", file")
    assert "file" not in ask(kept, "POST", "glossaries", {"qqqqq": 1}).json["error"]["message"]
    dictionaries = [{"source": "en", "traget": "ko", "entries": {}}]
    answer = ask(kept, "POST", "glossaries", {"name": "x", "dictionaries": dictionaries})
    assert answer.json["error"]["message"] == "there is no field 'traget'; did you mean 'target'?"
    q = {"q": TEXT, "source": "en", "target": "ko", "glosary": "x"}
    assert server.ask("POST", "/translate", q).status == 200
    assert server.ask("POST", "/v2/translate", {"text": [TEXT], "target_lang": "KO", "glosary": "x"}).status == 200


@pytest.mark.parametrize("kind", [{"Content_Type": "application/x-www-form-urlencoded"}, {}])
def test_json_is_read_where_its_type_is_not_told(server: Running, alone: str, kind: dict[str, str]):
    """Also behind the mark with which some editors begin a file."""
    for path, field in (("/api/v1/translate", "texts"), ("/translate", "q")):
        for start in (" ", "\ufeff", "\ufeff "):
            body = start + json.dumps({field: [TEXT], "source": "en", "target": "ko"})
            assert alone in str(server.ask("POST", path, body.encode(), **kind).json)
    for wrong, reason in (
        (b"{", ""),
        (b"{'q': 1}", ": object keys must be strings (byte 1)"),
        (b'{"q": 1,}', ": trailing comma in object (byte 8)"),
        (b'{"q": "h\xf6"}', ": it is not in UTF-8"),
    ):
        assert server.ask("POST", "/translate", wrong, **kind).json["error"] == f"Invalid JSON format{reason}"


def test_words_are_not_scored_through_a_pivot(models: Models):
    one = next(iter(models.by_pair.values()))
    pairs = [replace(one, source=one.source._replace(pair=one.pair._replace(**new))) for new in (
        {"target": "de"}, {"source": "de"})]  # fmt: skip
    with running(Models(pairs, "de"), CONFIG) as server:
        assert own(server, texts=[TEXT])[0]["segments"]
        assert steered(server, "alternatives", text=TEXT)["words"]
        body = {"texts": [TEXT], "translations": ["x"], "source": "en", "target": "ko"}
        assert server.ask("POST", "/api/v1/words", body).status == 400
        body = {"texts": [TEXT], "source": "en", "target": "ko", "alignment": True}
        refused = server.ask("POST", "/api/v1/translate", body)
        assert (refused.status, "through de" in refused.json["error"]["message"]) == (400, True)
        served = {(one["source"], one["target"]): one for one in server.ask("GET", "/api/v1/models").json["pairs"]}
        assert served["en", "ko"]["through"] == ["de"]
        assert not served["en", "ko"]["word_scores"]
        assert served["en", "de"]["word_scores"]


@pytest.fixture(scope="module")
def legs(trained: Path, pairs: Sequence[Pair], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that translates from English into Korean through German. The model of the first step knows a tag."""
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), tags=["news"])
    first = save_random(TINY, tokenizer, tmp_path_factory.mktemp("tagged") / "model")
    config = replace(CONFIG, pivot="de")
    opened = open_models(config, parse_models([f"en-de={first}", f"de-ko={trained}"], "de"))
    with running(opened, config) as started:
        yield started
    opened.close(5)


def test_tag_of_a_request_is_for_the_first_model(legs: Running):
    (pair,) = (one for one in legs.ask("GET", "/api/v1/models").json["pairs"] if one["through"])
    assert pair["tags"] == ["news"]
    assert own(legs, texts=[TEXT], tag="news")
    assert steered(legs, "alternatives", text=TEXT, tag="news")
    assert len(steered(legs, "inspect", text=TEXT, tag="news")["inspections"]) == 2
    wrong = {"texts": [TEXT], "source": "de", "target": "ko", "tag": "news"}  # the control: the second one has none
    assert legs.ask("POST", "/api/v1/translate", wrong).status == 400


def test_pivot_translation_has_the_flags_of_both_models(legs: Running, monkeypatch: pytest.MonkeyPatch):
    translate, wrong = Translator.translate, list[dict[str, Any]]()
    monkeypatch.setattr(
        Translator, "translate", lambda *task: [replace(one, **wrong.pop(0)) for one in translate(*task)]
    )
    good = {"finished": True, "retried": False, "flags": ()}
    bad = {"finished": False, "retried": True, "flags": ("loop", "empty")}
    for first, second, said in (
        (bad, good, (False, True, ["loop", "empty"])),
        (good, bad, (False, True, ["loop", "empty"])),
        ({**good, "flags": ("empty",)}, bad, (False, True, ["empty", "loop"])),
        (good, good, (True, False, [])),
    ):
        wrong += [first, second]
        (found,) = own(legs, texts=[TEXT])
        assert (found["finished"], found["retried"], found["flags"]) == said


def test_models_route_lists_pairs_models_and_limits(server: Running, models: Models):
    answer = server.ask("GET", "/api/v1/models").json
    one = next(iter(models.by_pair.values()))
    assert answer["pairs"] == [
        {
            "source": "en",
            "target": "ko",
            "source_name": "English",
            "target_name": "Korean",
            "through": [],
            "glossary": True,
            "alignment": True,
            "aligned_by": asdict(one.translator.alignment),
            "word_scores": True,
            "confidence": False,
            "memory": None,
            "tags": [],
        }
    ]
    (card,) = answer["models"]
    summary = Summary.read(one.source.folder, one.translator.model.config, one.translator.tokenizers).as_dict()
    assert {name: card[name] for name in summary} == json.loads(json.dumps(summary))
    assert card["pairs"] == [{"source": "en", "target": "ko", "tag": "", "target_tag": ""}]
    assert card["parameters"] == sum(tensor.numel() for tensor in one.translator.model.parameters())
    assert str(one.source.folder.parent) not in json.dumps(answer)  # where it is, is nobody's business
    detected = server.ask("POST", "/api/v1/detect", {"texts": [TEXT, "개가 봐요"]}).json["texts"]
    assert [ranked[0]["language"] for ranked in detected] == ["en", "ko"]


# --- Glossaries


def test_glossaries_are_those_of_deepl_and_texts_are_translated_with_them(kept: Running):
    terms = {"source": "en", "target": "ko", "entries": {"dog": "개들"}}
    made = ask(kept, "POST", "glossaries", {"name": "animals", "dictionaries": [terms]})
    assert (made.status, made.json["dictionaries"]) == (201, [terms])
    path = f"glossaries/{made.json['id']}"
    client = deepl.DeepLClient("first", server_url=kept.url)
    assert client.get_glossary_entries(made.json["id"]) == {"dog": "개들"}
    other = client.create_glossary("more", "EN", "KO", {"cat": "야옹이", "dog": "멍멍이"})
    listed = ask(kept, "GET", "glossaries").json["glossaries"]
    assert [(one["name"], one["dictionaries"][0]["terms"]) for one in listed] == [("animals", 1), ("more", 2)]

    body = {"texts": [TEXT], "source": "en", "target": "ko", "glossary_ids": [made.json["id"], other.glossary_id]}
    bound = ask(kept, "POST", "translate", body).json["translations"][0]
    lines = ask(kept, "POST", "translate", {**body, "glossary_ids": [], "glossary": ["dog\t개들", "cat\t야옹이"]})
    assert bound == lines.json["translations"][0]
    assert "개들" in bound["text"]
    first = ask(kept, "POST", "translate", {**body, "glossary": ["dog\t멍멍이"]}).json["translations"][0]
    assert "개들" not in first["text"]

    changed = {"name": "others", "dictionaries": [{**terms, "entries": {"horse": "망아지"}}]}
    assert ask(kept, "PUT", path, changed).json["name"] == "others"
    assert ask(kept, "GET", path).json["dictionaries"] == changed["dictionaries"]
    assert client.get_glossary_entries(made.json["id"]) == {"horse": "망아지"}
    for method in ("GET", "PUT", "DELETE"):
        assert ask(kept, method, path, changed, key="second").status == 404
    assert ask(kept, "GET", "glossaries", key="second").json == {"glossaries": []}
    for wrong in ({"": "x"}, {"x": ""}, {"dog": "a", " dog ": "b"}, {}, {"d" * 300: "x"}):
        body = {"name": "x", "dictionaries": [{**terms, "entries": wrong}]}
        assert ask(kept, "POST", "glossaries", body).status == 400
    assert ask(kept, "PUT", path, {**changed, "name": " "}).status == 400
    for identity in (made.json["id"], other.glossary_id):
        assert ask(kept, "DELETE", f"glossaries/{identity}").status == 204
    assert ask(kept, "GET", path).status == 404


# --- Documents


def send(
    server: Running, text: str, key: str = "first", name: str = "a.txt", encoding: str = "utf-8", **fields: str
) -> Answer:
    body, kind = multipart([("target", "ko"), *fields.items()], {name: text})
    body = body.decode().encode(encoding)
    return ask(server, "POST", "documents", body, key, Content_Type=kind)


def test_documents_are_sent_asked_for_fetched_and_deleted(kept: Running, alone: str, monkeypatch: pytest.MonkeyPatch):
    text = f"{TEXT}\n\n7\n{TEXT}\n"
    sent = send(kept, text, source="en")
    identity = sent.json["id"]
    done = {
        "id": identity, "name": "a_ko.txt", "status": "done", "characters": 2 * len(TEXT), "texts": 2, "translated": 2,
        "faults": [],
    }  # fmt: skip
    assert (sent.status, sent.json) == (201, done)
    fetched = ask(kept, "GET", f"documents/{identity}/content")
    assert fetched.body.decode() == f"{alone}\n\n7\n{alone}\n"
    monkeypatch.setattr(files, "BLOCK", 1)  # each text alone: nothing changes
    again = send(kept, text, forbid="x", beam="4", tag="").json["id"]
    assert ask(kept, "GET", f"documents/{again}/content").body == fetched.body
    translate_lines = files.translate_lines
    with monkeypatch.context() as patched:
        found = lambda *task: [replace(one, flags=("loop",)) for one in translate_lines(*task)]  # noqa: E731
        patched.setattr(files, "translate_lines", found)
        later = f"7\n{text}"
        path = f"documents/{send(kept, later, source='en').json['id']}"
        until(lambda: ask(kept, "GET", path).json["status"] == "done")
        faulty = ask(kept, "GET", path).json
    assert faulty["faults"] == [{"line": 2, "flag": "loop"}, {"line": 5, "flag": "loop"}]
    assert ask(kept, "DELETE", f"documents/{faulty['id']}").status == 204
    bound = send(kept, text, source="en", glossary="dog\t개들").json["id"]
    assert "개들" in ask(kept, "GET", f"documents/{bound}/content").body.decode()
    assert [one["id"] for one in ask(kept, "GET", "documents").json["documents"]] == [identity, again, bound]
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert ask(kept, method, f"documents/{identity}{path}", key="second").status == 404
    for name in (identity, again, bound):
        assert ask(kept, "DELETE", f"documents/{name}").status == 204
        assert ask(kept, "GET", f"documents/{name}").status == 404
    assert list(Path(kept.service.config.state or "", "documents").iterdir()) == []
    wrong = send(kept, TEXT, source="en", tag="news").json
    assert (wrong["status"], "unknown tag" in wrong["error"]) == ("error", True)
    assert ask(kept, "GET", f"documents/{wrong['id']}/content").status == 409
    assert ask(kept, "DELETE", f"documents/{wrong['id']}").status == 204


def test_document_in_which_nothing_can_be_read_says_so(kept: Running):
    sent = send(kept, "caf\xe9\n", source="en", encoding="latin-1").json
    assert (sent["status"], sent["texts"], [one["line"] for one in sent["faults"]]) == ("done", 0, [1])
    assert "not UTF-8" in sent["faults"][0]["flag"]
    control = send(kept, "7\n", source="en").json  # nothing to translate, and nothing wrong
    assert control["faults"] == []
    for one in (sent, control):
        assert ask(kept, "DELETE", f"documents/{one['id']}").status == 204


def test_document_is_translated_though_its_progress_cannot_be_written(
    kept: Running, alone: str, monkeypatch: pytest.MonkeyPatch
):
    update, refused = files.Results.update, {"translating"}

    def update_if_there_is_room(results: Any, name: str, owner: str, record: Any, content: bytes | None = None) -> None:
        if record["status"] in refused:
            raise OSError(errno.ENOSPC, "full")
        update(results, name, owner, record, content)

    monkeypatch.setattr(files.Results, "update", update_if_there_is_room)
    sent = send(kept, TEXT, source="en").json
    assert sent["status"] == "done"
    assert ask(kept, "GET", f"documents/{sent['id']}/content").body.decode() == alone
    refused |= {"done", "error"}  # the control: nor can what came of it
    lost = send(kept, TEXT, source="en").json
    assert (lost["status"], lost["error"]) == ("error", files.LOST)
    for one in (sent, lost):
        assert ask(kept, "DELETE", f"documents/{one['id']}").status == 204


def test_nul_is_a_character_in_texts_and_an_error_in_documents(server: Running, kept: Running):
    text = "The dog\0 sees 4 red cats."
    (found,) = ask(server, "POST", "translate", {"texts": [text], "source": "en", "target": "ko"}).json["translations"]
    assert found["text"] != text
    assert found["segments"] != []
    sent = send(kept, text, source="en").json
    assert (sent["texts"], len(sent["faults"])) == (0, 1)
    assert ask(kept, "DELETE", f"documents/{sent['id']}").status == 204


def test_documents_of_deepl_are_asked_for_with_their_key_alone(kept: Running):
    client = deepl.DeepLClient("first", server_url=kept.url)
    handle = client.translate_document_upload(TEXT, source_lang="EN", target_lang="KO", filename="a.txt")
    assert ask(kept, "GET", f"documents/{handle.document_id}").status == 404
    assert ask(kept, "DELETE", f"documents/{handle.document_id}").status == 404
    assert ask(kept, "GET", "documents").json == {"documents": []}
    client.translate_document_wait_until_done(handle)
    client.translate_document_download(handle, io.BytesIO())


def test_document_shows_its_progress_and_can_be_cancelled(kept: Running, monkeypatch: pytest.MonkeyPatch):
    may, translate_lines = threading.Semaphore(0), files.translate_lines
    folder, blocks = Path(kept.service.config.state or "", "documents"), list[int]()

    def step(*task: Any) -> Any:
        assert may.acquire(timeout=20)
        blocks.append(len(task[1]))
        return translate_lines(*task)

    monkeypatch.setattr(files, "BLOCK", 2)
    monkeypatch.setattr(files, "PROMPT", 0.0)
    monkeypatch.setattr(files, "translate_lines", step)
    lines = "\n".join(source for source, _ in toy_pairs(7))
    path = f"documents/{send(kept, lines, source='en').json['id']}"

    def is_at(translated: int) -> bool:
        document = ask(kept, "GET", path).json
        return (document["status"], document["translated"]) == ("translating", translated)

    for translated in (0, 2, 4, 6):
        until(partial(is_at, translated))
        assert ask(kept, "GET", f"{path}/content").status == 409
        if translated < 6:
            may.release()
    assert ask(kept, "DELETE", path).status == 204
    assert ask(kept, "GET", path).status == 404
    may.release()
    until(lambda: not list(folder.iterdir()))
    assert blocks == [2, 2, 2, 1]

    path = f"documents/{send(kept, lines, source='en').json['id']}"
    until(partial(is_at, 0))
    next(folder.glob("*.json")).unlink()  # as another server that shares the folder deletes it
    may.release(4)
    until(lambda: not list(folder.iterdir()))
    assert blocks[4:] == [2]  # after the first block it is seen to be gone


# --- Usage


def test_usage_is_counted_for_each_key(kept: Running):
    first, second = (deepl.DeepLClient(key, server_url=kept.url) for key in ("first", "second"))
    before = [one.get_usage().character.count for one in (first, second)]
    second.translate_text("Eight ch", target_lang="KO")
    own_text = {"texts": ["123456789"], "source": "en", "target": "ko"}
    assert ask(kept, "POST", "translate", own_text, key="second").status == 200
    assert send(kept, f"{TEXT}\n7\n", "second").json["characters"] == len(TEXT)
    assert ask(kept, "POST", "detect", {"texts": ["not translated"]}, key="second").status == 200
    assert ask(kept, "POST", "translate", {**own_text, "texts": [TEXT], "tag": "news"}, key="second").status == 400
    assert [one.get_usage().character.count for one in (first, second)] == [before[0], before[1] + 8 + 9 + len(TEXT)]


def test_usage_remembers_no_more_callers_than_it_says():
    usage = Usage()
    for number in range(MAX_CALLERS + 1):
        usage.add(str(number), 2)
        usage.add("always", 1)
    assert (usage.count("always"), usage.count("0"), usage.count(str(MAX_CALLERS))) == (MAX_CALLERS + 1, 0, 2)
    assert len(usage.counts) == MAX_CALLERS
