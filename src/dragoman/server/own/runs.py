"""Show for dragoman's own API the runs of `dragoman train` in a folder: how far each is, its curves and its samples."""

import os
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from dragoman.decoding.rows import Gone, Late
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.history import read_film
from dragoman.inspection.page import encode, weight_bytes
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route
from dragoman.server.runs import RunFolders, Standing

MOST_RUNS = 100  # that are listed
MOST_CHECKPOINTS = 20  # of a film
KEPT = 4  # films that are kept


class ServedStep(Struct):
    """A checkpoint of a run that this server translates with, and between which languages."""

    step: int | None  # None: it is not one of the checkpoints, but a model beside them
    source: str
    target: str


class RunStanding(Standing, kw_only=True):
    """How far a run is."""

    served: list[ServedStep]


class RunsAnswer(Struct):
    """The runs, those that have written something lately first."""

    runs: list[RunStanding]
    left_out: int  # runs that are not listed, because there are too many


class CurvesRequest(Struct, forbid_unknown_fields=True):
    """From which byte of the metrics on."""

    offset: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0


class Curve(Struct):
    """The points of a curve, in the order of their steps."""

    steps: list[int]
    seconds: list[float | None]  # of training until then
    values: list[float]


class CurvesAnswer(Struct):
    """What is new in the metrics of a run: at most 2,000 points a curve, its extremes among them."""

    curves: dict[str, Curve]
    start: int  # the byte that it begins with: 0 where the file has become shorter than `offset`
    offset: int  # for the next request
    more: bool  # whether to ask for more at once
    damaged: int  # lines that could not be read


class SamplesRequest(Struct, forbid_unknown_fields=True):
    """Of which validation; the last one if it is not said."""

    step: Annotated[int, Meta(ge=0, lt=10**10)] | None = None


class Sample(Struct):
    """A dev sentence, and how it was translated then and at the validation before ('' for none)."""

    source: str
    reference: str
    now: str
    before: str


class SamplesAnswer(Struct):
    """The sample translations of a validation, and the steps of all validations that have some."""

    steps: list[int]
    step: int | None  # null: there are none yet
    samples: list[Sample]


class FilmRequest(Struct, forbid_unknown_fields=True):
    """Of which of the sample sentences, counted from 1."""

    sentence: Annotated[int, Meta(ge=1, le=1000)] = 1


class FilmAnswer(Struct):
    """The cross-attention of a sample sentence, with its own reference as the target, at each checkpoint."""

    steps: list[int]
    target: list[str]  # words
    source: list[str]
    layers: int
    heads: int
    layer: int  # that is shown first
    head: int  # 0: the mean of the heads
    weights: str  # [checkpoint][layer][head][target][source], a byte each, 255 for 1, in base64


def folders_of(call: Call) -> RunFolders:
    """Return the folder with the runs. Raise Refusal without one."""
    if not call.service.config.runs:
        raise Refusal(404, "this server shows no runs; --runs FOLDER turns it on")
    return RunFolders(Path(call.service.config.runs))


def readable(handler: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Let a handler raise Refusal where what it reads has just been moved, or is damaged."""

    @wraps(handler)
    def handle(call: Call) -> Any:
        try:
            return handler(call)
        except (Gone, Late, UsageError):
            raise
        except (OSError, DragomanError):
            raise Refusal(404, "this run cannot be read right now; try again") from None

    return handle


def run_of(call: Call) -> tuple[RunFolders, Path]:
    """Return the run that the path names. Raise Refusal where there is none."""
    folders = folders_of(call)
    if not (run := folders.find(call.path["name"])):
        raise Refusal(404, "there is no such run")
    return folders, run


def served_from(call: Call, run: Path) -> list[ServedStep]:
    """Return the models of this server that are in a run folder."""
    inside, steps = Path(os.path.realpath(run)), []
    for model in call.service.models.by_pair.values():
        folder = Path(os.path.realpath(model.source.folder))
        if folder.is_relative_to(inside):
            number = folder.name.split("-")[1:2] if folder.name.startswith("step-") else []
            step = int(number[0]) if number and number[0].isdecimal() else None
            steps.append(ServedStep(step, *model.pair))
    return steps


@readable
def list_runs(call: Call) -> RunsAnswer:
    """List the runs: how far each is, its best score, and how long it may still take."""
    folders, names = folders_of(call), []
    for name in folders.names():
        file = folders.folder / name / "metrics.jsonl"
        names.append((-file.stat().st_mtime if folders.holds(file) else 0.0, name))
    runs = []
    for _, name in sorted(names)[:MOST_RUNS]:
        run = folders.folder / name
        runs.append(RunStanding(*structs.astuple(folders.standing(run)), served=served_from(call, run)))
    return RunsAnswer(runs, max(0, len(names) - MOST_RUNS))


@readable
def curves(call: Call) -> CurvesAnswer:
    """Return what is new in the metrics of a run since a byte of them, as curves."""
    folders, run = run_of(call)
    piece = folders.read(run, call.request.offset)
    new_curves = {name: Curve(*map(list, zip(*points, strict=True))) for name, points in piece.curves.items() if points}
    return CurvesAnswer(new_curves, piece.start, piece.end, piece.more, piece.damaged)


@readable
def samples(call: Call) -> SamplesAnswer:
    """Return the row translations of a validation of a run, and those of the validation before."""
    folders, run = run_of(call)
    steps = folders.sampled(run)
    step = call.request.step if call.request.step is not None else steps[-1] if steps else None
    if step is None:
        return SamplesAnswer(steps, None, [])
    if step not in steps:
        raise Refusal(404, f"there are no samples of step {step}")
    texts = [Sample(*(row.get(field, "") for field in Sample.__struct_fields__)) for row in folders.samples(run, step)]
    return SamplesAnswer(steps, step, texts)


@readable
def film(call: Call) -> FilmAnswer:
    """Show the cross-attention of a sample sentence at each checkpoint of a run."""
    folders, run = run_of(call)
    kept = dict(sorted(folders.checkpoints(run).items())[-MOST_CHECKPOINTS:])
    if len(kept) < 2:
        raise Refusal(400, "there are fewer than two checkpoints; --training.keep 20 keeps the newest 20 on disk")
    number, steps = call.request.sentence, folders.sampled(run)
    texts = folders.samples(run, steps[-1]) if steps else []
    if number > len(texts):
        raise Refusal(400, f"there are {len(texts)} sample sentences")
    sample = defaultdict(str, texts[number - 1])
    pair, tags = (sample["source"], sample["reference"]), (sample["tag"], sample["target tag"])
    asked, films = (str(run), tuple(kept), pair, tags), call.service.films
    with call.service.turn(call.ticket):
        if asked not in films:
            made = read_film(kept, pair, tags, number, call.ticket.check)
            films[asked] = made
            if len(films) > KEPT:
                del films[next(iter(films))]
        made = films[asked]
    _, layers, heads, _, _ = made.cross_attention.shape
    weights = encode(weight_bytes(made.cross_attention))
    return FilmAnswer(
        made.steps, made.target, made.source, layers, heads, made.head.layer, made.head.head or 0, weights
    )


ROUTES = (
    Route("POST", "/api/v1/runs/{name}/film", film, OWN, FilmRequest, FilmAnswer, cost=lambda request, file: 0),
    Route("GET", "/api/v1/runs", list_runs, OWN, answer=RunsAnswer, files=True),
    Route("GET", "/api/v1/runs/{name}/curves", curves, OWN, CurvesRequest, CurvesAnswer, files=True),
    Route("GET", "/api/v1/runs/{name}/samples", samples, OWN, SamplesRequest, SamplesAnswer, files=True),
)
