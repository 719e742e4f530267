"""Serve glossaries to clients of DeepL: those of /v3 have several dictionaries, those of /v2 are such with one."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from msgspec import Struct
from starlette.responses import Response

from dragoman.server import glossaries as stored
from dragoman.server.deepl.dialect import DEEPL, DEEPL_V3
from dragoman.server.glossaries import Record, base, pair_of, store_of
from dragoman.server.reading import Refusal, Upload
from dragoman.server.routes import Call, Route

TSV = "text/tab-separated-values; charset=utf-8"
Format = Literal["tsv", "csv"]


class DictionaryRequest(Struct):
    """The entries for one pair of languages."""

    source_lang: str
    target_lang: str
    entries: str
    entries_format: Format = "tsv"


class GlossaryRequest(DictionaryRequest, kw_only=True):
    """A glossary with one dictionary."""

    name: str


class MultilingualRequest(Struct):
    """A glossary with dictionaries."""

    name: str
    dictionaries: list[DictionaryRequest]


class ChangeRequest(Struct):
    """What is to be changed of a glossary: its name, and entries that are added or written over."""

    name: str | None = None
    dictionaries: list[DictionaryRequest] = []


class PairRequest(Struct):
    """Which dictionary is meant."""

    source_lang: str
    target_lang: str


class GlossaryAnswer(Struct):
    """A glossary with one dictionary."""

    glossary_id: str
    name: str
    ready: bool
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class GlossariesAnswer(Struct):
    """The glossaries with one dictionary."""

    glossaries: list[GlossaryAnswer]


class DictionaryAnswer(Struct):
    """What a dictionary is for, and how large it is."""

    source_lang: str
    target_lang: str
    entry_count: int


class MultilingualAnswer(Struct):
    """A glossary with dictionaries."""

    glossary_id: str
    name: str
    dictionaries: list[DictionaryAnswer]
    creation_time: str


class MultilingualsAnswer(Struct):
    """The glossaries."""

    glossaries: list[MultilingualAnswer]


class DictionaryEntries(Struct):
    """A dictionary with its entries."""

    source_lang: str
    target_lang: str
    entries: str
    entries_format: str = "tsv"


class EntriesAnswer(Struct):
    """The entries of the dictionary that was asked for."""

    dictionaries: list[DictionaryEntries]


class PairsAnswer(Struct):
    """The pairs of languages that may have a glossary."""

    supported_languages: list[PairRequest]


def read_entries(request: DictionaryRequest) -> Record:
    """Return a dictionary as it is stored. Raise Refusal where its entries are not in their format."""
    lines = io.StringIO(request.entries)
    if request.entries_format == "tsv":
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        rows = csv.reader(lines, strict=True)
    terms: list[Sequence[str]] = []
    try:
        for row in filter(None, rows):
            if len(row) < 2 or len(row) > (2 if request.entries_format == "tsv" else 4):
                raise Refusal(400, f"a glossary entry has {len(row)} columns, not two")
            terms.append(row[:2])
    except csv.Error as error:
        raise Refusal(400, f"the entries cannot be read: {error}") from None
    return stored.as_record(request.source_lang, request.target_lang, terms)


def describe(identity: str, record: Record) -> MultilingualAnswer:
    """Return what /v3 says of a glossary."""
    sizes = [size_answer(dictionary) for dictionary in record["dictionaries"]]
    return MultilingualAnswer(identity, record["name"], sizes, stored.timestamp(record))


def size_answer(dictionary: Record) -> DictionaryAnswer:
    """Return what /v3 says of a dictionary."""
    return DictionaryAnswer(*pair_of(dictionary), len(dictionary["entries"]))


def describe_one(identity: str, record: Record) -> GlossaryAnswer:
    """Return what /v2 says of a glossary."""
    only, created = record["dictionaries"][0], stored.timestamp(record)
    return GlossaryAnswer(identity, record["name"], True, *pair_of(only), created, len(only["entries"]))


def find_one(call: Call, identity: str) -> Record:
    """Return a glossary that /v2 knows: one with one dictionary. Raise Refusal."""
    record = store_of(call).read(identity, call.caller)
    if len(record["dictionaries"]) != 1:
        raise Refusal(404, "this glossary has several dictionaries: use /v3")
    return record


def create_one(call: Call) -> GlossaryAnswer:
    """Make a glossary for one pair of languages."""
    return describe_one(*stored.create(call, call.request.name, [read_entries(call.request)]))


def list_ones(call: Call) -> GlossariesAnswer:
    """List the glossaries for one pair of languages."""
    records = store_of(call).all(call.caller)
    return GlossariesAnswer([describe_one(*glossary) for glossary in records if len(glossary[1]["dictionaries"]) == 1])


def show_one(call: Call) -> GlossaryAnswer:
    """Describe a glossary for one pair of languages."""
    return describe_one(call.path["id"], find_one(call, call.path["id"]))


def show_entries(call: Call) -> Response:
    """Return the entries of a glossary for one pair of languages, as TSV."""
    return Response(stored.as_tsv(find_one(call, call.path["id"])["dictionaries"][0]), media_type=TSV)


def pairs(call: Call) -> PairsAnswer:
    """List the pairs of languages that may have a glossary: those with a model of their own."""
    served = call.service.models.by_pair
    codes = sorted({(base(pair.source), base(pair.target)) for pair in served})
    return PairsAnswer([PairRequest(*pair) for pair in codes])


def create_many(call: Call) -> MultilingualAnswer:
    """Make a glossary with dictionaries for several pairs of languages."""
    dictionaries: list[Record] = []
    for dictionary in call.request.dictionaries:
        dictionaries = stored.merge(dictionaries, read_entries(dictionary), keep=True)
    return describe(*stored.create(call, call.request.name, dictionaries))


def list_all(call: Call) -> MultilingualsAnswer:
    """List the glossaries."""
    return MultilingualsAnswer([describe(*glossary) for glossary in store_of(call).all(call.caller)])


def show(call: Call) -> MultilingualAnswer:
    """Describe a glossary."""
    return describe(call.path["id"], store_of(call).read(call.path["id"], call.caller))


def change(call: Call) -> MultilingualAnswer:
    """Change the name of a glossary, and add entries to its dictionaries."""
    store, identity = store_of(call), call.path["id"]
    stored.check_name(call.request.name or "-")
    with store.locked():
        record = store.read(identity, call.caller)
        record["name"] = call.request.name or record["name"]
        for dictionary in call.request.dictionaries:
            record["dictionaries"] = stored.merge(record["dictionaries"], read_entries(dictionary), keep=True)
        stored.write(store, identity, call, record)
    return describe(identity, record)


def dictionary_entries(call: Call) -> EntriesAnswer:
    """Return the entries of one dictionary of a glossary."""
    record = store_of(call).read(call.path["id"], call.caller)
    dictionary = stored.find_dictionary(record, call.request.source_lang, call.request.target_lang)
    return EntriesAnswer([DictionaryEntries(*pair_of(dictionary), stored.as_tsv(dictionary))])


def put_dictionary(call: Call) -> DictionaryAnswer:
    """Put a dictionary in the place of the one for its pair of languages, or add it."""
    store, identity, new = store_of(call), call.path["id"], read_entries(call.request)
    with store.locked():
        record = store.read(identity, call.caller)
        record["dictionaries"] = stored.merge(record["dictionaries"], new, keep=False)
        stored.write(store, identity, call, record)
    return size_answer(new)


def delete_dictionary(call: Call) -> Response:
    """Delete one dictionary of a glossary."""
    store, identity = store_of(call), call.path["id"]
    with store.locked():
        record = store.read(identity, call.caller)
        gone = stored.find_dictionary(record, call.request.source_lang, call.request.target_lang)
        record["dictionaries"].remove(gone)
        stored.write(store, identity, call, record)
    return Response(status_code=204)


def size_of(request: DictionaryRequest | MultilingualRequest | ChangeRequest, file: Upload | None) -> int:
    """Return how many characters the entries of a request have, which are kept."""
    dictionaries = [request] if isinstance(request, DictionaryRequest) else request.dictionaries
    return sum(len(dictionary.entries) for dictionary in dictionaries)


TABLE = (
    Route("GET", "/v2/glossary-language-pairs", pairs, DEEPL, answer=PairsAnswer),
    Route("POST", "/v2/glossaries", create_one, DEEPL, GlossaryRequest, GlossaryAnswer, size_of, status=201),
    Route("GET", "/v2/glossaries", list_ones, DEEPL, answer=GlossariesAnswer),
    Route("GET", "/v2/glossaries/{id}", show_one, DEEPL, answer=GlossaryAnswer),
    Route("DELETE", "/v2/glossaries/{id}", stored.delete, DEEPL, status=204),
    Route("GET", "/v2/glossaries/{id}/entries", show_entries, DEEPL),
    Route(
        "POST", "/v3/glossaries", create_many, DEEPL_V3, MultilingualRequest, MultilingualAnswer, size_of, status=201
    ),
    Route("GET", "/v3/glossaries", list_all, DEEPL_V3, answer=MultilingualsAnswer),
    Route("GET", "/v3/glossaries/{id}", show, DEEPL_V3, answer=MultilingualAnswer),
    Route("PATCH", "/v3/glossaries/{id}", change, DEEPL_V3, ChangeRequest, MultilingualAnswer, size_of),
    Route("DELETE", "/v3/glossaries/{id}", stored.delete, DEEPL_V3, status=204),
    Route("GET", "/v3/glossaries/{id}/entries", dictionary_entries, DEEPL_V3, PairRequest, EntriesAnswer),
    Route(
        "PUT",
        "/v3/glossaries/{id}/dictionaries",
        put_dictionary,
        DEEPL_V3,
        DictionaryRequest,
        DictionaryAnswer,
        size_of,
    ),
    Route("DELETE", "/v3/glossaries/{id}/dictionaries", delete_dictionary, DEEPL_V3, PairRequest, status=204),
)
ROUTES = tuple(replace(route, files=True) for route in TABLE)
