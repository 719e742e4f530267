"""Serve the page at /, where people translate, and the files that it is made of."""

import json
from functools import lru_cache
from pathlib import Path

import jinja2
from starlette.responses import Response

import dragoman
from dragoman.inspection.page import IMPORT
from dragoman.inspection.page import WEB as INSPECTION
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route

WEB = Path(__file__).parent / "web"
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
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string((WEB / "index.html").read_text(encoding="utf-8")).render(
        strings=json.loads((WEB / "strings.json").read_text(encoding="utf-8")),
        modules=sorted({name for file in WEB.glob("*.js") for name in IMPORT.findall(file.read_text("utf-8"))}),
        version=dragoman.__version__,
    )


def part(call: Call) -> Response:
    """Return a script or a style of the page."""
    if (content := parts().get(call.path["name"])) is None:
        raise Refusal(404, "there is nothing at this path")
    return Response(content, media_type=TYPES[Path(call.path["name"]).suffix])


@lru_cache(1)
def parts() -> dict[str, bytes]:
    """Return the scripts and styles by their names: those of the page, and those that it shares with inspections."""
    files = [file for folder in (INSPECTION, WEB) for file in folder.iterdir() if file.suffix in TYPES]
    return {file.name: file.read_bytes() for file in files}


ROUTES = (
    Route("GET", "/", page, OWN, access="anyone"),
    Route("GET", "/page/{name}", part, OWN, access="anyone"),
)
