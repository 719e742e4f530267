"""The page that follows training runs, in a real browser: it goes on while a run writes, for everybody."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import expect
from serving import Running, running_with_runs, until
from visiting import BLOCKED, HOSTILE, Visit

from dragoman.server.models import Models

NAME = HOSTILE[2]  # which a folder may have: no slash


def line(step: int, event: str = "step", **values: Any) -> str:
    return json.dumps({"event": event, "step": step, "seconds": 36.0 * step, **values}) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """A real run, and one with a name that tries to run code, and texts that do."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(trained, folder / "toy", symlinks=True)
    hostile = folder / NAME
    (hostile / "samples").mkdir(parents=True)
    losses = [line(step, loss=9 - step / 50, rate=step / 1e6, gradient_norm=1.0) for step in range(1, 101)]
    (hostile / "metrics.jsonl").write_text("".join(losses) + line(100, "validation", loss=8.0, bleu=12.5, chrf=30.0))
    texts = {"source": HOSTILE[1], "reference": HOSTILE[3], "now": f"a new {HOSTILE[0]}", "before": "an old one"}
    sample = "".join(f"  {name:10} {text}\n" for name, text in texts.items())
    (hostile / "samples" / "step-00000100.txt").write_text(sample)
    return folder


@pytest.fixture(scope="module")
def following(models: Models, folder: Path) -> Iterator[Running]:
    with running_with_runs(models, folder) as started:
        yield started


def open_runs(visit: Any, at: Running, fragment: str = "", **options: Any) -> Visit:
    page = visit(None, at=at, **options)
    page.tab.goto(f"{page.url}/runs{fragment}")
    page.tab.locator("#runs tbody tr").nth(1).wait_for()
    page.tab.locator("#samples li").first.wait_for()
    return page


def figure(page: Visit, title: str) -> Any:
    return page.tab.locator("#curves figure", has=page.tab.get_by_role("heading", name=title))


def test_runs_page_follows_a_run_that_writes_while_it_is_open(visit: Any, following: Running, folder: Path):
    page = open_runs(visit, following)
    below = figure(page, "Dev BLEU").locator("figcaption")
    first, _, toy = below.inner_text().partition("; ")
    assert first == f"{NAME}: 12.5"
    row = page.tab.locator("#runs tr", has_text=NAME)
    assert row.locator("td").all_inner_texts()[1:3] == ["training", "100"]
    added = line(200, loss=7.0) + line(200, "validation", loss=7.0, bleu=17.25, chrf=40.0)
    with (folder / NAME / "metrics.jsonl").open("a") as file:
        file.write(added[:-9])
        file.flush()
        with page.tab.expect_response(lambda answer: "toy/curves" in answer.url):  # asked for every 3 seconds
            pass
        until(lambda: page.tab.wait_for_timeout(20) or row.locator("td").nth(2).inner_text() == "200")
        assert "12.5" in below.inner_text()  # half a line is not there yet
        file.write(added[-9:])
    page.tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as on coming back to the tab
    until(lambda: page.tab.wait_for_timeout(20) or below.inner_text() == f"{NAME}: 17.25; {toy}")
    assert "19" not in page.tab.evaluate("document.querySelector('#announcement').textContent")  # it does not chatter


def test_curves_are_drawn_as_the_reader_asks_and_saved(visit: Any, following: Running):
    page = open_runs(visit, following, "#run=toy")
    tab = page.tab
    expect(tab.locator("#runs input:checked")).to_have_count(1)
    loss = figure(page, "Training loss")
    points = following.ask("GET", "/api/v1/runs/toy/curves").json["curves"]["training_loss"]
    loss.locator("summary").click()
    cells = loss.locator("table").evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert cells[0] == ["steps", "toy"]
    assert [[int(step), float(value)] for step, value in cells[1:]] == [
        [step, pytest.approx(value, rel=1e-3)] for step, value in zip(points["steps"], points["values"], strict=True)
    ]
    plain = loss.locator("svg path").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    for control, choice in (("by", "hours"), ("smooth", "5")):
        tab.locator(f"#{control}").select_option(choice)
    tab.locator("#log").check()
    assert tab.url.endswith("#run=toy&by=hours&smooth=5&log=1")
    assert loss.locator("figcaption").inner_text().endswith(", means of 5 points")
    assert loss.locator("svg path").evaluate_all("paths => paths.map(path => path.getAttribute('d'))") != plain
    saved = {}
    for form in ("SVG", "JSON", "HTML"):
        with tab.expect_download() as download:
            loss.get_by_role("button", name=form).click()
        saved[form] = Path(download.value.path()).read_text(encoding="utf-8")
    data = json.loads(saved["JSON"])
    assert data["lines"][0]["measured"] == points["values"]
    means = [sum(points["values"][: n + 1]) / (n + 1) for n in range(len(points["values"]))]
    assert data["lines"][0]["drawn"] == pytest.approx(means[:5])
    assert data["lines"][0]["hours"] == pytest.approx([seconds / 3600 for seconds in points["seconds"]])
    svg = ElementTree.fromstring(saved["SVG"])
    assert "means of 5 points" in "".join(svg.itertext())
    assert "<script" not in saved["HTML"]
    tab.locator("#runs input").first.uncheck()
    if tab.locator("#runs input:checked").count():
        tab.locator("#runs input:checked").uncheck()
    assert loss.locator("figcaption").inner_text().startswith("no run is ticked")
    expect(tab.locator("#validation option:checked")).to_have_text("no run is ticked")
    tab.reload()
    tab.locator("#runs input").first.wait_for()
    expect(tab.locator("#runs input:checked")).to_have_count(0)
    link = tab.locator("#runs a")
    assert link.inner_text() == "translate with step 80"
    link.click()
    tab.wait_for_function("() => document.querySelector('#target-language')?.value")
    assert tab.url == f"{page.url}/#source=en&target=ko"
    with tab.context.expect_page() as opened:  # what is typed stays
        tab.get_by_role("link", name="Training runs").click()
    opened.value.locator("#runs tbody tr").first.wait_for()


def test_logarithmic_axis_that_spans_little_has_round_numbers(visit: Any, following: Running):
    page = open_runs(visit, following, f"#run={quote(NAME)}&log=1")
    values = figure(page, "Training loss").locator("svg text[text-anchor=end]").all_text_contents()[:-1]
    assert values == ["7", "8", "9"]  # the loss falls from 9 to 7


def test_film_shows_what_the_server_computed(visit: Any, following: Running):
    page = open_runs(visit, following, "#run=toy")
    tab = page.tab
    tab.locator("#samples button").nth(1).click()
    tab.locator("#film-map canvas.map").wait_for()
    film = following.ask("POST", "/api/v1/runs/toy/film", {"sentence": 2}).json
    sides = [film[side] for side in ("target", "source")]
    weights = np.frombuffer(base64.b64decode(film["weights"]), np.uint8) / 255
    weights = weights.reshape(len(film["steps"]), film["layers"], film["heads"], *map(len, sides))
    tab.locator("#film-head").select_option("2")
    tab.locator("#moment").fill("0")
    assert tab.locator("#moment-shown").inner_text() == "step 40"
    with tab.expect_download() as download:
        tab.locator("#film").get_by_role("button", name="JSON").click()
    data = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert [data["rows"], data["columns"]] == sides
    assert np.array(data["values"]) == pytest.approx(weights[0, 0, 1], abs=1e-4)
    tab.locator("#play").click()
    until(lambda: tab.wait_for_timeout(20) or tab.locator("#moment-shown").inner_text() == "step 80")
    assert tab.locator("#play").get_attribute("aria-pressed") == "false"


def test_names_and_texts_of_strangers_stay_texts(visit: Any, following: Running):
    page = open_runs(visit, following)
    page.tab.locator("#sampled").select_option(NAME)
    page.tab.locator("#samples dd", has_text="an old one").wait_for()
    texts = page.tab.locator("#samples dd").all_text_contents()
    assert texts == [HOSTILE[1], HOSTILE[3], "an old one", f"a new {HOSTILE[0]}"]
    assert page.tab.locator("#samples del").all_text_contents() == ["an", "old", "one"]
    for summary in page.tab.locator("#curves summary").all():
        summary.click()
    expect(page.tab.locator("#curves th", has_text=NAME)).to_have_count(7)
    assert page.tab.locator("img, iframe, svg svg, svg script, base, form:not(#sign-in)").count() == 0
    assert page.tab.locator("script").count() == 3


@pytest.mark.parametrize(
    ("dark", "width", "language"), [pytest.param(False, 1100, "en-US", marks=pytest.mark.slow), (True, 320, "ko-KR")]
)
def test_axe_finds_nothing_in_the_runs_page(visit: Any, following: Running, dark: bool, width: int, language: str):
    page = open_runs(visit, following, "#run=toy", dark=dark, width=width, language=language)
    page.tab.locator("#samples button").first.click()
    page.tab.locator("#film-map canvas.map").wait_for()
    for summary in page.tab.locator("#curves summary").all():
        summary.click()
    assert page.problems() == []
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert not (language == "ko-KR" and page.tab.locator("[data-t]", has_text="Curves").count())


def test_runs_page_works_where_site_data_is_blocked(visit: Any, following: Running):
    page = visit(None, at=following)
    page.tab.add_init_script(BLOCKED)
    page.tab.goto(f"{page.url}/runs")
    page.tab.locator("#samples li").first.wait_for()
    page.tab.get_by_role("button", name="Settings").click()
    page.tab.get_by_role("button", name="한국어").click()
    expect(page.tab.locator("#runs-title")).to_have_text("학습 과정")


def test_runs_page_is_not_there_without_runs(visit: Any, server: Running):
    assert server.ask("GET", "/runs").status == 404
    assert visit().tab.get_by_role("link", name="Training runs").count() == 0
