"""Translate documents: what the APIs for files share. Results lie below --state for an hour."""

import contextlib
import hmac
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from dragoman.data.spec import NOT_TEXT
from dragoman.decoding.rows import Gone, Ticket
from dragoman.documents import SUFFIXES, Document, read_document
from dragoman.documents.encoding import decode
from dragoman.errors import DragomanError
from dragoman.server.app import report, unexpected
from dragoman.server.keys import digest
from dragoman.server.reading import MAX_DOCUMENT, Refusal, Upload
from dragoman.server.routes import Call, Route
from dragoman.server.shares import Shares, Turns
from dragoman.server.store import Store
from dragoman.server.texts import Task, detect_sources, translate_lines
from dragoman.storage.locks import lock_file
from dragoman.storage.writing import replace_file
from dragoman.translation.limits import is_unsure, too_long

KEPT = 3600.0  # seconds that a result may be fetched
PIECE = 1 << 16  # bytes that are read from a file at once
PROMPT = 1.0  # seconds after which most short documents are done: a client that polls at once finds them so
UNFINISHED = ("queued", "translating")
LOST = "the server was stopped, or could not write its files: send the document again"
EXPIRED = "this document no longer exists"
UNSAFE = re.compile(r"[^\w.-]+")
MAX_NAME = 100
MAX_CHARACTERS = 1_000_000  # of the texts of a document
MOSTLY_TEXT = (".md", ".txt")  # formats whose files have hardly any other characters
MAX_WAITING = 32  # documents in memory; more are refused
PLACES = Shares(MAX_WAITING)
THREADS = ThreadPoolExecutor(MAX_WAITING, "document")  # one for each document
TURNS = Turns(4)  # documents that are translated at the same time; others wait
OWN: dict[str, Ticket] = {}  # the documents that this process is to translate
Fault = tuple[int, str]  # the line that it is in, from 1 (0: the whole document), and what is wrong, in words
MAX_FAULTS = 1000  # that are kept of a document
BLOCK = 256  # texts of a document that are translated before it is written down how many are done


def size_of(request: Any, file: Upload | None) -> int:
    """Return how many characters a request is charged for: the bytes of its file, up to those that it may have."""
    return min(len(file.content), MAX_CHARACTERS) if file else 0


file_route = partial(Route, "POST", cost=size_of, takes_file=True, max_body=MAX_DOCUMENT)


def open_document(
    file: Upload | None, source: str | None = None, target: str = "", name: str = ""
) -> tuple[Document, str]:
    """Return the document in a file and its suffix, by its name or another one that was given. Raise Refusal.

    source, target: the languages; None for a source that is to be detected.
    """
    if file is None:
        raise Refusal(400, "Invalid request: missing file parameter")
    suffix = PurePosixPath(name or file.name).suffix.lower()
    if suffix not in SUFFIXES:
        advice = NOT_TEXT.get(suffix, f"it must be one of {', '.join(SUFFIXES)}")
        raise Refusal(400, f"Invalid request: file format not supported: {advice}")
    if not file.content.strip():
        raise Refusal(400, "Invalid request: empty file")
    if suffix in MOSTLY_TEXT:  # parsing a long one takes so long that other requests would wait for it
        check_characters(len(decode(file.content)[0]))
    document = read_document(file.content, suffix, source=source or "", target=target)
    if not document.readable:
        raise Refusal(400, f"Invalid request: {document.skipped[0].reason}")
    check_characters(sum(map(len, document.texts)))
    return document, suffix


def check_characters(count: int) -> None:
    """Raise Refusal for more characters than a document may have."""
    if count > MAX_CHARACTERS:
        raise Refusal(413, f"{count:,} characters are more than {MAX_CHARACTERS:,} in a document")


def translate_document(
    call: Call,
    document: Document,
    source: str | None,
    task: Task,
    progress: Callable[[int, list[Fault]], None] = lambda done, faults: None,
    turn: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> bytes:
    """Return a document in the target language; source: None to detect it. Raise Refusal and what a search raises.

    progress: is told how many texts are translated, and what is wrong so far. turn: in which a block is translated.
    """
    texts, lines, limits, translated = document.texts, document.lines, document.limits, []
    unsure: set[int] = set()
    faults: list[Fault] = [*document.skipped]
    language = source or (detect_sources(call.service, ["\n".join(texts)], task.target)[0][0] if texts else task.target)
    if language == task.target:
        translated = texts
    else:
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            with turn():
                results = translate_lines(call, block, [""] * len(block), language, task)
            for number, result in enumerate(results, start):
                long = too_long(result.output, limits[number])
                faults += [(lines[number], flag) for flag in filter(None, (*result.flags, long))]
                unsure.update([number] if is_unsure(result, limits[number], document.mark) else [])
            translated += [result.output for result in results]
            progress(len(translated), faults)
    call.service.usage.add(call.caller, sum(map(len, texts)))
    content = document.fill(translated, language, task.target, unsure)
    if document.refused:
        progress(len(translated), [*faults, *document.refused])
    return content


def safe_name(name: str, ending: str = "") -> str:
    """Return the name of a file without folders and odd characters, and with an ending in front of its suffix."""
    path = PurePosixPath(UNSAFE.sub("_", PurePosixPath(name.replace("\\", "/")).name).lstrip(".") or "document")
    return f"{path.stem[:MAX_NAME]}{ending}{path.suffix[:MAX_NAME]}"


def attachment(file: BinaryIO, name: str) -> Response:
    """Return a file, which will be closed, as an answer that browsers save and do not show.

    It is read while it is sent: clients that do not take it cost no memory.
    """
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "Content-Length": str(os.fstat(file.fileno()).st_size),
    }
    pieces, close = iter(partial(file.read, PIECE), b""), BackgroundTask(file.close)
    return StreamingResponse(pieces, headers=headers, media_type="application/octet-stream", background=close)


class Results:
    """Translated documents and documents that are being translated."""

    def __init__(self, folder: Path | None):
        """Take the folder of all that outlives requests; None: there is none."""
        self.store = Store(folder, "documents")

    def new(self, owner: str) -> str:
        """Return the name of a new result. What is old is deleted, see `sweep`. Raise Refusal."""
        name = self.store.new_name(owner)
        self.sweep()
        return name

    def sweep(self) -> None:
        """Delete what is older than an hour, but no document that waits or is being translated."""
        with self.store.locked():  # so none is done in between
            for file in self.store.folder.glob("*") if self.store.folder else ():
                with contextlib.suppress(OSError):  # another server was faster
                    old = time.time() - file.stat().st_mtime > KEPT
                    if old and not self.is_waited_for(file.stem.rpartition("-")[2]):
                        file.unlink(missing_ok=True)

    def find(self, name: str, owner: str | None) -> dict[str, Any]:
        """Return what is known of a document; see `Store.read`. Raise Refusal where it was done over an hour ago."""
        record = self.store.read(name, owner)
        if record["status"] not in UNFINISHED and time.time() - record["written"] > KEPT:
            raise Refusal(404, EXPIRED)
        return record

    def path(self, name: str) -> Path:
        """Return the file of a result."""
        assert self.store.folder
        return self.store.folder / f"{name}.result"

    def put(self, name: str, owner: str, content: bytes, record: dict[str, Any]) -> None:
        """Write a result."""
        replace_file(self.path(name), content)
        self.store.write(name, owner, {**record, "status": "done"})

    def update(self, name: str, owner: str, record: dict[str, Any], content: bytes | None = None) -> None:
        """Write what is known of a result again, and the result if it is given. Raise Gone if it was deleted."""
        with self.store.locked():
            if not self.store.has(name, owner):
                raise Gone("the document was deleted")
            if content is not None:
                replace_file(self.path(name), content)
            self.store.write(name, owner, record)

    def delete(self, name: str, owner: str) -> None:
        """Delete a result; if this process is translating it, that ends. Raise Refusal where it is not the owner's."""
        with self.store.locked():
            self.store.delete(name, owner)
            self.path(name).unlink(missing_ok=True)
        if ticket := OWN.get(name):
            ticket.cancel()

    def open(self, name: str) -> BinaryIO:
        """Return a result, to be read. Raise Refusal where it was fetched, or deleted after an hour."""
        try:
            return self.path(name).open("rb")
        except FileNotFoundError:
            raise Refusal(404, EXPIRED) from None

    def take(self, name: str, owner: str) -> BinaryIO:
        """Return a result, to be read, which is deleted: it can be fetched once. Raise Refusal where it is gone."""
        taken = self.path(name).with_suffix(".taken")
        try:
            self.path(name).rename(taken)  # which only one of two that ask at once can do
        except FileNotFoundError:
            raise Refusal(404, EXPIRED) from None
        file = taken.open("rb")
        taken.unlink()
        self.store.delete(name, owner)
        return file

    def lock(self, name: str) -> Path:
        """Return the file that is locked by the process that is to translate a document."""
        return self.path(name).with_suffix(".lock")

    def is_waited_for(self, name: str) -> bool:
        """Return whether there is a process that is to translate a document: it may have been stopped."""
        if name in OWN:
            return True
        try:
            with lock_file(self.lock(name), wait=False):
                self.lock(name).unlink(missing_ok=True)
            return False
        except BlockingIOError:
            return True


def results_of(call: Call) -> Results:
    """Return where the results of a server are."""
    return Results(call.service.config.state_folder)


def begin(call: Call, document: Document, name: str, source: str | None, task: Task, key: str) -> str:
    """Begin to translate a document in another thread; return its identity, by which `Results` knows it.

    name: of its file; source: its language, None to detect it; key: a secret of which the record keeps the digest, for
    APIs that give one to the owner. Wait up to PROMPT seconds for a short document to be done. Raise Refusal (429)
    where too many are waiting, of all callers or of this one.
    """
    results, places = results_of(call), PLACES
    if not places.take(call.caller, 1):
        yours = "of yours " if call.caller in places.held else ""
        raise Refusal(429, f"too many documents {yours}are waiting", {"Retry-After": "10"})
    record = {
        "name": name,
        "key": digest(key),
        "characters": sum(map(len, document.texts)),
        "texts": len(document.texts),
        "translated": 0,
        "faults": [],
    }
    background = replace(call, ticket=Ticket(bulk=True), file=None)  # it goes on when the request is answered
    with contextlib.ExitStack() as place:
        place.callback(places.give_back, call.caller, 1)
        identity = results.new(call.caller)
        OWN[identity] = background.ticket
        place.callback(OWN.pop, identity, None)
        place.enter_context(lock_file(results.lock(identity), wait=False))
        place.callback(results.lock(identity).unlink, missing_ok=True)
        results.store.write(identity, call.caller, {**record, "status": "queued"})
        work = THREADS.submit(finish, background, place.pop_all(), results, identity, record, document, source, task)
    with contextlib.suppress(NotDone):
        work.result(PROMPT)
    return identity


def finish(
    call: Call,
    place: contextlib.ExitStack,
    results: Results,
    identity: str,
    record: dict[str, Any],
    document: Document,
    source: str | None,
    task: Task,
) -> None:
    """Translate a document and write its result, or why there is none; then give back its place and its lock."""

    def progress(done: int, faults: list[Fault]) -> None:
        record["faults"] = faults[:MAX_FAULTS]
        with contextlib.suppress(OSError):  # a disk that is full now may have room when the result is written
            results.update(identity, call.caller, {**record, "status": "translating", "translated": done})

    def fail(message: str) -> None:
        with contextlib.suppress(Gone, OSError):  # what cannot be written is LOST to its owner
            results.update(identity, call.caller, {**record, "status": "error", "message": message})

    turn = partial(TURNS.turn, call.caller, call.ticket)
    with place:
        try:
            with turn():
                progress(0, [*document.skipped])
            content = translate_document(call, document, source, task, progress, turn)
            done = {**record, "status": "done", "translated": record["texts"]}
            results.update(identity, call.caller, done, content)
        except (DragomanError, Refusal) as error:
            fail(LOST if isinstance(error, Gone) else str(error))
        except Exception as error:
            report(error)
            fail(unexpected(error).message)


def find_result(call: Call, identity: str, key: str) -> dict[str, Any]:
    """Return what is known of a document, for whoever has its key. Raise Refusal.

    Where callers have keys, it must also be theirs. Else an address would be all that tells them apart, and many people
    may have the same one; the identity, which nobody can guess, is what one of them knows.
    """
    owner = call.caller if call.service.keys else None
    record = results_of(call).find(identity, owner)
    if not hmac.compare_digest(str(record.get("key")), digest(key)):
        raise Refusal(404, "there is no document with this id and key")
    if record["status"] in UNFINISHED and not results_of(call).is_waited_for(identity):
        record = results_of(call).find(identity, owner)  # it may have been finished meanwhile
        if record["status"] in UNFINISHED:
            record |= {"status": "error", "message": LOST}
    return record
