"""What /openapi.json and /docs say of the routes is so."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator, ValidationError
from serving import CONFIG, Answer, Running, multipart, running

from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.table import ROUTES

TEXT = "The dog sees 4 red cats."
# Of fields for which the description gives no value that makes sense, or another one than theirs.
EXAMPLES: Mapping[str, Any] = {
    "q": TEXT, "s": "개", "source": "en", "target": "ko", "from": "en", "to": "ko", "source_lang": "EN",
    "target_lang": "KO", "texts": [TEXT, "7"], "text_list": [TEXT], "text": TEXT, "name": "animals",
    "entries": "dog\t개", "document_key": "x", "resource": "glossary", "alternatives": 1, "beam": 2, "forbid": ["x"],
    "glossary": ["dog\t개"], "outline_detection": False, "type": "target", "dictionaries": [],
    "api_key": "", "token": "", "translations": ["개가 봐요.", "7"],
    "translation": "개", "pairs": [{"text": TEXT, "translation": "개"}], "origin": "page",
    "source_file": {"file_name": "a.tmx", "content_length": 9}, "filter_text": "dog",
}  # fmt: skip
LISTS = {"/api/v1/translate", "/api/v1/detect", "/extensions/kiss"}  # where "texts" is meant, not "text"
BODIES = [route for route in ROUTES if route.request and route.method in ("POST", "PUT", "PATCH")]
DEEPL, LIBRETRANSLATE = (next(one for one in BODIES if one.path == path) for path in ("/v2/translate", "/translate"))


@pytest.fixture(scope="module")
def kept(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that keeps documents, glossaries and suggestions."""
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in ("state", "suggestions", "runs")}
    with running(models, replace(CONFIG, **folders)) as started:
        yield started


@pytest.fixture(scope="module")
def description(kept: Running) -> Any:
    return kept.ask("GET", "/openapi.json").json


def resolve(description: Any, schema: Any) -> Any:
    """The schema that another one refers to, or itself."""
    return description["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def check(description: Any, schema: Any, value: Any) -> None:
    """Raise ValidationError where a value does not hold to a schema of the description."""
    Draft202012Validator({**schema, "components": description["components"]}).validate(value)


def example(path: str, properties: Any) -> dict[str, Any]:
    """Values for the fields of a request: of EXAMPLES, else what is assumed without them."""
    chosen = {name: EXAMPLES.get(name, schema.get("default")) for name, schema in properties.items()}
    chosen = {name: value for name, value in chosen.items() if name in EXAMPLES or value not in (None, [])}
    if "texts" in chosen and path in LISTS:
        chosen.pop("text", None)
    return chosen


def as_pairs(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Fields as a form has them: true and false, and a name for each value of a list."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return [
        (name, json.dumps(one) if isinstance(one, bool) else str(one)) for name, own in listed.items() for one in own
    ]


def send(server: Running, route: Any, kind: str, fields: Mapping[str, Any]) -> Answer:
    """Send fields in a body of a kind, or for '' in the address."""
    path = re.sub(r"\{\w+\}", 32 * "0", route.path)
    if kind == "application/json":
        return server.ask(route.method, path, dict(fields))
    pairs = as_pairs(fields)
    if kind == "multipart/form-data":
        body, boundary = multipart(pairs, {"a.txt": TEXT} if route.takes_file else {})
        return server.ask(route.method, path, body, Content_Type=boundary)
    if kind:
        return server.ask(route.method, path, urlencode(pairs), Content_Type=kind)
    return server.ask(route.method, f"{path}?{urlencode(pairs)}")


def without_chance(answer: Answer) -> Any:
    """A status and what is always the same of an answer: no names, no times."""
    names = "(glossary_|document_|job_)?id|document_key|created|creation_time|translatedFileUrl|upload_url|expires_at"
    chance = rf'"({names})": ?("[^"]*"|\d+)'
    return answer.status, re.sub(chance, "", answer.body.decode(errors="replace"))


@pytest.mark.parametrize("route", BODIES, ids=[f"{route.method} {route.path}" for route in BODIES])
def test_body_forms_that_are_described_are_taken(kept: Running, description: Any, route: Any):
    """All forms of a request get the same answer, which holds to its schema. The control: without a field that is
    required, each gets an error.
    """
    one = description["paths"][route.path][route.method.lower()]
    content = one["requestBody"]["content"]
    schemas = {kind: resolve(description, body["schema"]) for kind, body in content.items()}
    addresses = {each["name"] for each in one["parameters"] if each["in"] == "query"} if "parameters" in one else set()
    assert set(content) in (
        {"multipart/form-data"},
        {"application/json"},
        {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"},
    )
    assert ("multipart/form-data" in content) == bool(addresses)
    answers = []
    for kind, schema in schemas.items():
        fields = example(route.path, schema["properties"])
        file = {"file": TEXT} if route.takes_file else {}
        assert set(schema.get("required", ())) <= set(fields | file), "EXAMPLES lacks a field"
        check(description, schema, fields | file)
        answers.append(send(kept, route, kind, {name: value for name, value in fields.items() if name != "file"}))
        required = [name for name in schema.get("required", ()) if name != "file"]
        if required:
            lacking = {name: value for name, value in fields.items() if name != required[0]}
            with pytest.raises(ValidationError):
                check(description, schema, lacking)
            assert send(kept, route, kind, lacking).status == 400
    if addresses and not route.takes_file:
        fields = example(route.path, schemas["multipart/form-data"]["properties"])
        assert set(fields) <= addresses
        answers.append(send(kept, route, "", fields))
    assert answers[0].status not in (400, 405, 415), answers[0]
    assert len(set(map(without_chance, answers))) == 1, answers
    if answers[0].status < 300 and route.answer:
        check(
            description, one["responses"][str(route.status)]["content"]["application/json"]["schema"], answers[0].json
        )


def test_answers_without_a_body_hold_to_their_schemas(kept: Running, description: Any):
    asked = 0
    for route in ROUTES:
        if route.method == "GET" and route.answer and "{" not in route.path:
            one = description["paths"][route.path]["get"]
            names = [each["name"] for each in one.get("parameters", ()) if each["required"]]
            answer = kept.ask("GET", f"{route.path}?{urlencode({name: EXAMPLES[name] for name in names})}").json
            check(description, one["responses"]["200"]["content"]["application/json"]["schema"], answer)
            asked += 1
    assert asked > 10


def test_routes_are_described_in_openapi(server: Running):
    description = server.ask("GET", "/openapi.json").json
    assert {(route.method.lower(), route.path) for route in ROUTES} == {
        (method, path) for path, methods in description["paths"].items() for method in methods
    }
    for methods in description["paths"].values():
        for one in methods.values():
            assert one["summary"].endswith(".")
            assert one["security"] == []
    request = description["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = resolve(description, request)
    assert schema["properties"]["source"]["enum"] == ["auto", "en", "ko"]
    assert set(schema["required"]) == {"q", "source", "target"}
    fields = {"q": TEXT, "source": "en", "target": "ko"}
    most, texts = CONFIG.max_beam - 1, CONFIG.texts
    for allowed, wrong in (
        ({"alternatives": most}, {"alternatives": most + 1}),
        ({"q": [TEXT]}, {"q": ["7"] * (texts + 1)}),
    ):
        check(description, schema, fields | allowed)
        with pytest.raises(ValidationError):
            check(description, schema, fields | wrong)
        assert server.ask("POST", "/translate", fields | allowed).status == 200
        assert server.ask("POST", "/translate", fields | wrong).status == 400
    references = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(description)))
    assert references <= set(description["components"]["schemas"])


def test_server_with_keys_says_where_they_go(models: Models):
    with running(models, CONFIG, [Key("one", digest("first"))]) as server:
        description = server.ask("GET", "/openapi.json").json
    schemes = description["components"]["securitySchemes"]
    found = {
        path: [name for each in methods[method]["security"] for name in each]
        for path, methods in description["paths"].items()
        for method in methods
    }
    assert {name for names in found.values() for name in names} == set(schemes)
    assert found["/v2/translate"] == ["deepl"]
    assert found["/translate"] == ["bearer", "api_key"]
    assert schemes["api_key"] == {"type": "apiKey", "in": "query", "name": "api_key"}
    for route in ROUTES:
        assert bool(found[route.path]) == (route.access == "key"), route


def test_page_of_the_api_loads_nothing_and_runs_nothing(server: Running):
    answer = server.ask("GET", "/docs")
    page = answer.body.decode()
    assert all(f"{route.method} {route.path}" in page for route in ROUTES)
    assert "<script" not in page
    assert "http" not in page
    style = hashlib.sha256(page.partition("<style>")[2].partition("</style>")[0].encode()).digest()
    assert f"style-src 'sha256-{base64.b64encode(style).decode()}'" in answer.headers["content-security-policy"]


# --- What the description says of wrong fields


@pytest.mark.parametrize("route", BODIES, ids=[f"{route.method} {route.path}" for route in BODIES])
def test_unknown_field_is_refused_where_the_description_says_so(kept: Running, description: Any, route: Any):
    content = description["paths"][route.path][route.method.lower()]["requestBody"]["content"]
    for kind, body in content.items():
        schema = resolve(description, body["schema"])
        fields = example(route.path, schema["properties"])
        file = {"file": TEXT} if route.takes_file else {}
        refuses = route.path.startswith("/api/v1/")
        try:
            check(description, schema, fields | file | {"strange": "x"})
        except ValidationError:
            assert refuses
        else:
            assert not refuses
        answer = send(
            kept, route, kind, {name: one for name, one in fields.items() if name != "file"} | {"strange": "x"}
        )
        assert ("there is no field 'strange'" in answer.body.decode()) == refuses, answer


@pytest.mark.parametrize(
    ("value", "allowed"), [*[(one, True) for one in (True, False, 1, 0)], *[(one, False) for one in (2, -1, "yes", "")]]
)
def test_forms_write_truth_values_as_the_description_says(kept: Running, description: Any, value: Any, allowed: bool):
    """Also as 1 and 0, as the clients of DeepL do; JSON has true and false only."""
    content = description["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    fields = {"text": [TEXT], "target_lang": "KO", "source_lang": "EN", "show_billed_characters": value}
    for kind, body in content.items():
        may = allowed and (isinstance(value, bool) or kind != "application/json")
        answer = send(kept, DEEPL, kind, fields)
        assert answer.status == (200 if may else 400), (kind, answer)
        if may:
            assert ("billed_characters" in answer.json["translations"][0]) == bool(value)
            check(description, resolve(description, body["schema"]), fields)
        else:
            with pytest.raises(ValidationError):
                check(description, resolve(description, body["schema"]), fields)


def test_single_value_in_a_form_is_a_list_of_one(kept: Running, description: Any):
    """JSON says itself what is a list."""
    route = next(one for one in BODIES if one.path == "/api/v1/translate")
    content = description["paths"][route.path]["post"]["requestBody"]["content"]
    fields = {"texts": TEXT, "forbid": "x", "source": "en", "target": "ko"}
    for kind, body in content.items():
        may = kind != "application/json"
        assert send(kept, route, kind, fields).status == (200 if may else 400)
        if may:
            check(description, resolve(description, body["schema"]), fields)
        else:
            with pytest.raises(ValidationError):
                check(description, resolve(description, body["schema"]), fields)


@pytest.mark.parametrize(("field", "path"), [("api_key", "/translate"), ("api_key", "/detect"), ("token", "/deeplx")])
def test_key_is_a_string_even_where_none_is_needed(kept: Running, description: Any, field: str, path: str):
    route = next(one for one in BODIES if one.path == path)
    body = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = resolve(description, body)
    for value, allowed in (("x", True), ("", True), (None, True), (7, False), ([], False), (["x"], False), ({}, False)):
        fields = {**example(path, schema["properties"]), field: value}
        assert send(kept, route, "application/json", fields).status == (200 if allowed else 400), value
        if allowed:
            check(description, schema, fields)
        else:
            with pytest.raises(ValidationError):
                check(description, schema, fields)


def test_clients_of_libretranslate_may_leave_fields_empty_as_the_description_says(kept: Running, description: Any):
    content = description["paths"]["/translate"]["post"]["requestBody"]["content"]
    for kind, body in content.items():
        schema = resolve(description, body["schema"])
        for fields, allowed in (
            ({"format": "", "alternatives": "", "api_key": ""}, True),
            ({"format": "x"}, False),
            ({"alternatives": "x"}, False),
            ({"source": ""}, False),
            ({"q": ""}, False),
        ):
            request = {"q": TEXT, "source": "en", "target": "ko", **fields}
            assert send(kept, LIBRETRANSLATE, kind, request).status == (200 if allowed else 400), fields
            if allowed:
                check(description, schema, request)
            else:
                with pytest.raises(ValidationError):
                    check(description, schema, request)


def test_limits_hold_also_where_there_is_nothing_to_search_for(kept: Running):
    many = ["7"] * (CONFIG.texts + 1)
    assert kept.ask("POST", "/detect", {"q": many}).status == 400
    assert kept.ask("POST", "/detect", {"q": many[1:]}).status == 200
    assert kept.ask("POST", "/api/v1/detect", {"texts": many}).status == 400
    same = {"text": TEXT, "source": "en", "target": "en"}
    assert kept.ask("POST", "/api/v1/alternatives", {**same, "beam": CONFIG.max_beam + 1}).status == 400
    assert kept.ask("POST", "/api/v1/alternatives", {**same, "beam": CONFIG.max_beam}).status == 200
