"""Who may ask a server for what, however a request is written, and what is written down about it."""

import ast
import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Answer, Running, running

import dragoman.server
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.routes import Route
from dragoman.server.table import ROUTES

SECRET, TEXT = "correct-horse-battery-staple", "the-text-of-a-stranger"
KEYS = [Key("weblate", digest("another")), Key("tests", digest(SECRET))]
MAX_SERIES = 3 * len({route.path for route in ROUTES}) + 45  # three classes of status for each, and what else there is


@pytest.fixture(scope="module")
def locked(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that asks for keys, and keeps things."""
    folder = tmp_path_factory.mktemp("locked")
    kept = {"state": str(folder / "state"), "suggestions": str(folder / "suggestions")}
    with running(models, replace(CONFIG, host_name=("translate.example.org",), **kept), KEYS) as started:
        yield started


def path_of(route: Route) -> str:
    return re.sub(r"\{\w+\}", "x", route.path)


def with_key(route: Route, secret: str) -> dict[str, str]:
    """The header that the API of a route has a key in."""
    scheme = "DeepL-Auth-Key" if "DeepL" in route.dialect.no_key[1] else "Bearer"
    return {"Authorization": f"{scheme} {secret}"} if secret else {}


def variants_of(
    route: Route, refused: int | None
) -> Iterator[tuple[str, str, dict[str, str], Callable[[Answer], bool]]]:
    """Yield ways to ask for a route: method, path, headers, and what must hold of the answer.

    refused: the status for a request with this key; None where it may ask.
    """
    path = path_of(route)
    # A name in another route's path may be the same word: .../import and .../{id}.
    methods = {other.method for other in ROUTES if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", other.path), path)}

    def says(*statuses: int) -> Callable[[Answer], bool]:
        return lambda answer: answer.status in statuses

    def as_plain(answer: Answer) -> bool:
        return answer.status < 500 and (answer.status == refused if refused else answer.status not in (401, 403))

    for host in ("localhost", "127.0.0.1:5000", "[::1]", "Translate.Example.Org:443"):
        yield route.method, path, {"Host": host}, as_plain
    for host in ("evil.example", "x/?", "localhost/..", "127.0.0.1.evil.example", "translate.example.org@a", "\xe9"):
        yield route.method, path, {"Host": host}, says(403)
    for origin in ("http://evil.example", "null", "file://", "https://localhost.evil.example"):
        yield route.method, path, {"Origin": origin}, says(403)
    others = [f"/{path}", f"/%2e{path}", f"/x/..{path}", f"/.{path}", f"{path}/"]
    if not route.path.endswith("}"):  # else that is another name
        others += [f"{path}%00", f"{path}%0a", f"{path};x", f"{path}%2f"]
    for other in others if path != "/" else ("//", "/%00", "/%0a", "/.", "/x/.."):
        yield route.method, other, {}, says(404)
    if path != "/":  # the same path, with its first letter written as %74
        yield route.method, f"/%{ord(path[1]):x}{path[2:]}", {}, as_plain
    yield "OPTIONS", path, {}, says(204)
    yield "HEAD", path, {}, (lambda answer: as_plain(answer) and not answer.body) if "GET" in methods else says(405)
    for method in sorted({"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECTED"} - methods):
        yield method, path, {}, says(405)


SECRETS = {"none": "", "bad": "wrong", "not ASCII": "schl\xc3\xbcssel", "good": SECRET}


@pytest.mark.parametrize("every", [pytest.param(1, id="all", marks=pytest.mark.slow), pytest.param(11, id="a part")])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_routes_let_in_whom_their_table_says(locked: Running, secret: str, every: int):
    """However a request is written."""
    variants = [
        (route, variant)
        for route in ROUTES
        for variant in variants_of(
            route,
            None
            if route.access == "anyone" or secret == SECRET
            else (route.dialect.wrong_key if secret else route.dialect.no_key)[0],
        )
    ]
    first = [*SECRETS.values()].index(secret) % every  # with each key another part
    for route, (method, path, headers, holds) in variants[first::every]:
        answer = locked.ask(method, path, **headers, **with_key(route, secret))
        assert holds(answer), (method, path, headers, answer)
    series = [line for line in metrics_of(locked).splitlines() if not line.startswith("#")]
    assert len(series) < MAX_SERIES


def metrics_of(server: Running) -> str:
    return server.ask("GET", "/metrics", Authorization=f"Bearer {SECRET}").body.decode()


def test_metrics_have_one_series_per_kind_of_status(locked: Running):
    """Even if every route had answered in every way that there is."""
    paths = {route.path for route in ROUTES} | {"-"}
    statuses = {200, 201, 204, 400, 401, 403, 404, 405, 408, 413, 415, 429, 499, 500, 503}
    for path, status in itertools.product(paths, statuses):
        locked.service.metrics.answers.labels(path, f"{status // 100}xx")
        locked.service.metrics.refusals.labels(str(status))
    assert len([line for line in metrics_of(locked).splitlines() if not line.startswith("#")]) < MAX_SERIES


def test_logs_metrics_and_errors_have_neither_keys_nor_texts(locked: Running, capsys: Any):
    errors: list[bytes] = []
    places: list[dict[str, Any]] = [
        {"Authorization": f"Bearer {SECRET}"},
        {"Authorization": f"DeepL-Auth-Key {SECRET}"},
        {"Authorization": f"Basic {SECRET}", "X_Request_ID": TEXT + "!", "User_Agent": TEXT, "Referer": TEXT},
    ]
    for route, headers in itertools.product(ROUTES, places):
        path = path_of(route).replace("/x", f"/{TEXT}")
        for query in ("", f"?api_key={SECRET}&token={SECRET}&q={TEXT}&auth_key={SECRET}"):
            fields = {"q": TEXT, "text": [TEXT], "texts": [TEXT], "text_list": [TEXT], "s": TEXT, "api_key": SECRET}
            for body in (None, fields, {**fields, "target": "zz", "target_lang": "zz", "to": "zz"}, f"{TEXT} {SECRET}"):
                if route.method == "GET" and body:
                    continue
                answer = locked.ask(route.method, path + query, body, **headers)
                assert answer.status < 500, (route, answer)
                errors += [answer.body] if answer.status >= 400 else []
    time.sleep(0.1)
    logged, measured = capsys.readouterr().err, metrics_of(locked)
    assert "key tests" in logged
    assert len(errors) > 300
    for leaked in (SECRET, digest(SECRET), TEXT):
        assert leaked not in logged
        assert leaked not in measured
        assert not any(leaked.encode() in error for error in errors)
    assert len([line for line in measured.splitlines() if not line.startswith("#")]) < MAX_SERIES


def test_keys_are_compared_in_constant_time():
    """No ==, != or `in` has a key or its digest on either side; the control is a line that has."""

    def compared(source: str) -> list[str]:
        named = [
            ast.unparse(node)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        ]
        return [one for one in named if re.search(r"\b(secret|given|sha256|digest)\b", one)]

    files = list(Path(dragoman.server.__file__).parent.glob("*.py"))
    assert {one for file in files for one in compared(file.read_text())} <= {
        # Whether it is written as a digest is.
        "len(self.sha256) != 64"
    }
    assert compared("if known.sha256 == given:\n    pass")
