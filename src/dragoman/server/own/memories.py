"""Correct the memories of the models in dragoman's own API: list, add, change, forget and export approved pairs."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from dragoman.memory import ApprovedPair
from dragoman.server import memories
from dragoman.server.memories import MAX_ORIGIN, Numbered, Remembered, is_from, may_change, memory_for
from dragoman.server.reading import Refusal, Upload
from dragoman.server.routes import OWN, Call, Route, characters_in

MOST = 1000  # pairs of a page
Origin = Annotated[str, Meta(max_length=MAX_ORIGIN)]


class PairRequest(Struct, forbid_unknown_fields=True):
    """A text and its translation."""

    text: str
    translation: str


class AddRequest(Struct, forbid_unknown_fields=True):
    """Pairs that somebody approves."""

    pairs: Annotated[list[PairRequest], Meta(min_length=1)]
    origin: Origin = ""  # '' for the name of the key


class ListRequest(Struct, forbid_unknown_fields=True):
    """Which pairs are asked for: from a number on, of an origin, with some letters in one of the two sides."""

    first: Annotated[int, Meta(ge=0)] = 0
    count: Annotated[int, Meta(ge=1, le=MOST)] = 100
    origin: str = ""
    contains: str = ""


class ForgetRequest(Struct, forbid_unknown_fields=True):
    """The origin of the pairs that are to be forgotten."""

    origin: Annotated[str, Meta(min_length=1)]


class ExportRequest(Struct, forbid_unknown_fields=True):
    """The format of a file."""

    format: Literal["tmx", "tsv"] = "tmx"


class RememberedPair(Struct, kw_only=True):
    """An approved pair, and whether it is for whoever asks to change it."""

    number: int
    text: str
    translation: str
    origin: str
    date: str
    by: str
    yours: bool


class MemoryCard(Struct):
    """A memory: for which languages, how many pairs it has, and whether near matches count or exact ones only."""

    source: str
    target: str
    pairs: int
    counts: Literal["all", "exact"]


class MemoriesAnswer(Struct):
    """The memories."""

    memories: list[MemoryCard]


class PairsAnswer(Struct):
    """Pairs, the oldest first, and the number to go on from; null: there are no more."""

    pairs: list[RememberedPair]
    next: int | None = None


class ForgottenAnswer(Struct):
    """How many pairs were forgotten."""

    forgotten: int


def fields_of(call: Call, number: int, pair: ApprovedPair) -> dict[str, Any]:
    """Return the fields of a pair as it is answered."""
    fields = {"number": number, "text": pair.source, "translation": pair.target, "yours": may_change(call, pair)}
    return fields | {name: getattr(pair, name) for name in ("origin", "date", "by")}


def answer(call: Call, pair: Numbered) -> RememberedPair:
    """Return a pair as it is answered."""
    return RememberedPair(**fields_of(call, *pair))


def memory_of(call: Call) -> Remembered:
    """Return the memory of the languages in the path. Raise Refusal without one."""
    codes = [call.path[side] for side in ("source", "target")]
    return memory_for(call, *(call.service.models.find_language(code) or code for code in codes))


def pair_of(call: Call) -> Numbered:
    """Return the pair whose number is in the path. Raise Refusal where there is none, or it is somebody else's."""
    number = call.path["number"]
    pair = memory_of(call).find(int(number) if number.isascii() and number.isdigit() and len(number) < 10 else -1)
    memories.check_owner(call, pair.pair)
    return pair


def list_memories(call: Call) -> MemoriesAnswer:
    """List the memories of the models."""
    return MemoriesAnswer(
        [
            MemoryCard(*pair, sum(1 for _ in each.numbered()), each.served.remembers or "exact")
            for pair, each in memories.all_memories(call).items()
        ]
    )


def list_pairs(call: Call) -> PairsAnswer:
    """List approved pairs, a page at a time."""
    request: ListRequest = call.request
    wanted = request.contains.casefold()
    page: list[Numbered] = []
    for number, pair in memory_of(call).numbered():
        if number < request.first or (request.origin and not is_from(pair, request.origin)):
            continue
        if wanted in pair.source.casefold() or wanted in pair.target.casefold():
            if len(page) == request.count:
                return PairsAnswer([answer(call, each) for each in page], number)
            page.append(Numbered(number, pair))
    return PairsAnswer([answer(call, each) for each in page])


def add(call: Call) -> PairsAnswer:
    """Approve translations of texts; they count from the next request on, whoever sends it."""
    request: AddRequest = call.request
    if len(request.pairs) > call.service.config.texts:
        raise Refusal(400, f"at most {call.service.config.texts:,} pairs at once")
    pairs = [(pair.text, pair.translation, request.origin) for pair in request.pairs]
    added = memories.remember(call, memory_of(call), pairs)
    return PairsAnswer([answer(call, each) for each in added])


def change(call: Call) -> RememberedPair:
    """Put another pair in the place of one; it has a number of its own."""
    before, remembered = pair_of(call), memory_of(call)
    pair = (call.request.text, call.request.translation, before.pair.origin)
    (changed,) = memories.remember(call, remembered, [pair])
    remembered.memory.forget([before.number])
    return answer(call, changed)


def forget_one(call: Call) -> Response:
    """Forget a pair: its text is overwritten."""
    memory_of(call).memory.forget([pair_of(call).number])
    return Response(status_code=204)


def forget_origin(call: Call) -> ForgottenAnswer:
    """Forget all pairs of an origin, such as a file; with keys, those of others stay."""
    remembered, origin = memory_of(call), call.request.origin
    pairs = [each for each in remembered.numbered() if is_from(each.pair, origin)]
    return ForgottenAnswer(memories.forget(call, remembered, pairs))


def export(call: Call) -> Response:
    """Return all pairs as a file."""
    remembered, form = memory_of(call), call.request.format
    languages, pairs = remembered.served.pair, remembered.numbered()
    content = memories.as_tmx(languages, pairs) if form == "tmx" else memories.as_tsv(pairs)
    headers = {"Content-Disposition": f'attachment; filename="{languages}.{form}"'}
    return Response(content, headers=headers, media_type="application/octet-stream")


def characters_of(request: AddRequest, file: Upload | None) -> int:
    """Return how many characters the pairs of a request have, which are kept."""
    return sum(len(pair.text) + len(pair.translation) for pair in request.pairs)


PATH = "/api/v1/memories"
PAIRS = f"{PATH}/{{source}}/{{target}}"
TABLE = (
    Route("GET", PATH, list_memories, OWN, answer=MemoriesAnswer),
    Route("GET", PAIRS, list_pairs, OWN, ListRequest, PairsAnswer),
    Route("POST", PAIRS, add, OWN, AddRequest, PairsAnswer, characters_of, status=201),
    Route("DELETE", PAIRS, forget_origin, OWN, ForgetRequest, ForgottenAnswer),
    Route("GET", f"{PAIRS}/export", export, OWN, ExportRequest),
    Route("PUT", f"{PAIRS}/{{number}}", change, OWN, PairRequest, RememberedPair, characters_in("text", "translation")),
    Route("DELETE", f"{PAIRS}/{{number}}", forget_one, OWN, status=204),
)
ROUTES = tuple(replace(route, files=True) for route in TABLE)
