"""One golden file for each view: whatever changes in a drawing is seen there. The numbers are made by hand.

That a view has the numbers of the model is said elsewhere: in the tests of inspections, stages, neighbours, positions.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import tiny_transformer
from golden_files import check_golden, describe, describe_canvas
from handmade import INSPECTION, OCCLUSION, POSITIONS, SIDES, history, long_tree, numbers, stages, translator
from matplotlib.figure import Figure as Canvas

from dragoman.inspection import embeddings, views
from dragoman.inspection.figure import map_figure, signed_scale
from dragoman.inspection.history_page import history_page
from dragoman.inspection.plots import tables
from dragoman.inspection.plots.architecture import architecture_figure
from dragoman.inspection.plots.history import history_figure, select_snapshots
from dragoman.inspection.plots.maps import map_grid
from dragoman.inspection.plots.positions import position_figure
from dragoman.inspection.plots.stages import stage_figure
from dragoman.inspection.plots.tables import number_table, probability_table
from dragoman.inspection.plots.training import Against, Metrics, draw_curves
from dragoman.inspection.plots.trees import shown_steps, tree_figure
from dragoman.inspection.views import View, head_table, view_figure
from dragoman.model import build, outline
from dragoman.model.positions import Relative
from dragoman.version import __version__

# The arguments of `view_figure` for each drawing of a view, after the view itself.
VARIANTS: dict[View, list[dict[str, Any]]] = {
    "map": [
        {},
        {"subwords": True, "layer": 1, "head": 2},
        {"layer": 1},
        {"head": 1},
        {"aggregate": "mean"},
        {"aggregate": "max"},
        {"layer": 1, "aggregate": "max"},
        {"aggregate": "rollout"},
        {"kind": "encoder"},
        {"kind": "decoder", "head": 2},
    ],
    "grid": [{}, {"subwords": True, "kind": "decoder"}, {"kind": "encoder"}],
    "tree": [{}],
    "heads": [{}, {"kind": "encoder"}, {"kind": "decoder"}],
    "probabilities": [{}],
    "occlusion": [{}, {"subwords": True}],
    "masks": [{}],
    "stages": [{"kind": "decoder"}, {"layer": 1, "head": 2}],
    "lines": [{}, {"layer": 1, "head": 2, "subwords": True}, {"kind": "decoder"}],
    "words": [{}],
}


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what views measure by numbers made by hand."""
    monkeypatch.setattr(views, "occlusion", lambda model, inspection, subwords: OCCLUSION)
    monkeypatch.setattr(views, "neighbourhoods", lambda *_: SIDES)
    monkeypatch.setattr(
        views, "head_stages", lambda _, inspection, kind, layer, head: stages(kind, layer or 2, head, divisor=2)
    )
    monkeypatch.setattr(embeddings, "principal_components", lambda points: points)  # whose signs are by chance


def test_views_have_a_golden_file_each():
    others = {"positions", "memory"}  # drawn further down, and in test_origins.py
    assert {*VARIANTS, *others} == {*get_args(View)}


@pytest.mark.parametrize("view", VARIANTS)
def test_view_is_drawn_as_its_golden_file_says(view: View):
    check_golden(view, {json.dumps(variant): describe(view_figure(translator(), INSPECTION, view, **variant))
                        for variant in VARIANTS[view]})  # fmt: skip


def test_positions_are_drawn_as_their_golden_file_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Relative, "reach", 3)
    shown = {}
    for scheme in ("sinusoidal", "learned", "rotary", "relative"):
        model = build(tiny_transformer(d_model=8, positions=scheme, max_length=8), 30)
        for parameter in model.encoder_positions.parameters():
            parameter.data = numbers(*parameter.shape) - 8
        shown[scheme] = describe(position_figure(model, 9, "about"))
    check_golden("positions", shown)


def test_captions_name_no_mean_of_one_layer_or_head():
    alone = dataclasses.replace(
        INSPECTION, **{kind: INSPECTION.maps(kind)[:1, :1] for kind in ("encoder", "decoder", "cross")}
    )
    variants: list[dict[str, Any]] = [*VARIANTS["map"][4:8:2], {}, {"layer": 1}, {"aggregate": "max"}]
    shown = {f"map {variant}": view_figure(translator(), alone, "map", **variant).caption for variant in variants}
    check_golden("captions", shown | {"lines": view_figure(translator(), alone, "lines").caption})


def test_long_search_is_drawn_with_its_beginning_and_end():
    trees = {f"{steps} steps, the path of {end}": long_tree(steps, end) for steps, end in
             [(13, 9), (14, 14), (15, 9), (30, 9), (30, 15), (30, 30)]}  # fmt: skip
    drawn = {name: describe(tree_figure(tree, "about")) for name, tree in trees.items()}
    for shown in drawn.values():  # the rest is in the golden file of the tree
        (panel,) = shown["panels"]
        shown["panels"] = [{"x": panel["x"], "limits": panel["limits"], "texts": [text[:3] for text in panel["texts"]],
                            "lines": [line[-2:] for line in panel["lines"]]}]  # fmt: skip
    wide = describe(tree_figure(long_tree(3, 3, wide=12), "about"))
    check_golden("long-tree", {"columns": {steps: [*shown_steps(steps).items()] for steps in (1, 14, 15, 40)},
                               **drawn, "12 in a row": wide})  # fmt: skip


def test_large_figures_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    monkeypatch.setattr(tables, "MAX_POSITIONS", 2)
    rows = [[1.0, 5.0], [3.0, float("nan")], [2.0, 9.0]]
    many = numbers(15, 2) / 16
    check_golden("large", {
        "table": describe(number_table(["a", "b", "c"], ["x", "y"], rows, "title", "caption")),
        "probabilities": describe(probability_table(POSITIONS, 50, "caption")),
        "sample": head_table([INSPECTION, INSPECTION], "cross", "about").caption,
        "map without numbers": describe(map_figure(many, ["row"] * 15, ["a" * 30, "b"], "title", "caption")),
        "map with signs": describe(map_figure(numbers(2, 3) / 8 - 1, "ab", "cde", "", "", signed_scale("x", 1))),
        "grid too small to read": describe(map_grid(many.expand(1, 9, 15, 2), "o" * 15, "xy", "title", "caption")),
    })  # fmt: skip


def test_stages_say_what_their_model_leaves_out_or_adds():
    shown = {"not scaled": stages("cross", divisor=1), "relative": stages(added=0.5), "zeros": stages("cross")}
    shown["zeros"].product.zero_()
    check_golden("stages-titles", {
        name: [(panel["title"], panel["images"]) for panel in describe(stage_figure(stage, "about"))["panels"]]
        for name, stage in shown.items()
    })  # fmt: skip


def test_history_is_drawn_as_its_golden_file_says():
    many = describe(history_figure(history(57, 1)))
    check_golden(
        "history",
        {
            "2 snapshots": describe(history_figure(history())),
            "57": [many["size"], *([panel["title"], panel["x"], panel["texts"]] for panel in many["panels"])],
            "of 11": [snapshot.step for snapshot in select_snapshots(history(11).snapshots)],
        },
    )


def test_history_page_is_written_as_its_golden_file_says():
    page = history_page(history()).replace(__version__, "VERSION")
    for element in ("style", "script"):  # our own files, and texts that are there in both languages
        page = re.sub(rf"<{element}( [^>]*\"strings\"| media[^>]*)?>.*?</{element}>", "", page, flags=re.DOTALL)
    check_golden("history-page", re.sub(r'content="default-src .*?"', "", page).splitlines())


def metrics(steps: int, bleu: float = 20.0) -> Metrics:
    """Return what a run recorded at so many steps, of which every second one is a validation."""
    rows: dict[tuple[str, int], dict[str, float]] = {}
    for step in range(50, 50 * steps + 1, 50):
        row = {"step": step, "seconds": 20.0 * step, "target_tokens": 1000 * step, "loss": 5 - step / 500}
        rows["step", step] = row | {"rate": 1 / step, "tokens_per_second": 100.0}
        if step % 100 == 0:
            rows["validation", step] = row | {"bleu": bleu + step / 100, "chrf": 40.0}
    return Metrics(rows, [])


def test_curves_are_drawn_as_their_golden_file_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    drawn: list[Any] = []
    monkeypatch.setattr(Canvas, "savefig", lambda canvas, path, **_: drawn.append(describe_canvas(canvas)))
    runs = {"first": metrics(4), "second $x$": metrics(20, bleu=10.0)}
    validated, unvalidated = {"run": metrics(4)}, {"run": metrics(1)}
    cases: list[tuple[Any, Against]] = [(validated, "steps"), (unvalidated, "steps"), (runs, "time"), (runs, "tokens")]
    for shown, against in cases:
        draw_curves(shown, tmp_path / "curves.svg", against)
    for shown in drawn[2:]:  # the same curves against other axes
        for panel in shown["panels"][1:]:
            panel["lines"] = [[line[-2][-1], line[-1][-1]] for line in panel["lines"]]
    check_golden(
        "curves", {f"{len(runs)}, {against}": shown for (runs, against), shown in zip(cases, drawn, strict=True)}
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_architecture_is_drawn_as_its_golden_file_says(positions: str):
    model = outline(tiny_transformer(positions=positions), 500)
    check_golden(f"architecture-{positions}", describe(architecture_figure(model, "mine")))
