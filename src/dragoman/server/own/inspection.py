"""Show for dragoman's own API what a model did with a sentence: attention, the search, and which words matter.

What is shown is the plain search of the native engine in float32, whatever the server translates with.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, Struct, structs
from starlette.responses import Response

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.engine import Constraints
from dragoman.decoding.processors import Dropped
from dragoman.decoding.rows import Ticket
from dragoman.decoding.search import Hypothesis, Observer, Steps
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.inspection import page as figures
from dragoman.inspection.export import as_dict
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.plots.positions import added_positions
from dragoman.model.capture import AttentionKind
from dragoman.server.models import Served
from dragoman.server.own.texts import AUTO, Direction, check_beam, languages_of
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route, characters_in
from dragoman.server.texts import detect_sources
from dragoman.training.weights import untrained_model

KEPT = 4  # inspections that are kept, since what is asked about one sentence comes in several requests
KEPT_WEIGHTS = 2**25  # or one inspection, if it has more


class InspectRequest(Direction, kw_only=True):
    """A sentence, and how it is translated."""

    text: str
    tag: str = ""
    beam: Annotated[int, Meta(ge=1)] | None = None
    translation: str | None = None  # in place of what the search finds


class SearchRequest(InspectRequest, kw_only=True):
    """A sentence, and whether its search is to be shown, which then has to be done anew."""

    tree: bool = True


class AttentionRequest(InspectRequest, kw_only=True):
    """A sentence, and the kind of attention that is asked for."""

    kind: AttentionKind = "cross"


class OcclusionRequest(InspectRequest, kw_only=True):
    """A sentence, and whether subwords are left out rather than words."""

    subwords: bool = False


class PositionsRequest(Direction, kw_only=True):
    """A model, and for how many positions its encoding is asked for."""

    rows: Annotated[int, Meta(ge=1)] = figures.SHOWN_POSITIONS


class Inspected(Struct):
    """What a model did with a sentence, and what the server translates it into."""

    source: str
    target: str
    engine: str  # that the server translates with
    compute_type: str
    translation: str  # of the server: another one than that of the search where the engine or a safeguard changes it
    differs: bool
    inspection: dict[str, Any]  # as `dragoman inspect --json` prints it, without the weights
    kinds: list[dict[str, Any]]  # the shapes of the weights
    links: dict[str, Any] | None  # the weights between words of the head that aligns best


class InspectAnswer(Struct):
    """What each model did: one, or two of which the second translates what the first has written."""

    inspections: list[Inspected]


class OcclusionAnswer(Struct):
    """How much less probable each word of the translation (row) is without each word of the sentence (column)."""

    rows: list[str]
    columns: list[str]
    probabilities: list[float]
    drops: list[list[float]]


class PositionsAnswer(Struct):
    """What the encoder adds to the word at each position; none where its scheme adds nothing."""

    positional_encoding: dict[str, Any] | None


class Punctual:
    """An engine that ends its search when a ticket says so. See `SteppedEngine`."""

    def __init__(self, engine: TorchEngine, ticket: Ticket):
        self.engine, self.ticket = engine, ticket
        self.max_positions = engine.max_positions

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        return self.engine.search(sources, config, constraints)

    def search_batch(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints],
        observe: Observer | None = None,
        dropped: Dropped | None = None,
    ) -> Steps:
        """Search as the engine does. Raise Late and Gone between two steps."""
        steps = self.engine.search_batch(sources, config, constraints, observe, dropped)
        while True:
            self.ticket.check()
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield


def path_of(call: Call, text: str) -> tuple[Served, ...]:
    """Return the models that translate a text one after the other. Raise Refusal where there is none."""
    target, source = languages_of(call, call.request)
    if source is None:
        source = detect_sources(call.service, [text], target)[0][0]
    if source == target:
        raise Refusal(400, f"the text is already in {target}: nothing to translate")
    return call.service.models.path(source, target)


def model_of(call: Call, text: str = "") -> Served:
    """Return the model that translates a text. Raise Refusal where there are two of them."""
    path = path_of(call, text)
    if len(path) > 1:
        (source, pivot), target = path[0].pair, path[1].pair.target
        raise Refusal(
            400, f"{source} is translated through {pivot}: ask for {source} to {pivot}, or {pivot} to {target}"
        )
    return path[0]


def look(call: Call, served: Served, text: str, *, tree: bool = False) -> Inspection:
    """Return the inspection of a text by one model, which is kept for further requests; call it only in its turn.

    tree: whether it needs the tree of the search. Without, what the server has just translated is not searched for
    again. Raise Refusal where a side has too many tokens, UsageError as `inspect` does, and Late and Gone as the ticket
    says.
    """
    service, request = call.service, call.request
    tag, kept = request.tag or served.translator.tag, service.inspected
    asked = (served.source, text, request.translation, tag, request.beam)
    if asked in kept and (kept[asked].tree or not tree):
        return kept[asked]
    native = service.models.native_engine(served)
    shared = native is served.translator.engine and not tree
    translator = served.translator.replace(
        search=replace(served.translator.search, beam=request.beam or service.config.beam),
        engine=served.pool.view(call.ticket) if shared else Punctual(native, call.ticket),
    )
    check_tokens(call, "text", len(translator.tokenizers.source.encode(text, tag)) + 1)
    if request.translation is not None:
        check_tokens(call, "translation", len(translator.tokenizers.target.encode(request.translation)) + 1)
    inspection = inspect(translator, text, request.translation, tag=tag, name=served.source.name)
    check_tokens(call, "translation", len(inspection.target.tokens))
    kept[asked] = inspection
    while len(kept) > KEPT or (len(kept) > 1 and sum(map(weights_in, kept.values())) > KEPT_WEIGHTS):
        del kept[next(iter(kept))]
    return inspection


def weights_in(inspection: Inspection) -> int:
    """Return how many weights an inspection has; each takes four bytes."""
    return sum(inspection.maps(kind).numel() for kind in KINDS)


def check_tokens(call: Call, side: str, tokens: int) -> None:
    """Raise Refusal for more tokens, EOS included, than are inspected."""
    most = call.service.config.inspect_tokens
    if not most:
        raise Refusal(403, "inspecting is turned off on this server")
    if tokens > most:
        raise Refusal(400, f"the {side} has {tokens} tokens; this server inspects at most {most} on each side")


def inspect_sentence(call: Call) -> InspectAnswer:
    """Show what the model did with a sentence: words, probabilities, heads, the search; with a pivot, both models."""
    text, inspections = call.request.text, []
    path = path_of(call, text)
    check_beam(call, call.request.beam)
    if len(path) > 1 and call.request.translation is not None:
        model_of(call, text)  # which of the two should have written it?
    for served in path:
        inspections.append(inspect_leg(call, served, text))
        text = inspections[-1].translation
        call = replace(call, request=structs.replace(call.request, tag=""))  # the tag is for the first model
    return InspectAnswer(inspections)


def inspect_leg(call: Call, served: Served, text: str) -> Inspected:
    """Return what one model did with a text, and what the server translates it into."""
    config = call.service.config
    with call.service.turn(call.ticket, call.service.inspecting):
        inspection = look(call, served, text, tree=call.request.tree and call.request.translation is None)
        record, links = as_dict(inspection), figures.word_links(inspection)
    search = replace(served.translator.search, beam=call.request.beam or config.beam)
    translator = served.translator_for(call.ticket, search, served.translator.safeguards)
    translation = translator.translate(text, call.request.tag).text
    return Inspected(
        *served.pair,
        config.engine,
        config.compute_type,
        translation,
        translation != inspection.target.text,
        record,
        [figures.describe_maps(inspection, kind) for kind in KINDS if len(inspection.maps(kind))],
        links,
    )


def attention(call: Call) -> Response:
    """Return the weights of a kind of attention as bytes, 255 for 1: [layer][head][query][key].

    Behind them, for a Transformer, those of its rollouts: [layer][query][key].
    """
    served = model_of(call, call.request.text)
    check_beam(call, call.request.beam)
    with call.service.turn(call.ticket, call.service.inspecting):
        inspection, kind = look(call, served, call.request.text), call.request.kind
        weights = inspection.maps(kind)
        if not len(weights):
            raise Refusal(400, f"this model has no {KINDS[kind]}")
        followed = figures.rollouts(inspection, kind)
    content = figures.weight_bytes(weights) + (b"" if followed is None else figures.weight_bytes(followed))
    return Response(content, media_type="application/octet-stream")


def leave_out(call: Call) -> OcclusionAnswer:
    """Say how much less probable each word of a translation is without each word of the sentence."""
    served = model_of(call, call.request.text)
    check_beam(call, call.request.beam)
    with call.service.turn(call.ticket, call.service.inspecting):
        inspection = look(call, served, call.request.text)
        drops = occlusion(served.translator.model, inspection, subwords=call.request.subwords, check=call.ticket.check)
    return OcclusionAnswer(**figures.occlusion_as_dict(drops))


def positions(call: Call) -> PositionsAnswer:
    """Show what the encoder adds to the word at each position."""
    rows, most = call.request.rows, max(call.service.config.inspect_tokens, figures.SHOWN_POSITIONS)
    if rows > most:
        raise Refusal(400, f"rows must be at most {most}")
    if call.request.source.lower() == AUTO:
        raise Refusal(400, "name the source language: there is no text to detect it in")
    encoding = added_positions(model_of(call).translator.model, rows)
    return PositionsAnswer(figures.encode_positions(encoding) if encoding else None)


def page(call: Call) -> Response:
    """Return the page that `dragoman inspect --html` writes: one file to share."""
    served = model_of(call, call.request.text)
    check_beam(call, call.request.beam)
    with call.service.turn(call.ticket, call.service.inspecting):
        inspection = look(call, served, call.request.text, tree=call.request.translation is None)
        call.ticket.check()
        untrained = untrained_model(served.source.folder, served.translator.tokenizers)
        content = figures.inspection_page(inspection, served.translator, untrained)
    headers = {"Content-Disposition": 'attachment; filename="inspection.html"'}
    return Response(content.encode(errors="replace"), headers=headers, media_type="text/html")


COST = characters_in("text", "translation")
ROUTES = (
    Route("POST", "/api/v1/inspect", inspect_sentence, OWN, SearchRequest, InspectAnswer, COST),
    Route("POST", "/api/v1/attention", attention, OWN, AttentionRequest, cost=COST),
    Route("POST", "/api/v1/occlusion", leave_out, OWN, OcclusionRequest, OcclusionAnswer, COST),
    Route("POST", "/api/v1/positions", positions, OWN, PositionsRequest, PositionsAnswer),
    Route("POST", "/api/v1/page", page, OWN, InspectRequest, cost=COST),
)
