"""No request makes the server fail: whatever its description allows, and what it does not."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from serving import CONFIG, Answer, Running, open_remembering, running

from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.reading import MAX_DEPTH
from dragoman.server.routes import Route
from dragoman.server.table import ROUTES

SECRET = "correct-horse-battery-staple"
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
EXAMPLES: dict[str, Any] = {
    "q": "A dog.",
    "s": "개",
    "text": "A dog.",
    "texts": ["A dog."],
    "translations": ["개."],
    "text_list": ["A dog."],
    **dict.fromkeys(("source", "source_lang", "from"), "en"),
    **dict.fromkeys(("target", "target_lang", "to"), "ko"),
    "name": "animals",
    "entries": "dog\t개",
    "resource": "glossary",
    "document_key": "x",
    "translation": "개.",
    "origin": "page",
    "source_file": {"file_name": "a.tmx", "content_length": 9},
    "filter_text": "dog",
    "pairs": [{"text": "A dog.", "translation": "개."}],
}
EXAMPLES["dictionaries"] = [{name: EXAMPLES[name] for name in ("source_lang", "target_lang", "entries")}]
VALUES = [
    b"NaN",
    b"1e999",
    b"-1e999",
    b"9" * 5000,
    b"-1",
    b"0.5",
    b"123",
    b"99999999999999999999",
    b"true",
    b"null",
    b'""',
    b'" "',
    b'"x"',
    b'"' + b"x" * 20_000 + b'"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b"[]",
    b"[[]]",
    b"[null]",
    b'[1, "x"]',
    b'["", " "]',
    b"{}",
    b'{"": {}}',
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
    b'"a", "FIELD": "b"',
]
FORM_VALUES = ["", "%00", "%ff", "%ed%a0%80", "x" * 20_000, "NaN", "1e999", "-1", "9" * 5000, "&", "&FIELD=x", "%", "+"]
REQUESTS = [route for route in ROUTES if route.request]


@pytest.fixture(scope="module")
def keeping(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without keys that keeps things."""
    folder = tmp_path_factory.mktemp("kept")
    kept = {"state": str(folder / "state"), "suggestions": str(folder / "suggestions")}
    models = open_remembering(trained, folder / "memory")
    with running(models, replace(CONFIG, rate=0, max_wait=60.0, memory=("memory",), **kept)) as started:
        yield started
    models.close(5)


def path_of(route: Route) -> str:
    places = {"id": 32 * "0", "name": "x", "source": "en", "target": "ko", "number": "0"}
    return re.sub(r"\{(\w+)\}", lambda place: places[place[1]], route.path)


def example_of(route: Route) -> dict[str, Any]:
    """A request that the route understands."""
    return {name: EXAMPLES[name] for name in route.request.__struct_encode_fields__ if name in EXAMPLES}


def check(route: Route, sent: Any, answer: Answer) -> None:
    """An answer that is no failure, and an error is written in the form of its API."""
    assert answer.status < 500, (route.method, route.path, sent[:200], answer)
    if answer.status >= 400 and route.method != "HEAD":
        assert any(name in answer.json for name in ("error", "message"))


def with_wrong_field(chance: random.Random, route: Route, value: bytes) -> bytes:
    """JSON in which one field has that value, as it is."""
    field = chance.choice(route.request.__struct_encode_fields__)
    others = {name: one for name, one in example_of(route).items() if name != field}
    own = b'"%s": %s' % (field.encode(), value.replace(b"FIELD", field.encode()))
    return b"{" + b", ".join([json.dumps(others)[1:-1].encode(), own] if others else [own]) + b"}"


def ask_json(server: Running, route: Route, body: bytes) -> Answer:
    return server.ask(route.method, path_of(route), body, Content_Type="application/json")


@pytest.mark.parametrize("route", REQUESTS, ids=lambda route: f"{route.method} {route.path}")
def test_field_values_of_any_kind_do_not_make_the_server_fail(keeping: Running, route: Route):
    chance = random.Random(1)
    for value in VALUES:
        body = with_wrong_field(chance, route, value)
        check(route, body, ask_json(keeping, route, body))
    for value in FORM_VALUES:
        field = chance.choice(route.request.__struct_encode_fields__)
        others = [f"{name}={quote(str(one))}" for name, one in example_of(route).items() if name != field]
        form = "&".join([*others, f"{field}={value.replace('FIELD', field)}"])
        check(route, form, keeping.ask(route.method, path_of(route), form, **FORM))
        check(route, form, keeping.ask(route.method, f"{path_of(route)}?{form[:8000]}".replace(" ", "+")))
    part = '--x\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    for damaged in ("", "--x", "--x\r\n\r\n", "--x--", part.format("", "", "")[:-9], part.format("a" * 9999, "", "")):
        kind = "multipart/form-data; boundary=x"
        check(route, damaged, keeping.ask(route.method, path_of(route), damaged, Content_Type=kind))


def test_valid_requests_are_answered_beside_fifty_clients_that_send_anything(keeping: Running):
    alone = keeping.translate("A dog sees 2 cats.").json

    def mix(number: int) -> None:
        chance = random.Random(number)
        for _ in range(3):
            route, value = chance.choice(REQUESTS), chance.choice(VALUES)
            body = with_wrong_field(chance, route, value)
            check(route, body, ask_json(keeping, route, body))
            assert keeping.translate("A dog sees 2 cats.").json == alone

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(mix, range(50)))
    counts = [keeping.metric(f'dragoman_finished_total{{outcome="{one}"}}') for one in ("ok", "failed", "cancelled")]
    assert keeping.metric("dragoman_accepted_total") == sum(counts)
    assert counts[1:] == [0, 0]


# --- What a tool makes of the description

SETTINGS = f"""
headers = {{ Authorization = "Bearer {SECRET}" }}

# No schema can say which pairs of languages there are, or how the lines of a glossary are written.
[checks]
positive_data_acceptance.expected-statuses = [200, 201, 204, 400, 401, 403, 404, 413, 429]

# Without a key DeepL answers 403 and LibreTranslate 400, where the tool knows only 401. test_access.py has both.
[[operations]]
include-path-regex = "^/v[23]/"
headers = {{ Authorization = "DeepL-Auth-Key {SECRET}" }}
checks.missing_required_header.enabled = false

[[operations]]
include-path-regex = "^/(detect|suggest|translate|translate_file)$"
checks.ignored_auth.enabled = false
"""


@pytest.mark.parametrize(
    ("examples", "keys"),
    [
        # Examples are other ones each time, so even a few may find what no earlier run has.
        pytest.param(3, [], id="a few", marks=pytest.mark.slow),
        pytest.param(300, [], id="many", marks=pytest.mark.slow),
        pytest.param(300, [Key("tests", digest(SECRET))], id="many, with keys", marks=pytest.mark.slow),
    ],
)
def test_schemathesis_finds_nothing(models: Models, tmp_path: Path, examples: int, keys: list[Key]):
    """With all checks that it makes by itself: to name them here would overrule SETTINGS, which turns off a few."""
    kept = {"state": str(tmp_path / "state"), "suggestions": str(tmp_path / "suggestions")}
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with running(models, replace(CONFIG, rate=0, max_wait=600.0, deadline=600.0, **kept), keys) as server:
        description = server.ask("GET", "/openapi.json").json
        for operation in (one for methods in description["paths"].values() for one in methods.values()):
            # Fields of the body may be in the address, but those of the body win, so that wrong ones there are right.
            given = operation.get("parameters", [])
            operation["parameters"] = [one for one in given if one["in"] == "path" or "requestBody" not in operation]
        (tmp_path / "openapi.json").write_text(json.dumps(description))
        command = [Path(sys.executable).with_name("schemathesis"), "run", "openapi.json", "--url", server.url]
        command += ["--max-examples", examples, *(["--phases", "fuzzing"] if examples < 10 else [])]
        ran = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0, "\n".join(line[:1000] for line in ran.stdout.splitlines())[-20_000:]
        counts = [server.metric(f'dragoman_finished_total{{outcome="{one}"}}') for one in ("ok", "failed", "cancelled")]
        assert server.metric("dragoman_accepted_total") == sum(counts)
        assert counts[1] == 0
