"""Numbers are compared by value, however a language writes them, and others may stand in for them."""

import doctest

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.verbatim import StandIn, compare_numbers, numbers, replace_stand_ins, with_stand_ins

SAME = [
    ("It has 47,228 pages, 1.5 MB.", "Es hat 47.228 Seiten, 1,5 MB."),
    ("47228 and 1,234.50", "47\u202f228 und 1.234,50"),
    ("05/13/2026", "13.05.2026"),
    ("on October 15, 1982", "am 15. Oktober 1982"),
    ("on October 15, 1982", "1982년 10월 15일에"),
    ("on 3 May", "am 3.5."),
    ("you may open 20 files, marching on", "20 Dateien"),
    ("at 10:30", "um 10.30 Uhr"),
    ("at 5:07 on 05/13", "um 5.07 am 13.5"),
    ("12,34,567 rupees", "1.234.567 Rupien"),
    ("47228 people, 611,481 more", "47,228명, 61만 1,481명"),
    ("1.5억", "150000000"),
    ("7 and 12", "٧ と１２"),
    ("Open report_83.odt", "report_83.odt 열기"),
    ("three files", "3 Dateien"),
    ("the TLS 1.2 protocol, ISO 19005-2", "das TLS-1.2-Protokoll, ISO-19005-2-konform"),
    ("27–90 or 2.25 - 3", "27 bis 90 oder 2,25 bis 3"),
    ("3–5 May – June 6", "3.–5. Mai – 6. Juni"),
    ("1280x720 and 640×480", "1280 × 720 und 640 x 480"),
    ("three or four files, 05-13-2026", "3-4 Dateien, 13.05.2026"),
    ("−43 and -$5, 26+ files", "-43 und -5 $, über 26 Dateien"),
    ("27-inch, 5–10 mm, 16 MB, 5 min, 3 h", "27 Zoll, 5 bis 10 mm, ein 16-MB-Chip, 5 Minuten, 3 Uhr"),
    ("MP3 and x86", "MP4 und x64"),  # parts of names are no numbers
]
DIFFERENT = [
    ("after 2.25–4.5", "nach 2.25 miteinander 4.5", ["2.25–4.5"], ["2.25", "4.5"]),
    ("1971-1984", "1971-1-1984", ["1971-1984"], ["1971", "1", "1984"]),
    ("call 40 or 55-019", "40-07 oder 55-019", [], ["07"]),
    ("1280x720", "1280", ["1280x720"], ["1280"]),
    ("it is -43", "43", ["-43"], ["43"]),
    ("26+ files", "26 Dateien", ["26+"], ["26"]),
    ("It has 47228 pages.", "Es hat 4728 Seiten.", ["47228"], ["4728"]),
    ("version 3.10", "Version 3.1", ["3.10"], ["3.1"]),
    ("on October 15, 1982", "am 15. Octger 1982", ["October"], []),
    ("on 3 May 2026", "am 3. März 2026", ["May"], ["März"]),
    ("8.11 MB", "811 MB", ["8.11 MB"], ["811 MB"]),
    ("75 kg", "75 kgmentieren", ["75 kg"], ["75"]),
    ("90 km/h and 500 GB", "90 kmh und 500 Sie GB", ["90 km/h", "500 GB"], ["90", "500"]),
    ("agent 007", "Agent 7", ["007"], ["7"]),
    ("3 files", "Dateien", ["3"], []),
    ("files", "45 Dateien", [], ["45"]),
    ("2 of 2", "2 von 3", ["2"], ["3"]),
    ("62% is wrong", "62%2 ist falsch", [], ["2"]),
    ("35 % is wrong", "35도 는 프로그램", ["35 %"], ["35"]),
    ("47228 people", "4만 7,229명", ["47228"], ["4만 7,229"]),
]


@pytest.mark.parametrize(("source", "output"), SAME)
def test_numbers_with_the_same_values_are_the_same(source: str, output: str):
    assert compare_numbers(source, output) == ([], [])


@pytest.mark.parametrize(("source", "output", "lost", "invented"), DIFFERENT)
def test_numbers_with_other_values_are_lost_and_invented(
    source: str, output: str, lost: list[str], invented: list[str]
):
    assert compare_numbers(source, output) == (lost, invented)


def test_number_of_the_prefix_is_not_invented():
    assert compare_numbers("files", "45 Dateien", prefix="45") == ([], [])
    assert compare_numbers("files", "45 Dateien", prefix="46") == ([], ["45"])
    assert compare_numbers("44 files", "45 Dateien", prefix="45") == ([], [])  # it was asked for
    assert compare_numbers("44 files", "46 Dateien", prefix="45") == (["44"], ["46"])


@given(st.integers(13, 10**9), st.integers(13, 10**9))
def test_numbers_are_the_same_only_where_they_are_equal(first: int, second: int):
    grouped = f"{first:,}".replace(",", ".")
    assert compare_numbers(f"a {first} b", f"c {grouped} d") == ([], [])
    assert (compare_numbers(f"a {first} b", f"c {second:,} d") == ([], [])) == (first == second)


def test_stand_ins_are_copied_and_replaced_by_what_they_stand_for():
    text, pairs = with_stand_ins("20 of 47228 files in 8.11 MB, the 33rd", ["47228", "8.11 MB", "33"])
    assert text == "20 of 10 files in 30, the 33rd"
    assert pairs == [StandIn("10", "47228"), StandIn("30", "8.11 MB")]
    assert replace_stand_ins("In 30 sind 20 von 10 Dateien", pairs) == "In 8.11 MB sind 20 von 47228 Dateien"
    assert replace_stand_ins("10 und 10 in 31", pairs) == "47228 und in 31"


def test_worked_examples_of_the_module_are_true():
    result = doctest.testmod(numbers)
    assert (result.failed, result.attempted) == (0, 2)


def test_comparison_takes_linear_time():
    def seconds(length: int) -> float:
        return processor_seconds(lambda: compare_numbers("1,234 5만 6.7 " * length, "1.234 56만 7 " * length))

    assert not grows_too_fast(seconds, 100)


@pytest.mark.parametrize(
    ("source", "output", "lost"),
    [
        ("$900.25 a month", "900.25 im Monat", ["$900.25"]),
        ("$900.25 a month", "900,25 Dollar im Monat", []),
        ("20 % of $5", "20 von 5 $", ["20 %"]),
        ("20 % of $5", "20 Prozent von 5 $", []),
        ("at 10:30", "um 10 Uhr 30", []),
        ("save 20:29", "20 speichern? 29", ["20:29"]),
        ("to 57.43", "zu 57 fest.43", ["57.43"]),
        ("at 10:00", "um 10:0", ["10:00"]),
    ],
)
def test_signs_and_times_belong_to_their_numbers(source: str, output: str, lost: list[str]):
    assert compare_numbers(source, output)[0] == lost
    assert compare_numbers(source, source) == ([], [])
