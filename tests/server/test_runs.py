"""The runs that a server shows: their curves and their samples, and that nothing outside of the folder is read."""

import base64
import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch
from conftest import gap
from serving import CONFIG, Running, running, running_with_runs

from dragoman.config import RunConfig, TrainingConfig, to_toml
from dragoman.decoding.rows import Late
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.history import read_history
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.own import runs
from dragoman.server.run import check_runs, describe, read_settings
from dragoman.server.runs import CURVES, MOST_POINTS, Point, RunFolders, forecast, thin
from dragoman.server.table import ROUTES
from dragoman.training.checkpoint import TrainingProgress


def line(step: int, event: str = "step", **values: Any) -> str:
    return json.dumps({"event": event, "step": step, "seconds": step / 10, **values}) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """A folder with a real run, and what strangers may leave beside it."""
    folder = tmp_path_factory.mktemp("all") / "runs"
    shutil.copytree(trained, folder / "toy", symlinks=True)
    outside = folder.parent / "outside"
    shutil.copytree(trained, outside, symlinks=True)
    (folder / "linked").symlink_to(outside)
    (folder / "halfway").mkdir()
    (folder / "halfway" / "config.toml").write_text("")
    for name in ("metrics.jsonl", "samples", "last", "checkpoints"):
        (folder / "halfway" / name).symlink_to(outside / name)
    (folder / "no run").mkdir()
    os.mkfifo(folder / "no run" / "metrics.jsonl")  # to open it would take for ever
    (folder / "file").write_text("")
    (folder / os.fsdecode(b"\xff")).mkdir()
    (folder / os.fsdecode(b"\xff") / "config.toml").write_text("")
    return folder


@pytest.fixture(scope="module")
def following(models: Models, folder: Path) -> Iterator[Running]:
    """A server that shows runs, one of which it serves."""
    with running_with_runs(models, folder) as started:
        yield started


def curves_of(server: Running, name: str, offset: int = 0) -> Any:
    answer = server.ask("GET", f"/api/v1/runs/{quote(name)}/curves?offset={offset}")
    assert answer.status == 200, answer
    return answer.json


# What leaves the server.


@pytest.mark.parametrize("count", [1, 2, 1999, 2000, 2001, 3500, 40_000])
def test_thin_keeps_the_extremes_of_many_points(count: int):
    chance = random.Random(count)
    points = [Point(step, None, chance.choice([0.0, 1.0, chance.gauss(0, 1)])) for step in range(count)]
    for spike in chance.choices(range(count), k=4):
        points[spike] = Point(spike, 1.0, chance.choice([-99.0, 99.0]))
    kept = thin(points)
    assert len(kept) <= MOST_POINTS
    assert kept == sorted(set(kept), key=lambda point: point.step)
    assert set(kept) <= set(points)
    assert {kept[0], kept[-1]} == {points[0], points[-1]}
    for extreme in (min, max):
        value = extreme(point.value for point in points)
        assert value == extreme(point.value for point in kept)
        if count > 2 * MOST_POINTS:  # the control: every so-many-th point, which is what people do first
            assert value != extreme(
                point.value for point in points[:: count // MOST_POINTS + 1] if abs(point.value) < 99
            )
    assert (kept == points) == (count <= MOST_POINTS)


def test_curves_are_read_from_where_the_last_answer_ended(following: Running, folder: Path):
    run = folder / "growing"
    run.mkdir()
    file = run / "metrics.jsonl"
    first = line(1, loss=4.0, rate=0.1) + line(1, "validation", loss=3.0, bleu=1.0, chrf=2.0) + line(2, loss=3.5)
    half = line(3, loss=3.0)
    file.write_text(first + half[:-9])
    answer = curves_of(following, "growing")
    assert answer["curves"]["training_loss"] == {"steps": [1, 2], "seconds": [0.1, 0.2], "values": [4.0, 3.5]}
    assert {name: curve["values"] for name, curve in answer["curves"].items()} == {
        "training_loss": [4.0, 3.5], "dev_loss": [3.0], "bleu": [1.0], "chrf": [2.0], "rate": [0.1],
    }  # fmt: skip
    assert (answer["start"], answer["offset"], answer["damaged"]) == (0, len(first), 0)  # half a line is not there yet
    again = curves_of(following, "growing", answer["offset"])
    assert again == {**answer, "curves": {}, "start": len(first)}
    file.write_text(first + half + "no JSON\n" + '{"event": "step"}\n' + line(4, loss=float("nan")) + line(2, loss=9.0))
    new = curves_of(following, "growing", answer["offset"])
    assert new["curves"]["training_loss"]["steps"] == [2, 3]  # a run went back, and the last row counts
    assert new["curves"]["training_loss"]["values"] == [9.0, 3.0]
    assert (new["offset"], new["damaged"], new["more"]) == (file.stat().st_size, 2, False)
    file.write_text(first)  # written anew
    assert curves_of(following, "growing", new["offset"])["start"] == 0
    for offset in ("-1", "x", str(1 << 62), "1.5"):
        assert following.ask("GET", f"/api/v1/runs/growing/curves?offset={offset}").status == 400
    shutil.rmtree(run)


def test_pieces_put_together_are_the_whole(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """However little is read at once, and with a line that is longer than that."""
    run = folder / "long"
    run.mkdir()
    rows = [line(step, loss=float(step)) for step in range(40)]
    (run / "metrics.jsonl").write_text("".join([*rows[:20], "x" * 1000 + "\n", *rows[20:]]))
    whole = RunFolders(folder).read(run, 0)
    assert (len(whole.curves["training_loss"]), whole.damaged, whole.more) == (40, 1, False)
    monkeypatch.setattr("dragoman.server.runs.READ", 100)
    found: list[Point] = []
    place, more = 0, True
    while more:
        piece = RunFolders(folder).read(run, place)
        found += piece.curves["training_loss"]
        place, more = piece.end, piece.more
    assert found == whole.curves["training_loss"]
    assert place == whole.end
    shutil.rmtree(run)


def test_real_run_is_listed_with_its_best_score_and_server(following: Running, folder: Path):
    (run,) = [run for run in following.ask("GET", "/api/v1/runs").json["runs"] if run["name"] == "toy"]
    assert (run["state"], run["step"], run["steps"]) == ("finished", 80, 80)
    assert run["finished"] == "all 80 steps done"
    assert run["checkpoints"] == [40, 80]
    best = json.loads((folder / "toy" / "best" / "state.json").read_text())
    assert (run["metric"], run["best"], run["best_step"]) == ("bleu", best["best_score"], best["best_step"])
    assert run["served"] == [{"step": best["best_step"], "source": "en", "target": "ko"}]
    rows = [json.loads(row) for row in (folder / "toy" / "metrics.jsonl").read_text().splitlines()]
    curves = curves_of(following, "toy")["curves"]
    assert set(curves) == set(CURVES)
    for name, (event, field) in CURVES.items():
        assert curves[name]["values"] == [row[field] for row in rows if row["event"] == event]
    samples = following.ask("GET", "/api/v1/runs/toy/samples").json
    assert (samples["steps"], samples["step"], len(samples["samples"])) == ([40, 80], 80, 3)
    first = following.ask("GET", "/api/v1/runs/toy/samples?step=40").json["samples"]
    for now, before in zip(samples["samples"], first, strict=True):
        assert (now["source"], now["before"]) == (before["source"], before["now"])
        assert before["before"] == ""
    assert following.ask("GET", "/api/v1/runs/toy/samples?step=41").status == 404


def test_film_has_the_attention_of_each_checkpoint(following: Running, folder: Path):
    film = following.ask("POST", "/api/v1/runs/toy/film", {"sentence": 2}).json
    sample = following.ask("GET", "/api/v1/runs/toy/samples").json["samples"][1]
    assert film["steps"] == [40, 80]
    assert [" ".join(film[side][:-1]) for side in ("source", "target")] == [sample["source"], sample["reference"]]
    paths = {step: folder / "toy" / "checkpoints" / f"step-{step:08d}" for step in (40, 80)}
    history = read_history("toy", paths, [(sample["source"], sample["reference"])], [""])
    expected = torch.stack([one.cross_attention for one in history.snapshots])
    found = torch.frombuffer(bytearray(base64.b64decode(film["weights"])), dtype=torch.uint8) / 255
    assert gap(found.view(expected.shape), expected) <= 1 / 510 + 1e-6
    assert (film["layers"], film["heads"]) == tuple(expected.shape[1:3])
    assert (film["layer"], film["head"]) == (history.head.layer, history.head.head or 0)
    assert len(following.service.films) == 1
    assert following.ask("POST", "/api/v1/runs/toy/film", {"sentence": 2}).json == film  # it is kept
    assert len(following.service.films) == 1
    for name, sentence in (("toy", 4), ("halfway", 1)):
        assert following.ask("POST", f"/api/v1/runs/{name}/film", {"sentence": sentence}).status == 400
    assert following.ask("POST", "/api/v1/runs/linked/film", {}).status == 404


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (DragomanError("/runs/toy: damaged"), 404, "this run cannot be read right now; try again"),
        (FileNotFoundError("/runs/toy"), 404, "this run cannot be read right now; try again"),
        (UsageError("the sentence is too long"), 400, "the sentence is too long"),
        (Late("too late"), 503, "too late: send fewer or shorter texts"),
    ],
)
def test_film_that_cannot_be_read_says_so_without_its_place(
    following: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, message: str
):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(runs, "read_film", fail)
    refused = following.ask("POST", "/api/v1/runs/toy/film", {"sentence": 3})
    assert (refused.status, refused.json["error"]["message"]) == (status, message)


def test_run_in_progress_is_shown_with_its_remaining_time(folder: Path):
    run = folder / "started"
    run.mkdir()
    settings = TrainingConfig(max_steps=400, stop_on="loss")
    (run / "config.toml").write_text(to_toml(replace(RunConfig(), training=settings)))
    (run / "metrics.jsonl").write_text(line(100, loss=3.0) + "{")
    standing = RunFolders(folder).standing(run)
    assert (standing.state, standing.step, standing.steps, standing.seconds_left) == ("running", 100, 400, 30.0)
    assert (standing.best, standing.metric) == (None, "loss")
    os.utime(run / "metrics.jsonl", (0, 0))
    assert RunFolders(folder).standing(run).state == "silent"
    (run / "train.log").write_text("epoch 1, step 100\nstopped at step 100; the same command resumes the run\n")
    assert RunFolders(folder).standing(run).state == "stopped"
    (run / "train.log").write_text("stopped at step 100; the same command resumes the run\nresumed at step 100\n")
    assert RunFolders(folder).standing(run).state == "running"
    shutil.rmtree(run)
    # The limits: steps, epochs, minutes; the first that is reached ends the run.
    progress = TrainingProgress(step=250, epoch=2, batch=50)  # 100 batches an epoch
    assert forecast(progress, TrainingConfig(epochs=10), 250, 1.0) == (1000, 0.25)
    assert forecast(progress, TrainingConfig(epochs=10, max_steps=500), 250, 1.0) == (500, 0.5)
    assert forecast(progress, TrainingConfig(epochs=10, minutes=2), 250, 90.0) == (None, 0.75)
    assert forecast(TrainingProgress(), TrainingConfig(), 50, 1.0) == (None, 0.0)


# To whom, and of what.


def test_run_folders_show_nothing_outside_of_them(following: Running, folder: Path):
    names = [run["name"] for run in following.ask("GET", "/api/v1/runs").json["runs"]]
    assert names == ["toy", "halfway"]
    (empty,) = [run for run in following.ask("GET", "/api/v1/runs").json["runs"] if run["name"] == "halfway"]
    assert (empty["step"], empty["best"], empty["checkpoints"]) == (0, None, [])
    assert curves_of(following, "halfway")["curves"] == {}
    assert following.ask("GET", "/api/v1/runs/halfway/samples").json["samples"] == []
    assert following.ask("GET", "/api/v1/runs/halfway/samples?step=40").status == 404
    for name in (
        "linked",
        "no%20run",
        "file",
        "%ff",
        "..",
        "%2e%2e",
        "..%2foutside",
        "%2e%2e%2foutside",
        "toy%00",
        ".",
        "",
    ):
        for what in ("curves", "samples"):
            assert following.ask("GET", f"/api/v1/runs/{name}/{what}").status == 404
    assert curves_of(following, "toy")["curves"]  # the control


def test_runs_need_a_key_and_the_flag(models: Models, folder: Path, server: Running):
    for path in ("/api/v1/runs", "/api/v1/runs/toy/curves", "/api/v1/runs/toy/samples"):
        assert server.ask("GET", path).status == 404
    with running(models, replace(CONFIG, runs=str(folder)), [Key("me", digest("secret"), 0)]) as locked:
        for path in ("/api/v1/runs", "/api/v1/runs/toy/curves", "/api/v1/runs/toy/samples"):
            assert locked.ask("GET", path).status == 401
            assert locked.ask("GET", path, Authorization="Bearer secret").status == 200


def test_server_may_show_runs_before_there_is_a_model(folder: Path):
    config = replace(CONFIG, runs=str(folder))
    assert read_settings(config) == ([], [])
    with pytest.raises(UsageError, match="give a model"):  # the control
        read_settings(CONFIG)
    models = Models([])
    assert "/runs" in describe(config, models, "http://localhost:5000")
    with running(models, config) as started:
        answer = started.ask("GET", "/")
        assert (answer.status, answer.headers["location"]) == (307, "runs")
        assert started.ask("GET", "/runs").status == started.ask("GET", "/health/ready").status == 200
        assert started.ask("GET", "/api/v1/models").json["pairs"] == []
        assert started.translate("A dog.").status == 400
        texts = {"texts": ["A dog."], "text": "A dog.", "source": "en", "target": "ko", "prefix": "", "q": "A dog."}
        for route in ROUTES:
            path = route.path.replace("{name}", "x").replace("{id}", "0" * 32)
            fields = {name: texts[name] for name in getattr(route.request, "__struct_fields__", ()) if name in texts}
            assert started.ask(route.method, path, fields or None).status < 500, path


def test_folder_that_cannot_have_runs_is_refused_at_the_start(folder: Path):
    check_runs(folder)
    for wrong, why in (
        ("nothing", "no such folder"),
        ("file", "no such folder"),
        ("toy", "give the folder that it is in"),
    ):
        with pytest.raises(UsageError, match=why):
            check_runs(folder / wrong)
