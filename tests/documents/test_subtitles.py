"""Subtitles as they are found: lines of spaces in cues, times of words, marks of the writing direction."""

import re

import pytest

from dragoman.documents import read_document

VTT, SRT = "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n", "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
MARKS = ["\u202b", "\u202a", "\u200f", "\u200e", "\u2066", "\u2067", "\u2068", "\ufeff", "{\\an8}", "&rlm;"]


def texts(data: str, suffix: str) -> list[str]:
    return read_document(data.encode(), suffix).texts


def filled(data: str, suffix: str, translations: list[str]) -> str:
    return read_document(data.encode(), suffix).fill(translations).decode()


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0 ", "  "])
def test_line_of_spaces_belongs_to_a_cue_of_webvtt(blank: str):
    cue = VTT.format(f"{blank}\nPlease take\n{blank}\na seat\n{blank}")
    assert texts(cue, ".vtt") == ["Please take a seat"]
    assert filled(cue, ".vtt", ["Bitte setzen"]) == VTT.format(f"{blank}\nBitte\n{blank}\nsetzen\n{blank}")
    assert texts(VTT.format("Please take\n\na seat"), ".vtt") == ["Please take"]  # the control


@pytest.mark.parametrize("between", ["\n", " \n", "\n2\n", " \n2\n", " \nintro\n"])
def test_cues_of_webvtt_are_told_apart_by_their_times(between: str):
    cues = VTT.format(f"One\n{between}00:03.000 --> 00:04.000\nTwo")
    assert texts(cues, ".vtt") == ["One", "Two"]
    assert filled(cues, ".vtt", ["Eins", "Zwei"]) == cues.replace("One", "Eins").replace("Two", "Zwei")


def test_times_of_words_stay_in_ascending_order():
    cue = VTT.format("please<00:01.040><c> take</c><00:01.920><c> a</c><00:02.240><c> seat</c>")
    (text,) = texts(cue, ".vtt")
    first, second, third = re.findall(r"<x [^>]*>", text)
    moved = f"{third}<c>Sitz</c> {first}<c>bitte</c> {second}<c>nehmen</c>"
    assert filled(cue, ".vtt", [moved]) == VTT.format(
        "<00:01.040><c>Sitz</c> <00:01.920><c>bitte</c> <00:02.240><c>nehmen</c>"
    )
    tags = VTT.format("please <b.a>take</b> <b.c>a</b> seat")  # the control: other tags go with their words
    assert "<b.c>a</b> <b.a>b</b>" in filled(tags, ".vtt", ["<b.c>a</b> <b.a>b</b> c"])


@pytest.mark.parametrize("mark", MARKS)
def test_mark_before_a_dash_stays_and_speakers_are_apart(mark: str):
    cue = f"{mark}- Is it here?\u202c\n{mark}<i>- It is.</i>\u202c"
    assert texts(SRT.format(cue), ".srt") == ["- Is it here?", "- It is."]
    assert filled(SRT.format(cue), ".srt", ["- Hier?", "- Ja."]) == SRT.format(
        cue.replace("Is it here?", "Hier?").replace("It is.", "Ja.")
    )
    assert texts(SRT.format(f"{mark}Is it\nhere?"), ".srt") == ["Is it here?"]  # the control


@pytest.mark.parametrize(
    ("frame", "suffix", "mark"), [(SRT, ".srt", ">>"), (VTT, ".vtt", ">>"), (VTT, ".vtt", "&gt;&gt;&gt;")]
)
def test_chevrons_begin_another_speaker_and_are_no_words(frame: str, suffix: str, mark: str):
    cue = frame.format(f"{mark} Is it\nhere?\n<i>{mark} It is.</i>")
    assert texts(cue, suffix) == ["Is it here?", "It is."]
    assert filled(cue, suffix, ["Hier?", "Ja."]) == frame.format(f"{mark} Hier?\n<i>{mark} Ja.</i>")
    assert texts(frame.format("a > b\nb > a"), suffix) == ["a > b b > a"]  # the control


def test_marks_at_line_ends_stay_at_the_line_ends():
    cue = "\u202bone two\u202c\n\u202bthree four\u202c"
    assert texts(SRT.format(cue), ".srt") == ["one two three four"]
    assert filled(SRT.format(cue), ".srt", ["a b c d"]) == SRT.format("\u202ba b\u202c\n\u202bc d\u202c")
