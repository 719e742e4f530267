"""What the server shows of a sentence is what `inspect` shows in Python, and its page is the one of the command."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import gap
from serving import CONFIG, Answer, Running, running, until

from dragoman.config import SearchConfig
from dragoman.decoding.rows import Late, Ticket
from dragoman.inspection.export import as_dict
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.page import word_links
from dragoman.inspection.plots.positions import added_positions
from dragoman.server.models import Models, open_models, parse_models
from dragoman.server.own import inspection
from dragoman.server.own.inspection import Punctual
from dragoman.translation.translator import Translator

TEXT = "The dog sees 2 red cats."  # as in `inspected`
HALF = 1 / 510 + 1e-6


def ask(server: Running, path: str, **fields: Any) -> Answer:
    asked = {"text": TEXT, "source": "en", "target": "ko", **fields}
    if path == "positions":  # of a model, with any text
        del asked["text"]
    return server.ask("POST", f"/api/v1/{path}", asked)


def answer(server: Running, path: str, **fields: Any) -> Any:
    found = ask(server, path, **fields)
    assert found.status == 200, found
    return found.json


def test_record_is_that_of_the_inspection(server: Running, inspected: Inspection, reopened: Translator):
    (one,) = answer(server, "inspect")["inspections"]
    assert (one["source"], one["target"], one["engine"], one["compute_type"]) == ("en", "ko", "native", "float32")
    assert one["inspection"] == json.loads(json.dumps(as_dict(inspected)))
    assert one["inspection"]["tree"]["nodes"]
    assert one["links"] == word_links(inspected)
    assert [(kind["name"], kind["layers"], kind["heads"]) for kind in one["kinds"]] == [
        (kind, *inspected.maps(kind).shape[:2]) for kind in KINDS
    ]
    (bare,) = answer(server, "inspect", tree=False, beam=4)["inspections"]
    assert bare["inspection"] == {**one["inspection"], "tree": None}
    (given,) = answer(server, "inspect", translation="개가 봐요.", beam=2)["inspections"]
    expected = inspect(reopened, TEXT, "개가 봐요.", name="toy")
    assert given["inspection"] == json.loads(json.dumps(as_dict(expected)))
    assert given["inspection"] != one["inspection"]  # the control
    greedy = inspect(reopened.replace(search=SearchConfig(beam=1)), TEXT, name="toy")
    (one,) = answer(server, "inspect", beam=1)["inspections"]
    assert one["inspection"]["tree"] == json.loads(json.dumps(as_dict(greedy)["tree"]))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_rollouts_come_as_bytes(server: Running, inspected: Inspection, kind: Any):
    response = ask(server, "attention", kind=kind)
    assert response.headers["content-type"] == "application/octet-stream"
    levels = torch.from_numpy(np.frombuffer(response.body, np.uint8).astype(np.float32)) / 255
    weights = inspected.maps(kind)
    assert gap(levels[: weights.numel()].view(weights.shape), weights) <= HALF
    followed = torch.stack([inspected.weights(kind, layer + 1, None, "rollout") for layer in range(len(weights))])
    assert gap(levels[weights.numel() :].view(followed.shape), followed) <= HALF
    assert ask(server, "attention", kind=kind, text="The bear likes 3 white rabbits.").body != response.body


def test_occlusion_and_positions_are_those_of_the_model(server: Running, inspected: Inspection, reopened: Translator):
    for subwords in (False, True):
        losses, told = (
            occlusion(reopened.model, inspected, subwords=subwords),
            answer(server, "occlusion", subwords=subwords),
        )
        assert (told["rows"], told["columns"]) == (losses.target, losses.source)
        assert gap(torch.tensor(told["drops"]), losses.drop.T) < 1e-6
        assert gap(torch.tensor(told["probabilities"]), losses.probability) < 1e-6
    expected = added_positions(reopened.model, 60)
    assert expected
    told = answer(server, "positions", rows=60)["positional_encoding"]
    table = torch.frombuffer(bytearray(base64.b64decode(told["table"])), dtype=torch.uint8).float()
    table = (table.view(told["rows"], told["columns"]) - 127) / 127 * told["largest"]
    assert gap(table, expected.table) <= told["largest"] / 254 + 1e-6
    assert ask(server, "positions", rows=1000).status == 400
    assert ask(server, "positions", source="auto").status == 400


def test_inspection_page_is_the_one_of_the_command(server: Running, dragoman: Any, trained: Path, tmp_path: Path):
    assert dragoman("inspect", "-m", trained, TEXT, "--html", "page.html", "--threads", 1).code == 0
    response = ask(server, "page")
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.body == (tmp_path / "page.html").read_bytes()
    other = ask(server, "page", text="The bear likes 3 white rabbits.")
    assert other.status == 200
    assert other.body != response.body  # the control


def test_inspection_says_where_the_server_translates_otherwise(server: Running):
    (one,) = answer(server, "inspect", text="The dog sees red cats.")["inspections"]
    assert (one["translation"], one["differs"]) == (one["inspection"]["target"]["text"], False)
    text = "The {name} sees 4 red cats."  # which a second search puts back
    (one,) = answer(server, "inspect", text=text)["inspections"]
    body = {"texts": [text], "source": "en", "target": "ko"}
    assert one["translation"] == server.ask("POST", "/api/v1/translate", body).json["translations"][0]["text"]
    assert one["differs"]
    assert one["translation"] != one["inspection"]["target"]["text"]


@pytest.fixture(scope="module")
def legs(trained: Path) -> Iterator[Running]:
    """A server that translates from English into German through Korean."""
    config = replace(CONFIG, pivot="ko")
    opened = open_models(config, parse_models([f"en-ko={trained}", f"ko-de={trained}"], "ko"))
    with running(opened, config) as started:
        yield started
    opened.close(5)


def test_pivot_gives_an_inspection_for_each_model(legs: Running, reopened: Translator):
    first, second = answer(legs, "inspect", target="de")["inspections"]
    assert [(one["source"], one["target"]) for one in (first, second)] == [("en", "ko"), ("ko", "de")]
    assert second["inspection"]["source"]["text"] == first["translation"]
    alone = inspect(reopened, first["translation"], name="toy")
    assert second["inspection"] == json.loads(json.dumps(as_dict(alone)))
    for path in ("attention", "occlusion", "page", "positions"):
        refused = ask(legs, path, target="de")
        assert (refused.status, "en is translated through ko" in refused.json["error"]["message"]) == (400, True)
        assert ask(legs, path, text=first["translation"], source="ko", target="de").status == 200
    assert ask(legs, "inspect", target="de", translation="x").status == 400


def test_request_that_cannot_be_inspected_is_refused_in_words(server: Running, models: Models):
    def refused(at: Running, **fields: Any) -> tuple[int, str]:
        response = ask(at, "inspect", **fields)
        return response.status, response.json["error"]["message"]

    assert refused(server, text=" ") == (400, "there is no text to inspect")
    assert refused(server, source="ko") == (400, "the text is already in ko: nothing to translate")
    assert refused(server, beam=9) == (400, "beam must be at most 8")
    status, message = refused(server, text="dog " * 200)
    assert (status, message.endswith("this server inspects at most 128 on each side")) == (400, True)
    assert refused(server, translation="개가 " * 200)[1].startswith("the translation has ")
    assert server.ask("GET", "/api/v1/models").json["max_inspect_tokens"] == 128
    assert ask(server, "attention", kind="other").status == 400
    with running(models, replace(CONFIG, inspect_tokens=0)) as closed:
        assert refused(closed) == (403, "inspecting is turned off on this server")


def test_inspections_are_made_in_turn_and_deadlines_hold(models: Models):
    with running(models, replace(CONFIG, deadline=0.5)) as server:
        with server.service.inspecting:  # as if another one were made
            late = ask(server, "inspect")
            assert (late.status, "longer than 0.5 seconds" in late.json["error"]["message"]) == (503, True)
        with server.service.inspecting:
            body = json.dumps({"text": TEXT, "source": "en", "target": "ko"})
            head = "POST /api/v1/inspect HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            leaving = server.connect(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: server.metric("dragoman_in_flight") == 1)
            leaving.close()
            until(lambda: server.metric("dragoman_in_flight") == 0)


def test_search_of_an_inspection_ends_when_its_ticket_says_so(models: Models):
    (served,) = models.by_pair.values()
    steps, engine = count(), models.native_engine(served)
    punctual = Punctual(engine, Ticket(6.0, clock=lambda: float(next(steps))))
    with pytest.raises(Late):
        inspect(served.translator.replace(engine=punctual), TEXT)
    assert next(steps) < 12  # it had gone on otherwise
    patient = inspect(served.translator.replace(engine=Punctual(engine, Ticket())), TEXT)
    assert patient.tree == inspect(served.translator, TEXT).tree  # the control


def test_inspections_are_kept_but_few(server: Running, monkeypatch: pytest.MonkeyPatch):
    for number in range(6):
        answer(server, "inspect", text=f"The dog sees {number} cats.")
    assert len(server.service.inspected) == 4
    monkeypatch.setattr(inspection, "KEPT_WEIGHTS", 1)  # as if all were large
    answer(server, "inspect")
    assert [found.source.text for found in server.service.inspected.values()] == [TEXT]
