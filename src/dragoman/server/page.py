"""Serve the page at /, where people translate, and the files that it is made of."""

import json
import re
from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup
from starlette.responses import Response

import dragoman
from dragoman.inspection.page import IMPORT
from dragoman.inspection.page import WEB as INSPECTION
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route

WEB = Path(__file__).parent / "web"
LINKED = re.compile(r'"page/([\w.]+)"')
TYPES = {".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}


def page(call: Call) -> Response:
    """Return the page for people: type a text, see its translation."""
    return Response(document(), headers=HEADERS, media_type="text/html")


@lru_cache(1)
def document() -> str:
    """Return the HTML of the page, with its texts in all languages."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([WEB, INSPECTION]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("index.html").render(
        strings=Markup(strings().replace("<", "\\u003c")),  # nothing else could end the element that it stands in
        modules=[name for name in parts() if name.endswith(".js") and name not in linked()],
        version=dragoman.__version__,
    )


def strings() -> str:
    """Return the texts of the page and of the figures of inspections, by language and key, as JSON."""
    own, shared = (json.loads((folder / "strings.json").read_text(encoding="utf-8")) for folder in (WEB, INSPECTION))
    merged = {language: shared[language] | own[language] for language in own}
    return json.dumps(merged, ensure_ascii=False, separators=(",", ":"))


def part(call: Call) -> Response:
    """Return a script or a style of the page."""
    if (content := parts().get(call.path["name"])) is None:
        raise Refusal(404, "there is nothing at this path")
    return Response(content, media_type=TYPES[Path(call.path["name"]).suffix])


def linked() -> list[str]:
    """Return the names of the scripts and styles that stand in the document."""
    return LINKED.findall((WEB / "index.html").read_text(encoding="utf-8"))


@lru_cache(1)
def parts() -> dict[str, bytes]:
    """Return the scripts and styles by their names: those that stand in the document, and all that they import."""
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        file = next(folder / name for folder in (WEB, INSPECTION) if (folder / name).exists())
        found[name] = file.read_bytes()
        for imported in IMPORT.findall(found[name].decode()):
            if f"{imported}.js" not in found:
                add(f"{imported}.js")

    for name in linked():
        add(name)
    return found


ROUTES = (
    Route("GET", "/", page, OWN, access="anyone"),
    Route("GET", "/page/{name}", part, OWN, access="anyone"),
)
