"""Keep glossaries for dragoman's own API. They are those of DeepL's clients: what one has made, the other can use."""

from dataclasses import replace

from msgspec import Struct

from dragoman.server import glossaries as stored
from dragoman.server.glossaries import Record, pair_of, store_of
from dragoman.server.reading import Upload
from dragoman.server.routes import OWN, Call, Route


class Dictionary(Struct, forbid_unknown_fields=True):
    """The terms of one pair of languages, each with its translation."""

    source: str
    target: str
    entries: dict[str, str]


class GlossaryRequest(Struct, forbid_unknown_fields=True):
    """A glossary: its name, and a dictionary for each pair of languages."""

    name: str
    dictionaries: list[Dictionary]


class GlossaryAnswer(Struct):
    """A glossary, and when it was made."""

    id: str
    name: str
    created: str
    dictionaries: list[Dictionary]


class DictionarySize(Struct):
    """How many terms there are for a pair of languages."""

    source: str
    target: str
    terms: int


class GlossaryCard(Struct):
    """A glossary without its terms."""

    id: str
    name: str
    created: str
    dictionaries: list[DictionarySize]


class GlossariesAnswer(Struct):
    """The glossaries, the oldest first."""

    glossaries: list[GlossaryCard]


def characters_of(request: GlossaryRequest, file: Upload | None) -> int:
    """Return how many characters the terms of a glossary have, which are kept."""
    return sum(len(term) + len(meaning) for terms in request.dictionaries for term, meaning in terms.entries.items())


def dictionaries_of(request: GlossaryRequest) -> list[Record]:
    """Return the dictionaries of a request as they are stored. Raise Refusal where they are wrong."""
    dictionaries: list[Record] = []
    for terms in request.dictionaries:
        record = stored.as_record(terms.source, terms.target, terms.entries.items())
        dictionaries = stored.merge(dictionaries, record, keep=True)
    return dictionaries


def describe(identity: str, record: Record) -> GlossaryAnswer:
    """Return a glossary as it is answered."""
    return GlossaryAnswer(
        identity, record["name"], stored.timestamp(record), [Dictionary(**terms) for terms in record["dictionaries"]]
    )


def add(call: Call) -> GlossaryAnswer:
    """Make a glossary. Requests name it in glossary_ids."""
    return describe(*stored.create(call, call.request.name, dictionaries_of(call.request)))


def card(identity: str, record: Record) -> GlossaryCard:
    """Return a glossary without its terms."""
    sizes = [DictionarySize(*pair_of(terms), len(terms["entries"])) for terms in record["dictionaries"]]
    return GlossaryCard(identity, record["name"], stored.timestamp(record), sizes)


def list_all(call: Call) -> GlossariesAnswer:
    """List the glossaries of whoever asks."""
    return GlossariesAnswer([card(*glossary) for glossary in store_of(call).all(call.caller)])


def show(call: Call) -> GlossaryAnswer:
    """Return a glossary with its terms."""
    return describe(call.path["id"], store_of(call).read(call.path["id"], call.caller))


def change(call: Call) -> GlossaryAnswer:
    """Replace the name and all terms of a glossary."""
    stored.check_name(call.request.name)
    store, identity = store_of(call), call.path["id"]
    with store.locked():
        record = store.read(identity, call.caller)
        record |= {"name": call.request.name, "dictionaries": dictionaries_of(call.request)}
        stored.write(store, identity, call, record)
    return describe(identity, record)


PATH = "/api/v1/glossaries"
TABLE = (
    Route("POST", PATH, add, OWN, GlossaryRequest, GlossaryAnswer, characters_of, status=201),
    Route("GET", PATH, list_all, OWN, answer=GlossariesAnswer),
    Route("GET", f"{PATH}/{{id}}", show, OWN, answer=GlossaryAnswer),
    Route("PUT", f"{PATH}/{{id}}", change, OWN, GlossaryRequest, GlossaryAnswer, characters_of),
    Route("DELETE", f"{PATH}/{{id}}", stored.delete, OWN, status=204),
)
ROUTES = tuple(replace(route, files=True) for route in TABLE)
