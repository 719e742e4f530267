"""Describe all routes from their table: as OpenAPI 3.1 for programs, as a page for people."""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response

from dragoman.server.libretranslate import LIBRETRANSLATE
from dragoman.server.routes import OWN, Call, Route
from dragoman.server.service import Service
from dragoman.version import __version__

REF = "#/components/schemas/{name}"
JSON, URLENCODED, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
PLAIN = ("string", "integer", "number", "null")  # what a form can write
TRUTH = [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 1}]  # as forms write it
IN_ADDRESS = "in place of the field of the body, with or without a body; addresses end up in logs"
NAMED = re.compile(r"\{(\w+)\}")
STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
h2 { font-size: 1.1rem; border-top: 1px solid; padding-top: .8rem; font-family: ui-monospace, monospace }
pre { overflow-x: auto; padding: .6rem; border: 1px solid }
table { border-collapse: collapse } td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def routes_of(routes: Sequence[Route]) -> tuple[Route, ...]:
    """Return the routes /openapi.json, /spec and /docs, which describe `routes` and themselves."""

    @lru_cache(1)  # it stays as it is, and everybody may ask
    def described(service: Service) -> dict[str, Any]:
        return describe(all_routes, service)

    @lru_cache(1)
    def page(service: Service) -> str:
        return docs_page(described(service))

    def openapi(call: Call) -> dict[str, Any]:
        """Describe all routes as OpenAPI 3.1."""
        return described(call.service)

    def docs(call: Call) -> Response:
        """Describe all routes on a page."""
        style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; frame-ancestors 'none'"
        return Response(page(call.service), headers={"Content-Security-Policy": policy}, media_type="text/html")

    all_routes: tuple[Route, ...] = (
        *routes,
        Route("GET", "/openapi.json", openapi, OWN, answer=dict[str, Any], access="anyone"),
        Route("GET", "/spec", openapi, LIBRETRANSLATE, answer=dict[str, Any], access="anyone"),
        Route("GET", "/docs", docs, OWN, access="anyone"),
    )
    return all_routes[len(routes) :]


def describe(routes: Sequence[Route], service: Service) -> dict[str, Any]:
    """Return the description of all routes, with the languages and the limits of a server."""
    types = [kind for route in routes for kind in (route.request, route.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    remaining = iter(schemas)
    paths: dict[str, Any] = {}
    for name, component in components.items():
        if name.endswith("Request"):
            fill_in(component["properties"], service)
    for route in routes:
        request = next(remaining) if route.request is not None else None
        answer = next(remaining) if route.answer is not None else None
        fields = components[request["$ref"].rpartition("/")[2]] if request else None
        if fields and route.dialect.empty:
            optional = [name for name in fields["properties"] if name not in fields.get("required", ())]
            empty = {"enum": list(route.dialect.empty)}
            fields["properties"] |= {name: {"anyOf": [fields["properties"][name], empty]} for name in optional}
        paths.setdefault(route.path, {})[route.method.lower()] = operation(
            route, request, fields, answer, keys=bool(service.keys)
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "dragoman", "version": __version__, "description": "Translation with your own models."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {name: scheme for route in routes for name, scheme in route.dialect.schemes.items()},
        },
    }


def operation(route: Route, request: Any, fields: Any, answer: Any, *, keys: bool) -> dict[str, Any]:
    """Return the description of one route.

    request, answer: the schemas of its types, None where it has none; fields: what `request` refers to.
    """
    content = {JSON: {"schema": answer}} if answer else {"*/*": {"schema": {}}}
    done: dict[str, Any] = {"description": "success"}
    if route.status != 204:
        done["content"] = content
    wrong = {"description": "error; the body gives the reason", "content": {JSON: {"schema": {"type": "object"}}}}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in NAMED.findall(route.path)
    ]
    description: dict[str, Any] = {
        "summary": (route.handler.__doc__ or "").strip().partition("\n")[0],
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}"),
        "responses": {str(route.status): done, "4XX": wrong, "503": wrong},
        "security": [{name: []} for name in route.dialect.schemes] if keys and route.access == "key" else [],
    }
    form = form_of(fields) if fields else None
    has_body = bool(fields) and not (form and route.method in ("GET", "DELETE"))
    if form:
        required = () if has_body else form["required"]
        more = {"description": IN_ADDRESS} if has_body else {}
        parameters += [
            {"name": name, "in": "query", "required": name in required, **more, "schema": schema}
            for name, schema in form["properties"].items()
        ]
    if has_body:
        needed = route.takes_file or bool(fields.get("required"))
        description["requestBody"] = {"required": needed, "content": bodies(route, request, form)}
    if route.raw:
        description["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    if parameters:
        description["parameters"] = parameters
    return description


def bodies(route: Route, request: Any, form: Any) -> dict[str, Any]:
    """Return the forms of body that a route takes, each with its schema; form: that of a form, None for JSON only."""
    if route.takes_file:
        properties = {**form["properties"], "file": {"type": "string", "format": "binary"}}
        return {MULTIPART: {"schema": {**form, "properties": properties, "required": [*form["required"], "file"]}}}
    kinds = {JSON: request} | ({URLENCODED: form, MULTIPART: form} if form else {})
    return {kind: {"schema": schema} for kind, schema in kinds.items()}


def form_of(fields: Any) -> dict[str, Any] | None:
    """Return the schema of a form with these fields; None where a form cannot have one that is required.

    A form has text, and names that are there several times: no objects.
    """
    properties = {name: plain for name, schema in fields["properties"].items() if (plain := plain_schema(schema))}
    for name, schema in properties.items():
        if schema.get("type") == "array":  # a single value is a list of one
            properties[name] = {"anyOf": [schema, schema["items"]]}
    required = list(fields.get("required", ()))
    if not set(required) <= set(properties):
        return None
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        # Said aloud where others are ignored, because some tools take what is not said for no.
        "additionalProperties": fields.get("additionalProperties", True),
    }


def plain_schema(schema: Any) -> dict[str, Any] | None:
    """Return the part of a schema that a form can write, such as strings and lists of them; None if there is none."""
    if "anyOf" in schema:
        text = any(option.get("type") == "string" for option in schema["anyOf"])  # which "null" then is, too
        possible = [option for option in schema["anyOf"] if not text or option.get("type") != "null"]
        kinds = [plain for option in possible if (plain := plain_schema(option))]
        others = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
        return {**others, "anyOf": kinds} if kinds else None
    if schema.get("type") == "array":
        return schema if plain_schema(schema["items"]) else None
    if schema.get("type") == "boolean":
        return {name: value for name, value in schema.items() if name != "type"} | {"anyOf": TRUTH}
    return schema if "enum" in schema or schema.get("type") in PLAIN else None


def fill_in(properties: dict[str, Any], service: Service) -> None:
    """Write the languages and the limits of a server into the fields of a request that name them, in place."""
    languages, config = service.models.languages, service.config
    several = {"maxItems": config.texts}  # where the field is a list
    for field, more in (
        ("source", {"enum": ["auto", *languages]}),
        ("target", {"enum": languages} if languages else {}),
        ("alternatives", {"maximum": config.max_beam - 1}),
        ("beam", {"maximum": config.max_beam}),
        *((field, several) for field in ("q", "text", "texts", "text_list")),
    ):
        if field in properties:
            properties[field] |= more


def docs_page(description: dict[str, Any]) -> str:
    """Return a page that describes all routes, without scripts and without anything from elsewhere."""
    body = "\n".join(
        part for path, methods in description["paths"].items() for method, details in methods.items()
        for part in route_section(method, path, details, description["components"]["schemas"])
    )  # fmt: skip
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>dragoman: API</title><style>{STYLE}</style>'
        "<h1>The API of this server</h1><p>For programs: <a href='openapi.json'>openapi.json</a> (OpenAPI 3.1).</p>"
        f"{body}"
    )


def route_section(method: str, path: str, details: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Yield the HTML of one route: what it does, and its fields."""
    yield f"<h2>{escape(method.upper())} {escape(path)}</h2><p>{escape(details['summary'])}</p>"
    rows = [
        (each["name"], each["schema"], each["required"])
        for each in details.get("parameters", [])
        if each["in"] == "path" or "requestBody" not in details
    ]
    content = details.get("requestBody", {}).get("content", {})
    for schema in [body.get("schema", {}) for body in content.values()][:1]:
        fields = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        rows += [
            (name, kind, name in fields.get("required", ())) for name, kind in fields.get("properties", {}).items()
        ]
        yield f"<p>Takes {escape(', '.join(content))}.</p>"
    if rows:
        cells = "".join(
            f"<tr><td><code>{escape(name)}</code><td>{'required' if needed else ''}<td>{escape(words_of(kind))}"
            for name, kind, needed in rows
        )
        yield f"<table><tr><th>field<th><th>value{cells}</table>"


def words_of(schema: dict[str, Any]) -> str:
    """Return a schema in a few words: 'string', 'string or array', 'one of "text", "html"'."""
    if "enum" in schema:
        return f"one of {', '.join(str(option) or repr(option) for option in schema['enum'])}"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(words_of(option) for option in schema["anyOf"]))
    if "$ref" in schema:
        return "object"
    kind = str(schema.get("type", "any"))
    return f"{kind} of {words_of(schema['items'])}" if kind == "array" and schema.get("items") else kind
