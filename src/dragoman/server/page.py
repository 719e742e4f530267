"""Serve the page at /, where people translate, and the files that it is made of."""

import json
import re
from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup
from starlette.responses import Response

from dragoman.inspection.page import IMPORT
from dragoman.inspection.page import WEB as INSPECTION
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route
from dragoman.version import __version__

WEB = Path(__file__).parent / "web"
LINKED = re.compile(r'"page/([\w.]+)"')
LATER = re.compile(r"""\bimport\([`"]\./(\w+)\.js""")
TYPES = {".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}


def page(call: Call) -> Response:
    """Return the page for people: type a text, see its translation; without a model, lead to the page of runs."""
    if not call.service.models.by_pair:
        return Response(status_code=307, headers={"Location": "runs"})
    return Response(document("index", leads=bool(call.service.config.runs)), headers=HEADERS, media_type="text/html")


def runs(call: Call) -> Response:
    """Return the page that follows runs of `dragoman train`."""
    if not call.service.config.runs:
        raise Refusal(404, "this server shows no runs; --runs FOLDER turns it on")
    return Response(document("runs", leads=bool(call.service.models.by_pair)), headers=HEADERS, media_type="text/html")


@lru_cache
def document(page: str, leads: bool = True) -> str:
    """Return the HTML of a page, with its texts in all languages; leads: whether to the other page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([WEB, INSPECTION]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(f"{page}.html").render(
        strings=Markup(strings(page).replace("<", "\\u003c")),  # nothing else could end the element that it stands in
        modules=[name for name in parts_of(page) if name.endswith(".js") and name not in linked(page)],
        leads=leads,
        version=__version__,
    )


def strings(page: str) -> str:
    """Return the texts of a page and of the figures of inspections, by language and key, as JSON."""
    merged: dict[str, dict[str, str]] = {"en": {}, "ko": {}}
    for file in (INSPECTION / "strings.json", WEB / "strings.json", WEB / f"{page}.json"):
        for language, texts in json.loads(file.read_text(encoding="utf-8")).items() if file.exists() else ():
            merged[language] |= texts
    return json.dumps(merged, ensure_ascii=False, separators=(",", ":"))


def part(call: Call) -> Response:
    """Return a script or a style of the page."""
    if (content := parts().get(call.path["name"])) is None:
        raise Refusal(404, "there is nothing at this path")
    return Response(content, media_type=TYPES[Path(call.path["name"]).suffix])


def linked(page: str) -> list[str]:
    """Return the names of the scripts and styles that stand in the document of a page, whose head all pages share."""
    return LINKED.findall("".join((WEB / f"{name}.html").read_text(encoding="utf-8") for name in ("head", page)))


@lru_cache(1)
def parts() -> dict[str, bytes]:
    """Return the scripts and styles of all pages by their names, with those that are loaded later."""
    return parts_of("index", later=True) | parts_of("runs", later=True)


def parts_of(page: str, later: bool = False) -> dict[str, bytes]:
    """Return the scripts and styles that a page begins with: those in its document, and all that they import.

    later: also the scripts that it imports when they are needed.
    """
    contents: dict[str, bytes] = {}

    def add(name: str) -> None:
        file = next(folder / name for folder in (WEB, INSPECTION) if (folder / name).exists())
        contents[name] = file.read_bytes()
        code = contents[name].decode()
        for imported in IMPORT.findall(code) + (LATER.findall(code) if later else []):
            if f"{imported}.js" not in contents:
                add(f"{imported}.js")

    for name in linked(page):
        add(name)
    return contents


ROUTES = (
    Route("GET", "/", page, OWN, access="anyone"),
    Route("GET", "/runs", runs, OWN, access="anyone"),
    Route("GET", "/page/{name}", part, OWN, access="anyone"),
)
