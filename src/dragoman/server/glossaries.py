"""Keep the glossaries of DeepL's clients: those of /v3 have several dictionaries, those of /v2 are such with one."""

import csv
import io
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from msgspec import Struct
from starlette.responses import Response

from dragoman.errors import UsageError
from dragoman.server.deepl import DEEPL, DEEPL_V3
from dragoman.server.reading import MAX_BODY, Refusal, Upload
from dragoman.server.routes import Call, Route
from dragoman.server.store import Store
from dragoman.text.glossary import MAX_TERM_LENGTH, Entry, Glossary, normalise_term

LANGUAGE = re.compile(r"[a-z]{2,3}")
TSV = "text/tab-separated-values; charset=utf-8"
MAX_NAME = 1024  # characters
MAX_GLOSSARIES = 5  # of one translation
Format = Literal["tsv", "csv"]
Record = dict[str, Any]


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


def base(code: str) -> str:
    """Return the language of a code without its region: glossaries are for languages."""
    return code.strip().replace("_", "-").partition("-")[0].lower()


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
                raise Refusal(400, f"an entry of a glossary has {len(row)} columns, not two")
            terms.append(row[:2])
    except csv.Error as error:
        raise Refusal(400, f"the entries cannot be read: {error}") from None
    return as_record(request.source_lang, request.target_lang, terms)


def as_record(source_lang: str, target_lang: str, terms: Iterable[Sequence[str]]) -> Record:
    """Return a dictionary as it is stored.

    Raise Refusal where a code is none of a language, and where a term or its translation is empty, long, or twice.
    """
    entries: dict[str, str] = {}
    for term in terms:
        source, target = map(normalise_term, term)
        if not source or not target or max(len(source), len(target)) > MAX_TERM_LENGTH:
            raise Refusal(400, f"an entry of a glossary has from 1 to {MAX_TERM_LENGTH} characters on each side")
        if source in entries:
            raise Refusal(400, "a glossary has two entries for one term")
        entries[source] = target
    if not entries:
        raise Refusal(400, "a glossary needs entries")
    source, target = base(source_lang), base(target_lang)
    if not (LANGUAGE.fullmatch(source) and LANGUAGE.fullmatch(target)):
        raise Refusal(400, "a glossary needs the codes of two languages, such as en and de")
    return {"source": source, "target": target, "entries": entries}


def merge(dictionaries: Sequence[Record], change: Record, *, keep: bool) -> list[Record]:
    """Return dictionaries with one more, or in the place of the one for its pair.

    keep: the entries of that one stay, where the change has no others.
    """
    same = [one for one in dictionaries if pair_of(one) == pair_of(change)]
    others = [one for one in dictionaries if pair_of(one) != pair_of(change)]
    before = same[0]["entries"] if same and keep else {}
    return [*others, {**change, "entries": {**before, **change["entries"]}}]


def pair_of(dictionary: Record) -> tuple[str, str]:
    """Return the languages of a dictionary."""
    return dictionary["source"], dictionary["target"]


def as_tsv(dictionary: Record) -> str:
    """Return the entries of a dictionary as lines of source term, tab, target term."""
    return "\n".join(f"{source}\t{target}" for source, target in dictionary["entries"].items())


def store_of(call: Call) -> Store:
    """Return where glossaries are."""
    return Store(call.service.config.state_folder, "glossaries")


def create(call: Call, name: str, dictionaries: list[Record]) -> tuple[str, Record]:
    """Write a new glossary; return its name in the store and itself."""
    check_name(name)
    store = store_of(call)
    identity, record = store.new_name(call.caller), {"name": name, "created": time.time(), "dictionaries": dictionaries}
    store.write(identity, call.caller, record)
    return identity, record


def check_name(name: str) -> None:
    """Raise Refusal where a glossary cannot have this name."""
    if not name.strip() or len(name) > MAX_NAME:
        raise Refusal(400, f"a glossary needs a name of at most {MAX_NAME:,} characters")


def describe(identity: str, record: Record) -> MultilingualAnswer:
    """Return what /v3 says of a glossary."""
    counts = [DictionaryAnswer(*pair_of(one), len(one["entries"])) for one in record["dictionaries"]]
    return MultilingualAnswer(identity, record["name"], counts, timestamp(record))


def describe_one(identity: str, record: Record) -> GlossaryAnswer:
    """Return what /v2 says of a glossary."""
    only = record["dictionaries"][0]
    return GlossaryAnswer(identity, record["name"], True, *pair_of(only), timestamp(record), len(only["entries"]))


def timestamp(record: Record) -> str:
    """Return when a glossary was made, in the form of these APIs."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(record["created"]))


def find_one(call: Call, identity: str) -> Record:
    """Return a glossary that /v2 knows: one with one dictionary. Raise Refusal."""
    record = store_of(call).read(identity, call.caller)
    if len(record["dictionaries"]) != 1:
        raise Refusal(404, "this glossary has several dictionaries: use /v3")
    return record


def create_one(call: Call) -> GlossaryAnswer:
    """Make a glossary for one pair of languages."""
    return describe_one(*create(call, call.request.name, [read_entries(call.request)]))


def list_ones(call: Call) -> GlossariesAnswer:
    """List the glossaries for one pair of languages."""
    records = store_of(call).all(call.caller)
    return GlossariesAnswer([describe_one(*one) for one in records if len(one[1]["dictionaries"]) == 1])


def show_one(call: Call) -> GlossaryAnswer:
    """Describe a glossary for one pair of languages."""
    return describe_one(call.path["id"], find_one(call, call.path["id"]))


def show_entries(call: Call) -> Response:
    """Return the entries of a glossary for one pair of languages, as TSV."""
    return Response(as_tsv(find_one(call, call.path["id"])["dictionaries"][0]), media_type=TSV)


def delete(call: Call) -> Response:
    """Delete a glossary."""
    store_of(call).delete(call.path["id"], call.caller)
    return Response(status_code=204)


def pairs(call: Call) -> PairsAnswer:
    """List the pairs of languages that may have a glossary: those with a model of their own."""
    served = call.service.models.by_pair
    found = sorted({(base(pair.source), base(pair.target)) for pair in served})
    return PairsAnswer([PairRequest(*pair) for pair in found])


def create_many(call: Call) -> MultilingualAnswer:
    """Make a glossary with dictionaries for several pairs of languages."""
    dictionaries: list[Record] = []
    for one in call.request.dictionaries:
        dictionaries = merge(dictionaries, read_entries(one), keep=True)
    return describe(*create(call, call.request.name, dictionaries))


def list_all(call: Call) -> MultilingualsAnswer:
    """List the glossaries."""
    return MultilingualsAnswer([describe(*one) for one in store_of(call).all(call.caller)])


def show(call: Call) -> MultilingualAnswer:
    """Describe a glossary."""
    return describe(call.path["id"], store_of(call).read(call.path["id"], call.caller))


def change(call: Call) -> MultilingualAnswer:
    """Change the name of a glossary, and add entries to its dictionaries."""
    store, identity = store_of(call), call.path["id"]
    check_name(call.request.name or "-")
    with store.locked():
        record = store.read(identity, call.caller)
        record["name"] = call.request.name or record["name"]
        for one in call.request.dictionaries:
            record["dictionaries"] = merge(record["dictionaries"], read_entries(one), keep=True)
        write(store, identity, call, record)
    return describe(identity, record)


def write(store: Store, identity: str, call: Call, record: Record) -> None:
    """Write a glossary again. Raise Refusal where it has become too large."""
    if sum(len(as_tsv(one)) for one in record["dictionaries"]) > MAX_BODY:
        raise Refusal(413, f"a glossary has at most {MAX_BODY:,} characters")
    store.write(identity, call.caller, {key: record[key] for key in ("name", "created", "dictionaries")})


def find_dictionary(record: Record, source: str, target: str) -> Record:
    """Return the dictionary of a glossary for a pair of languages. Raise Refusal without one."""
    for one in record["dictionaries"]:
        if pair_of(one) == (base(source), base(target)):
            return dict(one)
    raise Refusal(404, "this glossary has no dictionary for this pair of languages")


def dictionary_entries(call: Call) -> EntriesAnswer:
    """Return the entries of one dictionary of a glossary."""
    record = store_of(call).read(call.path["id"], call.caller)
    found = find_dictionary(record, call.request.source_lang, call.request.target_lang)
    return EntriesAnswer([DictionaryEntries(*pair_of(found), as_tsv(found))])


def replace_dictionary(call: Call) -> DictionaryAnswer:
    """Put a dictionary in the place of the one for its pair of languages, or add it."""
    store, identity, new = store_of(call), call.path["id"], read_entries(call.request)
    with store.locked():
        record = store.read(identity, call.caller)
        record["dictionaries"] = merge(record["dictionaries"], new, keep=False)
        write(store, identity, call, record)
    return DictionaryAnswer(*pair_of(new), len(new["entries"]))


def delete_dictionary(call: Call) -> Response:
    """Delete one dictionary of a glossary."""
    store, identity = store_of(call), call.path["id"]
    with store.locked():
        record = store.read(identity, call.caller)
        gone = find_dictionary(record, call.request.source_lang, call.request.target_lang)
        record["dictionaries"] = [one for one in record["dictionaries"] if pair_of(one) != pair_of(gone)]
        write(store, identity, call, record)
    return Response(status_code=204)


def stored_entries(call: Call, identities: Sequence[str], source: str, target: str) -> dict[str, str]:
    """Return the terms of stored glossaries for a pair of languages. The first glossary counts most.

    Raise Refusal where one is not there or not for this pair.
    """
    if len(identities) > MAX_GLOSSARIES:
        raise Refusal(400, f"at most {MAX_GLOSSARIES} glossaries at once")
    entries: dict[str, str] = {}
    for identity in reversed(identities):
        found = find_dictionary(store_of(call).read(identity, call.caller), source, target)
        entries |= found["entries"]
    return entries


def open_glossary(call: Call, identities: Sequence[str], source: str, target: str) -> Glossary | None:
    """Return the terms of stored glossaries; None for none. Raise Refusal as `stored_entries` does."""
    entries = stored_entries(call, identities, source, target)
    try:
        return Glossary([Entry(term, (meaning,)) for term, meaning in entries.items()]) if entries else None
    except UsageError as error:
        raise Refusal(400, str(error)) from None


def size_of(request: DictionaryRequest | MultilingualRequest | ChangeRequest, file: Upload | None) -> int:
    """Return how many characters the entries of a request have, which are kept."""
    dictionaries = [request] if isinstance(request, DictionaryRequest) else request.dictionaries
    return sum(len(one.entries) for one in dictionaries)


TABLE = (
    Route("GET", "/v2/glossary-language-pairs", pairs, DEEPL, answer=PairsAnswer),
    Route("POST", "/v2/glossaries", create_one, DEEPL, GlossaryRequest, GlossaryAnswer, size_of, status=201),
    Route("GET", "/v2/glossaries", list_ones, DEEPL, answer=GlossariesAnswer),
    Route("GET", "/v2/glossaries/{id}", show_one, DEEPL, answer=GlossaryAnswer),
    Route("DELETE", "/v2/glossaries/{id}", delete, DEEPL, status=204),
    Route("GET", "/v2/glossaries/{id}/entries", show_entries, DEEPL),
    Route(
        "POST", "/v3/glossaries", create_many, DEEPL_V3, MultilingualRequest, MultilingualAnswer, size_of, status=201
    ),
    Route("GET", "/v3/glossaries", list_all, DEEPL_V3, answer=MultilingualsAnswer),
    Route("GET", "/v3/glossaries/{id}", show, DEEPL_V3, answer=MultilingualAnswer),
    Route("PATCH", "/v3/glossaries/{id}", change, DEEPL_V3, ChangeRequest, MultilingualAnswer, size_of),
    Route("DELETE", "/v3/glossaries/{id}", delete, DEEPL_V3, status=204),
    Route("GET", "/v3/glossaries/{id}/entries", dictionary_entries, DEEPL_V3, PairRequest, EntriesAnswer),
    Route(
        "PUT",
        "/v3/glossaries/{id}/dictionaries",
        replace_dictionary,
        DEEPL_V3,
        DictionaryRequest,
        DictionaryAnswer,
        size_of,
    ),
    Route("DELETE", "/v3/glossaries/{id}/dictionaries", delete_dictionary, DEEPL_V3, PairRequest, status=204),
)
ROUTES = tuple(replace(route, files=True) for route in TABLE)
