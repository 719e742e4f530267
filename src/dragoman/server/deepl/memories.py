"""Serve the memories of the models to clients of DeepL, whose imports add to them."""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from dragoman.config.languages import LanguagePair
from dragoman.data.tmx import Units, read_tmx, two_languages
from dragoman.data.xml import read_units
from dragoman.errors import DragomanError, plural
from dragoman.memory import ApprovedPair
from dragoman.server import memories
from dragoman.server.app import report
from dragoman.server.deepl.dialect import DEEPL_V3
from dragoman.server.deepl.languages import region_case
from dragoman.server.files import KEPT, PROMPT, size_of
from dragoman.server.memories import Remembered, all_memories, clean, find_memory, fits, stamp
from dragoman.server.models import Models
from dragoman.server.reading import MAX_DOCUMENT, Refusal
from dragoman.server.routes import OWN, Call, Route
from dragoman.server.store import Store

Record = dict[str, Any]
MOST = 25  # memories of a page
MAX_IMPORT = 5_000  # pairs: while their states are computed, others wait
BLOCK = 200  # pairs that are added at once
THREADS = ThreadPoolExecutor(1, "import")
FILES = "/api/v1/memory-files"
AWAITED = "upload the TMX file to upload_url"


class PageRequest(Struct):
    """Which memories are asked for."""

    page: Annotated[int, Meta(ge=0)] = 0
    page_size: Annotated[int, Meta(ge=1, le=MOST)] = MOST


class SegmentsRequest(Struct):
    """Which segments are asked for."""

    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_cursor: str = ""
    filter_text: Annotated[str, Meta(min_length=2)] | None = None
    filter_case_sensitive: bool = False


class SourceFile(Struct):
    """The file that is to be imported."""

    file_name: Annotated[str, Meta(min_length=1, max_length=100)]
    content_length: Annotated[int, Meta(gt=0)]
    content_type: Annotated[str, Meta(max_length=127)] = "application/xml"


class ImportParameters(Struct):
    """What the memory is to be called; here it has a name already."""

    display_name: str = ""


class ImportRequest(Struct):
    """A file that will be uploaded."""

    source_file: SourceFile
    parameters: ImportParameters = msgspec.field(default_factory=ImportParameters)


class MemoryAnswer(Struct):
    """A memory."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    segment_count: int
    creation_time: str
    updated_time: str


class MemoriesAnswer(Struct):
    """The memories."""

    translation_memories: list[MemoryAnswer]


class TargetSegment(Struct):
    """A translation of a segment."""

    target_segment_id: str
    target_language: str
    target_text: str
    creation_time: str | UnsetType = UNSET


class MemorySegment(Struct):
    """A text and its translation."""

    source_segment_id: str
    source_text: str
    targets: list[TargetSegment]
    creation_time: str | UnsetType = UNSET


class SegmentsAnswer(Struct):
    """A page of segments, and how many there are in all."""

    segments: list[MemorySegment]
    segment_count: int
    next_page_cursor: str | UnsetType = UNSET


class ImportAnswer(Struct):
    """Where a file is to be uploaded."""

    job_id: str
    upload_url: str
    expires_at: str


class JobParameters(Struct):
    """What a job was asked for."""

    translation_memory_id: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class ExportAnswer(Struct):
    """An export."""

    job_id: str
    parameters: JobParameters


class RequiredAction(Struct):
    """What a job waits for."""

    required_action: str


class JobError(Struct):
    """Why a job has failed."""

    message: str


class JobResult(Struct):
    """What has become of a job."""

    status: Literal["awaiting_input", "processing", "completed", "failed", "expired"]
    status_metadata: RequiredAction | UnsetType = UNSET
    error: JobError | UnsetType = UNSET
    translation_memory_id: str | UnsetType = UNSET
    skipped_segment_count: int | UnsetType = UNSET
    download_url: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET


class JobAnswer(Struct):
    """A job, with one result."""

    job_id: str
    operation: Literal["import", "export"]
    product: str
    creation_time: str
    updated_time: str
    parameters: JobParameters
    results: list[JobResult]
    source_file: SourceFile | UnsetType = UNSET


def time_of(seconds: float) -> str:
    """Return a time in the form of these APIs."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(seconds))


def identity_of(pair: LanguagePair) -> str:
    """Return the ID of the memory for a pair of languages, which is the same on all servers."""
    return str(uuid5(NAMESPACE_URL, f"dragoman:{pair}"))


def find_by_id(call: Call, identity: str) -> Remembered:
    """Return the memory with an ID. Raise Refusal where there is none."""
    for pair, remembered in all_memories(call).items():
        if identity.lower() == identity_of(pair):
            return remembered
    raise Refusal(404, "Translation memory not found")


def check_memory(call: Call, identity: str | None, source: str | None, target: str) -> None:
    """Raise Refusal where the memory that a request names is not the one that its languages have."""
    if not identity:
        return
    if not source:
        raise Refusal(400, "A translation memory needs the parameter 'source_lang'.")
    if find_by_id(call, identity).served.pair != (source, target):
        raise Refusal(400, "Value for 'translation_memory_id' not supported: the memory is for other languages.")


def describe(remembered: Remembered) -> MemoryAnswer:
    """Return what is said of a memory."""
    pair, folder = remembered.served.pair, remembered.memory.folder
    written, made = ((folder / name).stat().st_mtime for name in ("pairs.jsonl", "memory.json"))
    return MemoryAnswer(
        identity_of(pair),
        folder.name,
        region_case(pair.source),
        [region_case(pair.target)],
        sum(1 for _ in remembered.numbered()),
        time_of(made),
        time_of(max(made, written)),
    )


def list_all(call: Call) -> MemoriesAnswer:
    """List the memories."""
    first, count = call.request.page * call.request.page_size, call.request.page_size
    return MemoriesAnswer([describe(each) for each in [*all_memories(call).values()][first : first + count]])


def show(call: Call) -> MemoryAnswer:
    """Describe a memory."""
    return describe(find_by_id(call, call.path["id"]))


def segment(remembered: Remembered, number: int, pair: ApprovedPair) -> MemorySegment:
    """Return a pair as a segment."""
    identity, made = UUID(identity_of(remembered.served.pair)), stamp(pair.date)
    since = f"{made:%Y-%m-%dT%H:%M:%S.000000Z}" if made else UNSET
    names = [str(uuid5(identity, f"{number} {side}")) for side in ("source", "target")]
    target = TargetSegment(names[1], region_case(remembered.served.pair.target), pair.target, since)
    return MemorySegment(names[0], pair.source, [target], since)


def list_segments(call: Call) -> SegmentsAnswer:
    """List the segments of a memory, a page at a time."""
    request: SegmentsRequest = call.request
    remembered = find_by_id(call, call.path["id"])
    cursor = request.page_cursor or "0"
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise Refusal(400, "Value for 'page_cursor' not supported.")
    fold = str if request.filter_case_sensitive else str.casefold
    wanted = fold(request.filter_text or "")
    answer = SegmentsAnswer([], 0)
    for number, pair in remembered.numbered():
        answer.segment_count += 1
        if number < int(cursor) or not (wanted in fold(pair.source) or wanted in fold(pair.target)):
            continue
        if len(answer.segments) < request.page_size:
            answer.segments.append(segment(remembered, number, pair))
        elif answer.next_page_cursor is UNSET:
            answer.next_page_cursor = str(number)
    return answer


def delete(call: Call) -> Response:
    """Forget the pairs of a memory that whoever asks may change; the memory itself stays."""
    remembered = find_by_id(call, call.path["id"])
    memories.forget(call, remembered, list(remembered.numbered()))
    return Response(status_code=204)


# Jobs: a file comes or goes by an address that nobody can guess, and so without a key.


def store_of(call: Call) -> Store:
    """Return where jobs are written down."""
    return Store(call.service.config.state_folder, "jobs")


def new_job(call: Call, **fields: Any) -> tuple[str, Record]:
    """Write down a new job, and delete old ones; return its name in the store and itself."""
    store = store_of(call)
    for old, _ in [each for each in store.all(call.caller) if each[1]["created"] + KEPT < time.time()]:
        store.delete(old, call.caller)
    name, record = store.new_name(call.caller), {"created": time.time(), **fields}
    store.write(name, call.caller, record)
    return name, record


def url_of(call: Call, name: str) -> str:
    """Return the address of the file of a job."""
    return f"{call.base_url}{FILES}/{name}"


def begin_import(call: Call) -> ImportAnswer:
    """Say where a TMX file can be uploaded, whose pairs are then added to the memory of its languages."""
    request: ImportRequest = call.request
    if request.source_file.content_length > MAX_DOCUMENT:
        raise Refusal(400, f"source_file.content_length: a file has at most {MAX_DOCUMENT:,} bytes")
    file = {name: getattr(request.source_file, name) for name in request.source_file.__struct_fields__}
    fields = {"file": file, "display_name": request.parameters.display_name or file["file_name"]}
    name, record = new_job(call, operation="import", status="awaiting_input", **fields)
    return ImportAnswer(str(UUID(name)), url_of(call, name), time_of(record["created"] + KEPT))


def begin_export(call: Call) -> ExportAnswer:
    """Write down that a memory is wanted as a file, which is then there at once."""
    pair = find_by_id(call, call.path["id"]).served.pair
    name, _ = new_job(call, operation="export", status="completed", pair=list(pair))
    return ExportAnswer(str(UUID(name)), JobParameters(identity_of(pair)))


def show_job(call: Call) -> JobAnswer:
    """Say how far a job is."""
    try:
        name = UUID(call.path["id"]).hex
    except ValueError:
        name = ""
    record = store_of(call).read(name, call.caller)
    expires, status = record["created"] + KEPT, record["status"]
    result = JobResult("expired" if time.time() > expires and status != "failed" else status)
    if result.status == "awaiting_input":
        result.status_metadata = RequiredAction(AWAITED)
    if result.status == "failed":
        result.error = JobError(record["message"])
    of_memory = identity_of(LanguagePair(*record["pair"])) if "pair" in record else UNSET
    parameters, file = JobParameters(), SourceFile(**record["file"]) if "file" in record else UNSET
    if record["operation"] == "export":
        result.download_url, result.expires_at = url_of(call, name), time_of(expires)
        parameters.translation_memory_id = of_memory
    else:
        result.translation_memory_id, result.skipped_segment_count = of_memory, record.get("skipped", UNSET)
        parameters.display_name = record["display_name"]
    times = time_of(record["created"]), time_of(record["written"])
    return JobAnswer(str(UUID(name)), record["operation"], "translation_memory", *times, parameters, [result], file)


def download(call: Call) -> Response:
    """Return the memory of an export as a TMX file."""
    record = store_of(call).read(call.path["id"], None)
    if record["operation"] != "export" or time.time() > record["created"] + KEPT:
        raise Refusal(404, "no such file")
    remembered = memories.memory_for(call, *record["pair"])
    content = memories.as_tmx(remembered.served.pair, remembered.numbered())
    return Response(content, media_type="application/xml")


def upload(call: Call) -> Response:
    """Take the TMX file of an import, and begin to read it."""
    store, name = store_of(call), call.path["id"]
    record = store.read(name, None)
    with store.locked():
        record = store.read(name, record["owner"])
        if record["operation"] != "import" or time.time() > record["created"] + KEPT:
            raise Refusal(404, "no such file")
        if record["status"] != "awaiting_input":  # a client that had no answer sends it again
            return Response(status_code=200)
        assert call.file
        if len(call.file.content) != record["file"]["content_length"]:
            raise Refusal(400, "the file does not have the length that was announced")
        record["status"] = "processing"
        store.write(name, record["owner"], record)
    work = THREADS.submit(import_file, replace(call, caller=record["owner"]), name, record)
    wait([work], PROMPT)
    return Response(status_code=200)


def import_file(call: Call, name: str, record: Record) -> None:
    """Add the pairs of the file of a job to a memory, and write down what has become of it."""
    assert call.file
    try:
        with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
            path = Path(folder, "import.tmx")
            path.write_bytes(call.file.content)
            record |= add_rows(call, path, record["file"]["file_name"])
    except (DragomanError, Refusal) as error:
        reason = error.message if isinstance(error, Refusal) else str(error).rpartition("import.tmx: ")[2]
        record |= {"status": "failed", "message": reason}
    except Exception as error:
        report(error)
        record |= {"status": "failed", "message": "internal server error"}
    store_of(call).write(name, record["owner"], record)


def add_rows(call: Call, path: Path, name: str) -> Record:
    """Add the pairs of a TMX file to the memory of its languages; return what there is to write down."""
    skipped = 0

    def skip(problem: object) -> None:
        nonlocal skipped
        skipped += 1

    remembered, columns = memory_of_file(call, path)
    rows, origin = [], clean(name)
    for row in read_tmx(str(path), columns, skip):
        if fits(row.source.strip(), row.target.strip()):
            rows.append(row)
        else:
            skipped += 1
        if len(rows) > MAX_IMPORT:
            raise Refusal(400, f"more than {plural(MAX_IMPORT, 'pair')}: the operator can add them: dragoman remember")
    waiting = iter(rows)
    while block := list(islice(waiting, BLOCK)):
        memories.remember(call, remembered, [(row.source, row.target, f"{origin}:{row.number}") for row in block])
        remembered.memory.recollection()  # here and not in a search, for which others wait
    return {"status": "completed", "pair": list(remembered.served.pair), "skipped": skipped}


def memory_of_file(call: Call, path: Path) -> tuple[Remembered, tuple[str, str]]:
    """Return the memory for the languages of a TMX file, and how it writes them. Raise Refusal without one."""
    target = Units()
    unit = next(iter(read_units(str(path), "TMX", target)), [])
    columns = two_languages(str(path), unit, target.source)
    for pair in (columns, columns[::-1]):
        codes = [known(call.service.models, code) for code in pair]
        if remembered := find_memory(call, *codes):
            return remembered, pair
    raise Refusal(404, f"no memory for {'-'.join(columns)}")


def known(models: Models, code: str) -> str:
    """Return the language that a code means here, or the code."""
    return models.find_language(code) or code


PATH = "/v3/translation_memories"
TABLE = (
    Route("GET", PATH, list_all, DEEPL_V3, PageRequest, MemoriesAnswer),
    Route("POST", f"{PATH}/import", begin_import, DEEPL_V3, ImportRequest, ImportAnswer, status=202),
    Route("GET", f"{PATH}/jobs/{{id}}", show_job, DEEPL_V3, answer=JobAnswer),
    Route("GET", f"{PATH}/{{id}}", show, DEEPL_V3, answer=MemoryAnswer),
    Route("DELETE", f"{PATH}/{{id}}", delete, DEEPL_V3, status=204),
    Route("GET", f"{PATH}/{{id}}/segments", list_segments, DEEPL_V3, SegmentsRequest, SegmentsAnswer),
    Route("POST", f"{PATH}/{{id}}/export", begin_export, DEEPL_V3, answer=ExportAnswer, status=202),
    Route("GET", f"{FILES}/{{id}}", download, OWN, access="anyone"),
    Route("PUT", f"{FILES}/{{id}}", upload, OWN, cost=size_of, access="anyone", max_body=MAX_DOCUMENT, raw=True),
)
ROUTES = tuple(replace(route, files=True) for route in TABLE)
