"""Faults of outputs: nonsense is named, and good translations have none."""

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.faults import Fault, find_faults
from dragoman.text.scripts import scripts_of

GOOD = [
    ("The train leaves at half past nine.", "Der Zug fährt um halb zehn ab."),
    ("I do not know where she lives.", "Ich weiß nicht, wo sie wohnt."), ("Very, very good!", "Sehr, sehr gut!"),
    ("No, no, no, not that one!", "Nein, nein, nein, nicht das!"), ("Cancel", "Abbrechen"), ("Two", "2"),
    ("Ha ha ha ha ha ha ha, that was funny.", "Hahahahahahaha, das war lustig."), ("Undo", "Rückgängig machen"),
    ("Open the file menu.", "Öffnen Sie das Menü „Datei“."), ("Nooooooooo!", "Neiiiiiiiin!"),
    ("Berlin, Paris, Madrid and Rome", "Berlin, Paris, Madrid und Rom"), ("Speed limit", "Geschwindigkeitsbegrenzung"),
    ("a.out: file format elf64-x86-64", "a.out: Dateiformat elf64-x86-64"), ("1,000,000,000,000", "1.000.000.000.000"),
    (f"Chapter 1 {'.' * 42} 7", f"Kapitel 1 {'.' * 42} 7"), ("That is 5 µm or 3 Ω.", "Das sind 5 µm oder 3 Ω."),
    ("Chapter 8 of 9 . . . . . 10", "Kapitel VIII von IX . . . . . 10"), ("1 1 1 1 1 1", "1 1 1 1 1 1"),
    ("Nooo!", "¡Nooooo!"),
    ("Mississippi and Antananarivo", "Misisipi y Antananarivo"), ("LOL", "jajaja"), ("Ha, ha!", "¡Jajajajaja!"),
    ("blah, blah, blah", "blablabla"), ("하하하", "hahahaha"), ("가슴이 두근두근해요.", "My heart goes thump."),
    ("Let it be, let it be, let it be.", "Lass es sein, lass es sein, lass es sein."), ("확인", "Confirm"),
    ("The patch was applied.", "El parche se aplicó."), ("Where is the station?", "Где находится вокзал?"),
    ("In the beginning God created the heavens and the earth.", "En el principio creó Dios los cielos y la tierra."),
    ("The train leaves at half past nine.", "기차는 아홉 시 반에 떠납니다."), ("빨리빨리 와!", "Come quickly!"),
    ("Please close the door behind you.", "들어오신 뒤 문을 닫아 주세요."),
    ("ㅋㅋㅋㅋㅋㅋㅋㅋ 진짜?", "Hahahaha, really?"),
    ("하하하하하하하하하하", "Ha ha ha ha ha ha ha ha ha ha"),
    ("파일을 찾을 수 없습니다.", "The file could not be found."),
    ("The weather is fine today, so let us go for a walk.", "今天天气很好，我们去散步吧。"),
    ("我们明天早上九点在火车站见面。", "We are meeting at the railway station at nine tomorrow morning."),
    ("The weather is fine today, so let us go for a walk.", "今日は天気がいいので、散歩に行きましょう。"),
    ("すみません、駅はどこですか。", "Excuse me, where is the station?"), ("Where is the station?", "أين تقع المحطة؟"),
    ("Where is the station, please?", "สถานีอยู่ที่ไหนคะ"),
    ("He lives in 서울특별시 now.", "Er wohnt jetzt in 서울특별시."),
    *((text, text) for text in (
        "Dr. Anna Maria Schmidt", "git commit --amend --no-edit", "/usr/share/doc/readme.txt", "LibreOffice Writer",
        "Restaurant", "192.168.0.1:8080", "-" * 50, "0 0 0 0 0 0 0 0 0 0 0 0",
    )),
]  # fmt: skip
ODD = {
    "!!!": ["!!!", "！！！", "!"], "???": ["???", "?"], "...": ["...", "…", "……"], "😀": ["😀", ":)"], "": [""],
    "ok": ["ok", "OK", "Ok.", "확인", "In Ordnung", "好的", "d'accord"], "-": ["-", "–", "—"], "1": ["1", "1.", "eins"],
    "A": ["A", "a", "Ein", "Eine", "에이", "一个"], "I": ["Ich", "나는"], "Hi": ["Hallo", "안녕하세요", "您好！"],
    "%": ["%", "Prozent"], " ": ["", " "], "(c)": ["©", "(c)"], "ha" * 300: ["ha" * 300, "ha" * 200, "하" * 300],
    **{text: [text] for text in ("👨‍👩‍👧‍👦", "ab", "\u00a0\u200b", "a b c d e f g", "北京大学", "x" * 50, "\ud800")},
}  # fmt: skip
LONG = "The committee met on Tuesday to talk about the new bridge over the river."
BAD: list[tuple[Fault, str, str]] = [
    ("empty", LONG, ""), ("empty", LONG, " \u00a0 "), ("empty", LONG, "."), ("empty", "ok", "!"), ("empty", "😀", ""),
    ("loop", LONG, "Der Ausschuss " + "der Brücke " * 8),
    ("loop", LONG, "Der Ausschuss der der der der der der der der."),
    ("loop", LONG, "Der neue, neue, neue, neue, neue, neue, neue Ausschuss"),
    ("loop", LONG, "Am Dienstag über die Brücke, und " * 3), ("loop", LONG, "위원회는 화요일에 만났다. " * 3),
    ("loop", LONG, "委员会的的的的的的的的的的的的"), ("loop", LONG, "Aaaaaaaaaaaaaaaaaaaaaaaah"),
    ("loop", LONG, "Der Ausschuss" + "." * 60), ("loop", "ha ha ha", "ha" * 200),
    ("loop", "Very, very good.", "sehr " * 30), ("loop", "The sea", "lalalalala"),
    ("loop", LONG, "Confesesesesas la asamblea"), ("loop", "Car", "Volkswagenwagenwagen"),
    ("loop", "The man", "noooooooooo"), ("loop", "The man", "Y en TEEEEEEES."),
    ("loop", "The king", "El rey rey rey rey rey"), ("loop", "The king", "El rey, rey - rey rey."),
    ("too long", "Hello.", " ".join(f"Wort{number}" for number in range(30))),
    ("too long", LONG, " ".join(f"und {number} andere Dinge mehr" for number in range(20))),
    ("too short", LONG * 3, "Der Ausschuss."), ("too short", LONG, "Ja."), ("copied", LONG, LONG),
    ("copied", LONG, LONG.lower().replace(".", " !")), ("copied", LONG, LONG.replace("Tuesday", "Dienstag")),
    ("copied", "위원회는 화요일에 새 다리에 대해 이야기했다.", "위원회는 화요일에 새 다리에 대해 이야기했다."),
    ("copied", "我们明天早上九点在火车站见面。", "我们明天早上九点在火车站见面。"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "output"), GOOD)
def test_good_translation_has_no_fault_in_either_direction(source: str, output: str):
    assert find_faults(source, output, scripts=scripts_of(output)) == ()
    assert find_faults(output, source, scripts=scripts_of(source)) == ()


@pytest.mark.parametrize("source", ODD, ids=ascii)
def test_reasonable_outputs_for_odd_input_have_no_fault(source: str):
    for output in ODD[source]:
        assert find_faults(source, output) == (), output


@pytest.mark.parametrize(("fault", "source", "output"), BAD, ids=lambda part: ascii(part)[:40])
def test_nonsense_is_named(fault: Fault, source: str, output: str):
    assert fault in find_faults(source, output)


def test_faults_depend_on_the_source_and_come_together():
    assert "loop" not in find_faults("sehr " * 30, "very " * 30)
    assert "too short" not in find_faults("Ja.", "Yes.")
    assert find_faults(LONG, LONG * 8) == ("loop", "too long")
    assert find_faults(LONG, "", finished=False) == ("empty", "unfinished")
    assert find_faults("Good morning.", "Guten Morgen.", finished=False) == ("unfinished",)


@pytest.mark.parametrize(
    ("output", "scripts", "wrong"),
    [
        ("Der Ausschuss traf sich.", {"LATIN"}, False),
        ("Der Ausschuss traf sich.", {"CYRILLIC"}, True),
        ("Der Ausschuss 위원회는 traf sich 화요일에.", {"LATIN"}, True),
        ("위원회 Tuesday", {"HANGUL"}, False),  # a name of the source
        ("위원회 Dienstag", {"HANGUL"}, True),
        ("위원회 Dienstag", {"HANGUL", "LATIN"}, False),
        ("위원회 Dienstag", set(), False),
        ("委員会は火曜日に集まった", {"CJK", "HIRAGANA", "KATAKANA"}, False),
        ("委員会は火曜日に集まった", {"CJK"}, True),
        ("Комитет", {"LATIN"}, True),
        ("3 Ω", {"LATIN"}, False),
    ],
)
def test_other_scripts_than_those_of_the_language_are_wrong(output: str, scripts: set[str], wrong: bool):
    assert ("wrong script" in find_faults(LONG, output, scripts=scripts)) is wrong


@pytest.mark.parametrize(
    ("address", "wrong"), [("https://example.org/queue", False), ("https://example.com/other", True)]
)
def test_address_that_touches_a_word_is_of_no_script(address: str, wrong: bool):
    source, output = "Your number is 7.https://example.org/queue", f"번호는 7이에요.{address}"
    assert ("wrong script" in find_faults(source, output, scripts={"HANGUL"})) is wrong


def test_scripts_are_counted_by_letters():
    assert scripts_of("Ab1! 한글 漢 ひ カ Я") == {
        "LATIN": 2, "HANGUL": 2, "CJK": 1, "HIRAGANA": 1, "KATAKANA": 1, "CYRILLIC": 1,
    }  # fmt: skip


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_find_faults_judges_any_text(source: str, output: str, finished: bool):
    found = find_faults(source, output, finished=finished, scripts={"LATIN"})
    assert ("unfinished" in found) is not finished
    assert len(set(found)) == len(found)


@given(
    st.text("abcdefghij ", min_size=5, max_size=30).filter(lambda unit: any(map(str.isalpha, unit))),
    st.integers(20, 40),
)
def test_loops_are_found_for_any_unit_twenty_times(unit: str, times: int):
    assert "loop" in find_faults(LONG, unit * times)


@pytest.mark.parametrize("unit", ["a", "ab", "abc ", "word ", "ab" * 50 + " ", "\U0001f600", "漢", "-", " "])
def test_long_nonsense_is_judged_in_linear_time(unit: str):
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        return processor_seconds(lambda: find_faults(text, text, scripts={"LATIN"}))

    assert not grows_too_fast(seconds, 10_000)
