"""Keep the glossaries of users, each with a dictionary for one pair of languages or more."""

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.responses import Response

from dragoman.errors import UsageError
from dragoman.server.reading import MAX_BODY, Refusal
from dragoman.server.routes import Call
from dragoman.server.store import Store
from dragoman.text.glossary import MAX_TERM_LENGTH, Entry, Glossary, normalise_term

LANGUAGE = re.compile(r"[a-z]{2,3}")
MAX_NAME = 1024  # characters
MAX_GLOSSARIES = 5  # of one translation
Record = dict[str, Any]


def base(code: str) -> str:
    """Return the language of a code without its region: glossaries are for languages."""
    return code.strip().replace("_", "-").partition("-")[0].lower()


def as_record(source_lang: str, target_lang: str, terms: Iterable[Sequence[str]]) -> Record:
    """Return a dictionary as it is stored. Raise Refusal for wrong codes, and terms that are empty, long or twice."""
    entries: dict[str, str] = {}
    for term in terms:
        source, target = map(normalise_term, term)
        if not source or not target or max(len(source), len(target)) > MAX_TERM_LENGTH:
            raise Refusal(400, f"each side of a glossary entry must have 1 to {MAX_TERM_LENGTH} characters")
        if source in entries:
            raise Refusal(400, "a glossary must not have two entries for the same term")
        entries[source] = target
    if not entries:
        raise Refusal(400, "a glossary needs entries")
    source, target = base(source_lang), base(target_lang)
    if not (LANGUAGE.fullmatch(source) and LANGUAGE.fullmatch(target)):
        raise Refusal(400, "a glossary needs the codes of two languages, such as en and de")
    return {"source": source, "target": target, "entries": entries}


def merge(dictionaries: Sequence[Record], change: Record, *, keep: bool) -> list[Record]:
    """Return dictionaries with `change` in the place of the one for its pair, whose other entries may be kept."""
    by_pair = {pair_of(dictionary): dictionary for dictionary in dictionaries}
    before = by_pair.pop(pair_of(change), {"entries": {}})["entries"]
    entries = {**before, **change["entries"]} if keep else change["entries"]
    return [*by_pair.values(), {**change, "entries": entries}]


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


def timestamp(record: Record) -> str:
    """Return when a glossary was made, in the form of these APIs."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(record["created"]))


def delete(call: Call) -> Response:
    """Delete a glossary."""
    store_of(call).delete(call.path["id"], call.caller)
    return Response(status_code=204)


def write(store: Store, identity: str, call: Call, record: Record) -> None:
    """Write a glossary again. Raise Refusal where it has become too large."""
    if sum(len(as_tsv(dictionary)) for dictionary in record["dictionaries"]) > MAX_BODY:
        raise Refusal(413, f"a glossary has at most {MAX_BODY:,} characters")
    store.write(identity, call.caller, {key: record[key] for key in ("name", "created", "dictionaries")})


def find_dictionary(record: Record, source: str, target: str) -> Record:
    """Return the dictionary of a glossary for a pair of languages. Raise Refusal without one."""
    for dictionary in record["dictionaries"]:
        if pair_of(dictionary) == (base(source), base(target)):
            return dict(dictionary)
    raise Refusal(404, "this glossary has no dictionary for this language pair")


def stored_entries(call: Call, identities: Sequence[str], source: str, target: str) -> dict[str, str]:
    """Return the terms of stored glossaries for a pair; the first one wins. Raise Refusal where one lacks the pair."""
    if len(identities) > MAX_GLOSSARIES:
        raise Refusal(400, f"at most {MAX_GLOSSARIES} glossaries at once")
    entries: dict[str, str] = {}
    for identity in reversed(identities):
        entries |= find_dictionary(store_of(call).read(identity, call.caller), source, target)["entries"]
    return entries


def open_glossary(call: Call, identities: Sequence[str], source: str, target: str) -> Glossary | None:
    """Return the terms of stored glossaries; None for none. Raise Refusal as `stored_entries` does."""
    entries = stored_entries(call, identities, source, target)
    try:
        return Glossary([Entry(term, (meaning,)) for term, meaning in entries.items()]) if entries else None
    except UsageError as error:
        raise Refusal(400, str(error)) from None
