"""The lab in Korean: the catalogue is complete, its messages say the same, and a text is understood in one way only."""

import csv
import re
from pathlib import Path

import pytest
from korean import english
from lab_findings import experiment
from test_lab_claims import cases

from dragoman import demo, inspection
from dragoman.inspection.figure import pyplot
from dragoman.text.speech import PLACE, entries_for, pattern, read_catalogue
from dragoman_lab import CATALOGUE, COMPARISONS, EXPERIMENTS, SECTIONS, catalogue_context, comparisons, speaker
from dragoman_lab.command import OWN_PAIRS
from dragoman_lab.drawing import Panel, draw_bars, lines
from dragoman_lab.experiment import ALTERNATIVES, Experiment, Figure, Findings, Table
from dragoman_lab.report import say_words

NAMES = [*EXPERIMENTS, *COMPARISONS]
REPORT = Path(comparisons.__file__).parent / "report.html"


def wrong(english: str, korean: str) -> list[str]:
    """Return what a message and its translation do not have in common."""
    places, theirs = PLACE.findall(english), PLACE.findall(korean)
    return [
        *(["order"] if places != [str(n) for n in range(1, len(places) + 1)] else []),
        *(["places"] if set(places) != set(theirs) else []),
        *(["alternatives"] if bool(ALTERNATIVES.search(english)) != bool(ALTERNATIVES.search(korean)) else []),
        *(["full stop"] if english.endswith(".") != korean.endswith(".") else []),
        *(["empty"] if not korean.strip() else []),
    ]


@pytest.mark.parametrize(
    "catalogue", [CATALOGUE, inspection.CATALOGUE, demo.CATALOGUE], ids=lambda path: path.parent.name
)
def test_message_and_its_translation_have_the_same_places_and_alternatives(catalogue: Path):
    entries = read_catalogue(catalogue)
    assert [(entry.msgid, faults) for entry in entries if (faults := wrong(entry.msgid, entry.msgstr))] == []
    assert len({(entry.msgctxt, entry.msgid) for entry in entries}) == len(entries) > 20


@pytest.mark.parametrize(
    ("english", "korean", "fault"),
    [
        ("{1} of {2}", "{2}", "places"),
        ("{2} of {1}", "{1} {2}", "order"),
        ("It [is|is not].", "그래요.", "alternatives"),
        ("It is.", "그래요", "full stop"),
        ("It is", " ", "empty"),
    ],
)
def test_faulty_message_would_be_found(english: str, korean: str, fault: str):
    assert wrong(english, korean) == [fault]


def about(name: str) -> Experiment:
    return comparisons.COMPARISONS[name].on(None) if name in COMPARISONS else experiment(name)


def readings(claim: str, name: str) -> set[tuple[str, ...]]:
    """Return the values that the first message which fits takes from a claim: the shortest and the longest."""
    for entry in entries_for(CATALOGUE, catalogue_context(name)):
        if match := pattern(entry.msgid).fullmatch(claim):
            longest = re.fullmatch(pattern(entry.msgid).pattern.replace("(.*?)", "(.*)"), claim, re.DOTALL)
            assert longest
            return {match.groups(), longest.groups()}
    return set()


@pytest.mark.parametrize("name", NAMES)
def test_titles_theses_and_all_verdicts_are_in_korean(name: str):
    """And each claim is understood in one way only."""
    say, outcomes = speaker("ko", name), cases(name)
    one = about(name).said(say)
    assert english([one.title, one.source, one.thesis]) == []
    for claims in outcomes:
        both = [Findings("", dict.fromkeys(claims, holds)).said(say).verdicts for holds in (True, False)]
        sentences = [verdict.sentence for verdicts in both for verdict in verdicts]
        assert english(sentences) == []
        assert all(re.search("[가-힣].*\\.$", sentence) for sentence in sentences)
        assert english(claims)  # the control: before they are said in Korean
        assert [claim for claim in claims if len(readings(claim, name)) != 1] == []


def test_ambiguous_readings_would_be_found():
    assert readings("2.4 and 2.5 and 2.6", "norms") == {("2.4", "2.5 and 2.6"), ("2.4 and 2.5", "2.6")}


def test_words_of_the_report_and_of_the_list_are_in_korean():
    said = re.findall(r'say\("([^"]+)"', REPORT.read_text(encoding="utf-8"))
    assert len(said) > 20
    texts = [re.sub("%.3g %%", "25 %", text).replace("%s", "9") for text in said if "experiment%s" not in text]
    texts += [*SECTIONS, OWN_PAIRS, *(EXPERIMENTS | COMPARISONS).values(), "1 of 2 claims hold", "failed", "report"]
    texts += ["3 s for 1 experiment", "3 min 20 s for 2 experiments", "2 h 05 min", "holds:", "does not hold:"]
    assert english(re.sub(r"dragoman|--\w+|'[^']*'", "", text) for text in map(speaker("ko"), texts)) == []
    assert english(["3 moons for 1 experiment"])


def test_values_are_said_in_korean_with_the_particles_that_fit():
    say = speaker("ko", "recall")
    claim = "Direct access to the distant word [is what was missing|does not help all of them]: over 30 words, "
    claim += "attention over the encoder's states adds +88% (plain RNN), +3% (LSTM)."
    assert "이만큼 달라져요: +88% (기본 RNN), +3% (LSTM)." in say(claim)
    own = "GELU(1) is {}, ReLU(1) is 1; GELU [is|is not] x times the normal distribution function, to within {}."
    say = speaker("ko", "feed-forward")
    assert "(차이는 최대 8e-08)" in say(own.format("0.8413", "8e-08"))
    setting = "100 sentences of random words (10 with vectors of 512 numbers). Vectors are normally distributed, and "
    setting += "matrices too, with a standard deviation of 1/sqrt(d); first seed {}."
    say = speaker("ko", "self-focus")
    assert [say(setting.format(seed)).split()[-1] for seed in (1, 2)] == ["1이에요.", "2예요."]


def test_unknown_text_and_english_stay_as_they_are():
    text = "The moon [is|is not] a cheese."
    assert speaker("ko", "recall")(text) == speaker("en", "recall")(text) == text
    assert speaker("en")("yes") == "yes"
    assert speaker("ko")("yes") == "예"


def test_words_of_a_figure_are_in_korean():
    """Those of an axis, too, which writes its labels anew whenever it is drawn; numbers stay."""

    def draw(figure) -> None:
        lines(Panel({"plain RNN": ([1, 10], [3, 4]), "LSTM": ([1, 10], [5, 6])}, "step", "loss", "none", log="x"))(
            figure
        )

    def draw_groups(figure) -> None:
        draw_bars(figure.subplots(), ["plain RNN", "LSTM"], {"mean": [1.0, 2.0]})

    words = []
    for drawing in (draw, draw_groups):
        drawn = pyplot().figure()
        drawing(drawn)
        say_words(drawn, speaker("ko"))
        drawn.canvas.draw()
        words.append([text.get_text() for text in drawn.findobj(lambda artist: hasattr(artist, "get_text"))])
        pyplot().close(drawn)
    assert {"기본 RNN", "LSTM", "단계", "손실", "없음"} <= set(words[0])
    assert any("10^{1}" in word for word in words[0])
    assert {"기본 RNN", "LSTM", "평균"} <= set(words[1])
    assert english(words[0] + words[1]) == []


def test_run_in_korean_has_korean_verdicts_and_tables_in_english(dragoman):
    code, out, err = dragoman("lab", "table-3", "--quick", "--language", "ko")
    assert (code, out) == (0, "table-3: 주장 3개 가운데 3개가 맞아요\n")
    assert "1/1 table-3: 표 3의 변형들" in err
    page = Path("lab/report.html").read_text(encoding="utf-8")
    assert '<html lang="ko">' in page
    assert page.count("✓ 맞아요:") == 3
    assert "<code>dragoman lab table-3 --quick --seeds 1 --language ko</code>" in page
    names = r"<style>.*?</style>|<code>.*?</code>|<[^>]*>|(figures|tables)/[\w.-]+|\.png|dragoman|table-3"
    texts = re.sub(names, " ", page, flags=re.DOTALL).splitlines()
    assert english(text for text in texts if "torch" not in text) == []  # but for the name of the processor
    with Path("lab/tables/table-3-1-table-3.csv").open(encoding="utf-8") as file:
        assert next(csv.reader(file))[:3] == ["row", "change", "layers"]
    assert dragoman("lab", "table-3", "--language", "fr")[0] == 2


def test_findings_are_said_without_a_change_of_numbers():
    table = Table("model | distance | share", [("plain RNN", 3, 0.25), ("LSTM", 30, 0.5)])
    found = Findings("seed 1", {"yes": True}, {"Time": table}, {"f": Figure("Contents", lambda figure: None)})
    said = found.said(speaker("ko"))
    assert (said.setting, said.claims, list(said.tables)) == ("시드 1", {"예": True}, ["시간"])
    assert said.tables["시간"].columns == ["모델", "거리", "share"]
    assert [list(row) for row in said.tables["시간"].rows] == [["기본 RNN", 3, 0.25], ["LSTM", 30, 0.5]]
    assert said.figures["f"].caption == "차례"
