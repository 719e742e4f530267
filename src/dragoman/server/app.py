"""Answer requests: find the route, check who asks and for how much, read, translate in a thread, log."""

import asyncio
import ipaddress
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from dragoman.decoding.rows import Gone, Late, Ticket
from dragoman.errors import DragomanError, is_out_of_memory, plural
from dragoman.server.keys import caller_of, find_key
from dragoman.server.reading import (
    BODY_SECONDS,
    ClientGone,
    Received,
    Refusal,
    Room,
    Upload,
    convert_fields,
    form_fields,
    read_body,
    read_fields,
)
from dragoman.server.routes import Call, Dialect, Route
from dragoman.server.service import Service
from dragoman.server.shares import Shares

TRACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
ABSOLUTE = re.compile(r"https?://([^/]*)", re.IGNORECASE)  # how a target begins that names its host, as for proxies
HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
STOPPING = "the server is stopping"
FILE = "file"  # the field of a document
SMALL_ROOM, LARGE_ROOM = 32 << 20, 256 << 20  # bytes of requests that are being received, see `Room`
FILE_THREADS = 4  # of requests that translate nothing, but read and write files
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass
class Exchange:
    """A request and what becomes of it."""

    scope: Scope
    receive: Receive
    headers: Headers
    dialect: Dialect
    trace: str
    began: float = field(default_factory=time.perf_counter)
    route: Route | None = None
    path: dict[str, str] = field(default_factory=dict)
    received_all: bool = False  # whether its body was read to the end
    characters: int = 0
    caller: str = "-"


class App:
    """Answer requests by one table of routes: the ASGI application."""

    def __init__(self, service: Service, routes: Sequence[Route], dialects: Sequence[Dialect]):
        """Take the routes, and dialects for paths without one: the first whose prefix fits; the last must fit any."""
        self.service, self.routes, self.dialects = service, routes, dialects
        self.table = [(compile_path(route.path)[0], route) for route in routes]
        self.host_names = {name.lower().rstrip(".") for name in service.config.host_name}
        self.threads = ThreadPoolExecutor(service.config.requests, "request")
        self.busy = 0  # requests that have a thread
        self.bulk = Shares(max(1, service.config.requests // 2))  # threads for bulk: others keep the rest
        self.file_threads, self.busy_files = ThreadPoolExecutor(FILE_THREADS, "file"), 0
        self.room = Room(SMALL_ROOM, LARGE_ROOM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close"})
        scope = in_origin_form(scope)
        headers = Headers(scope=scope)
        trace = headers.get("x-request-id", "")
        exchange = Exchange(
            scope,
            receive,
            headers,
            next(dialect for dialect in self.dialects if scope["path"].startswith(dialect.prefix)),
            trace if TRACE.fullmatch(trace) else uuid4().hex,
        )
        try:
            response = await self._respond(exchange)
        except ClientGone:
            self._log(exchange, 499)
            return
        except Refusal as refusal:
            response = self._refuse(exchange, refusal)
        except asyncio.CancelledError:
            if not self.service.stopping:
                raise
            response = self._refuse(exchange, Refusal(503, STOPPING))  # its time to finish is over
        except Exception as error:
            report(error)
            response = self._refuse(exchange, unexpected(error))
        self._complete(exchange, response)
        await response(scope, receive, send)
        self._log(exchange, response.status_code)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Answer ASGI's lifespan messages, which only Ray sends, not our own server; at shutdown, close the models."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.service.stopping = True
        await asyncio.to_thread(self.service.models.close, 0.0)
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, exchange: Exchange) -> Response:
        """Return the answer to a request. Raise Refusal if it is refused, and ClientGone if its client has left."""
        own_host = self._check_host(exchange.headers)
        self._check_origin(exchange.headers, own_host)
        if exchange.scope["method"] == "OPTIONS":
            return Response(status_code=204)
        route = exchange.route = self._find(exchange)
        exchange.dialect = dialect = route.dialect
        address = exchange.scope["client"][0] if exchange.scope.get("client") else "-"
        exchange.caller, rate = f"address {caller_of(address)}", 0
        if not dialect.key_in_fields:
            exchange.caller, rate = self._identify(exchange, Received({}))
        sender = self._sender(exchange)
        body = await read_body(exchange.receive, exchange.headers, route.max_body, BODY_SECONDS, self.room, sender)
        exchange.received_all = True
        query = exchange.scope["query_string"]
        if route.raw:
            received = Received(form_fields(query), Upload("", body))
        else:
            received = await read_fields(exchange.scope["method"], query, exchange.headers, body)
        if dialect.key_in_fields:
            exchange.caller, rate = self._identify(exchange, received)
        request = None
        if route.request:
            given = {name: value for name, value in received.fields.items() if value not in dialect.empty}
            if route.takes_file and FILE in received.fields:
                raise Refusal(400, "'file' is text: send it as a file, which has a file name")
            more = (FILE,) if route.takes_file else ()
            request = convert_fields(replace(received, fields=given), route.request, dialect.missing, more)
        call = Call(
            self.service,
            route,
            request,
            Ticket(math.inf if route.bulk else self.service.config.deadline, bulk=route.bulk),
            exchange.path,
            exchange.caller,
            f"{exchange.scope['scheme']}://{own_host}",
            received.file,
        )
        if route.cost:
            exchange.characters = route.cost(request, received.file)
        if route.files:
            return await self._use_files(exchange, call, rate)
        if not route.cost:
            return encode(route, route.handler(call))
        self._check_amount(exchange, rate)
        return await self._work(exchange, call)

    def _find(self, exchange: Exchange) -> Route:
        """Return the route of a request and record its path. Raise Refusal where there is none."""
        method = {"HEAD": "GET"}.get(exchange.scope["method"], exchange.scope["method"])
        allowed = []
        for pattern, route in self.table:
            if match := pattern.fullmatch(exchange.scope["path"]):  # `$` alone allows a line feed behind it
                if route.method == method:
                    exchange.path = match.groupdict()
                    return route
                allowed.append(route.method)
        if allowed:
            methods = sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])})
            raise Refusal(
                405,
                f"this path takes {' or '.join(methods)}, not {method}",
                {"Allow": ", ".join(sorted([*methods, "OPTIONS"]))},
            )
        raise Refusal(404, "there is nothing at this path")

    def _check_host(self, headers: Headers) -> str:
        """Return the host that a request is for. Raise Refusal for a name that is not ours.

        A web page whose name leads to a local address would otherwise be of one origin with a local server. Addresses
        are no names, so no page can have them.
        """
        hosts = headers.getlist("host")
        match = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match:
            name = match["name"].lower().rstrip(".")
            if name == "localhost" or is_address(name) or name in self.host_names:
                return hosts[0]
        raise Refusal(403, "this server does not have this host name; its operator can add it with --host-name")

    def _check_origin(self, headers: Headers, own_host: str) -> None:
        """Raise Refusal where a page of another origin sends the request, unless its origin is allowed."""
        origin = headers.get("origin")
        if origin is None or self._allowed(origin):
            return
        if origin.lower() not in (f"http://{own_host.lower()}", f"https://{own_host.lower()}"):
            raise Refusal(403, "pages of this origin may not use this server; --allow-origin allows it")

    def _allowed(self, origin: str) -> bool:
        return any(origin == pattern or fnmatchcase(origin, pattern) for pattern in self.service.config.allow_origin)

    def _sender(self, exchange: Exchange) -> str:
        """Return who sends a body, as far as it is known before the body is there: a key, else an address."""
        dialect, query = exchange.dialect, exchange.scope["query_string"]
        if not (dialect.key_in_fields and self.service.keys):
            return exchange.caller
        key = find_key(self.service.keys, dialect.read_key(exchange.headers, form_fields(query)))
        return f"key {key.name}" if key else exchange.caller

    def _identify(self, exchange: Exchange, received: Received) -> tuple[str, int]:
        """Return who asks, for the log, and the characters a minute that a key allows (0: as many as all others).

        Raise Refusal where a key is needed and missing or wrong.
        """
        dialect, keys = exchange.dialect, self.service.keys
        if not keys or (exchange.route and exchange.route.access == "anyone"):
            return exchange.caller, 0
        secret = dialect.read_key(exchange.headers, received.fields)
        status, message = dialect.wrong_key if secret else dialect.no_key
        if secret and (key := find_key(keys, secret)):
            return f"key {key.name}", key.rate
        raise Refusal(status, message, {"WWW-Authenticate": "Bearer"} if status == 401 else None)

    def _check_amount(self, exchange: Exchange, rate: int) -> None:
        """Raise Refusal where a request asks for too much: at once, in a minute, or of a server that is busy."""
        service, characters = self.service, exchange.characters
        takes_file = exchange.route is not None and exchange.route.takes_file
        if characters > service.config.characters and not takes_file:
            together = "all texts of a request together may have"
            raise Refusal(413, f"{together} {service.config.characters:,} characters, and these have {characters:,}")
        requests = service.config.requests
        bulk = exchange.route is not None and exchange.route.bulk  # may take long
        if self.busy >= requests or (bulk and not self.bulk.has_room(exchange.caller, 1)):
            raise Refusal(503, "the server is busy", {"Retry-After": "1"})
        wait = service.models.wait(characters)  # at most so many tokens
        if wait > service.config.max_wait:
            later = math.ceil(wait - service.config.max_wait)
            raise Refusal(
                503, f"the server is busy: this request would wait {wait:.0f} seconds", {"Retry-After": f"{later}"}
            )
        self._charge(exchange, characters, rate)

    def _charge(self, exchange: Exchange, characters: int, rate: int) -> None:
        """Raise Refusal where a caller asks for more characters than it may in a minute."""
        rate = rate or self.service.config.rate
        if rate and (later := int(self.service.rates.take(exchange.caller, characters, rate))):
            message = f"more than {rate:,} characters per minute: wait {plural(later, 'second')}"
            raise Refusal(429, message, {"Retry-After": f"{later}"})

    async def _use_files(self, exchange: Exchange, call: Call, rate: int) -> Response:
        """Let the handler read and write files in a thread. Raise Refusal where there are too many of its kind."""
        if self.busy_files >= self.service.config.requests:
            raise Refusal(503, "the server is busy", {"Retry-After": "1"})
        if exchange.characters:
            self._charge(exchange, exchange.characters, rate)
        self.busy_files += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self.file_threads, call.route.handler, call)
            return encode(call.route, await work)
        finally:
            self.busy_files -= 1

    async def _work(self, exchange: Exchange, call: Call) -> Response:
        """Let the handler translate in a thread, unless the client leaves. Raise Refusal where it fails."""
        metrics, outcome = self.service.metrics, "failed"
        metrics.accepted.inc()
        metrics.in_flight.inc()
        metrics.characters.inc(exchange.characters)
        self.busy += 1
        self.bulk.take(call.caller, int(call.route.bulk))
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self.threads, call.route.handler, call)
        work.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # asyncio logs exceptions that nobody reads
        leaving = loop.create_task(disconnected(exchange.receive))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                call.ticket.cancel()
                await asyncio.wait({work})  # until the step is over: only then is its thread free
            response = encode(call.route, work.result())
            outcome = "ok"
            return response
        except Gone:
            if not call.ticket.cancelled:  # but the model has ended
                raise Refusal(503, STOPPING) from None
            outcome = "cancelled"
            raise ClientGone from None
        except Late as late:
            raise Refusal(503, f"{late}: send fewer or shorter texts", {"Retry-After": "1"}) from None
        except asyncio.CancelledError:  # the server that runs this application no longer wants an answer
            call.ticket.cancel()
            outcome = "cancelled"
            raise
        except Refusal as refusal:
            outcome = "ok" if refusal.status < 500 else "failed"
            raise
        except DragomanError as error:  # such as a tag that the model does not have
            outcome = "ok"
            raise Refusal(400, str(error)) from None
        finally:
            leaving.cancel()
            self.busy -= 1
            self.bulk.give_back(call.caller, int(call.route.bulk))
            metrics.in_flight.dec()
            metrics.finished.labels(outcome).inc()

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> Response:
        """Return the answer that a refusal has in the form of its API."""
        content = msgspec.json.encode(exchange.dialect.error(refusal))
        return Response(content, refusal.status, refusal.headers, "application/json")

    def _complete(self, exchange: Exchange, response: Response) -> None:
        """Add the headers that all answers have."""
        response.headers[exchange.dialect.trace] = exchange.trace
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Cache-Control", "no-store")
        has_body = exchange.headers.get("content-length", "0") != "0" or "transfer-encoding" in exchange.headers
        if self.service.stopping or (has_body and not exchange.received_all):
            response.headers["Connection"] = "close"
        origin = exchange.headers.get("origin")
        if origin and self._allowed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            response.headers["Access-Control-Allow-Methods"] = ", ".join(METHODS)
            response.headers["Access-Control-Max-Age"] = "86400"
            response.headers["Vary"] = "Origin"

    def _log(self, exchange: Exchange, status: int) -> None:
        """Count a request, and write a line about it: no text, no key, and of its path only what the table has."""
        seconds = time.perf_counter() - exchange.began
        path = exchange.route.path if exchange.route else "-"
        self.service.metrics.answers.labels(path, f"{status // 100}xx").inc()
        if status >= 400:
            self.service.metrics.refusals.labels(str(status)).inc()
        self.service.metrics.seconds.observe(seconds)
        method = exchange.scope["method"] if exchange.scope["method"] in (*METHODS, "HEAD", "OPTIONS") else "-"
        print(
            f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {exchange.trace} {method} {path} {status} "
            f"{1000 * seconds:.0f} ms, {exchange.characters} characters, {exchange.caller}",
            file=sys.stderr,
            flush=True,
        )


def in_origin_form(scope: Scope) -> Scope:
    """Return the scope of a request with a path as its target, without the host of a target such as http://host/path.

    That host overrides the header (RFC 9112, section 3.2.2).
    """
    absolute = ABSOLUTE.match(scope["path"])
    if not absolute:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers = [(b"host", absolute[1].encode()), *others]
    return {**scope, "path": scope["path"][absolute.end() :] or "/", "headers": headers}


def is_address(name: str) -> bool:
    """Return whether the name of a host is an IP address; one of version 6 stands in brackets."""
    try:
        return ipaddress.ip_address(name.strip("[]")).version == (6 if name.startswith("[") else 4)
    except ValueError:
        return False


async def disconnected(receive: Receive) -> None:
    """Wait until the client has left."""
    message: Message = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


def encode(route: Route, answer: Any) -> Response:
    """Return what a handler has returned as an answer: a Response as it is, everything else as JSON."""
    if isinstance(answer, Response):
        return answer
    return Response(msgspec.json.encode(answer), route.status, media_type="application/json")


def unexpected(error: Exception) -> Refusal:
    """Return the refusal for an error of the server, not of the request, which says nothing of the text."""
    if is_out_of_memory(error):
        return Refusal(503, "the server does not have enough memory for this request", {"Retry-After": "1"})
    if isinstance(error, OSError) and error.errno:  # a full disk, a folder that was made read-only
        return Refusal(503, f"the server cannot read or write its files: {os.strerror(error.errno)}")
    return Refusal(500, "internal server error")


def report(error: Exception) -> None:
    """Write where an error happened on standard error, without its message, which may have text in it."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    reason = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
    print(f"error: {type(error).__name__}{reason} in {places}", file=sys.stderr, flush=True)
