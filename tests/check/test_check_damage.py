"""`dragoman check` without a model: damaged texts, pairs whose words do not go together, slips; and what is dropped."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import write_tsv
from hostile import CLEAN, jsonl

from dragoman.check import lexicon
from dragoman.check.corpora import check_into, first_readings
from dragoman.check.detectors import CheckLimits, is_half_copied
from dragoman.check.first_reading import read_first, reading_of_kept
from dragoman.check.lexicon import Lexicon, Words
from dragoman.check.pairing import LOST, Judgement
from dragoman.check.rules import RULES
from dragoman.cli import main
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.spec import CorpusSpec
from dragoman.demo.phrasebook import phrasebook
from dragoman.text.speech import speaker

CATALOGUE = Path(__file__).parents[2] / "src/dragoman/check/ko.po"
SPANISH = "Los archivos de la carpeta se pueden abrir con cualquier programa que lea textos."
AT = 700


@cache
def book(target: str) -> list[Pair]:
    """Return the pairs of the demo's phrasebook."""
    return phrasebook("en", target, per_template=14, seed=1).train


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the command in an empty folder; returns what it printed as JSON."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> dict:
        capsys.readouterr()
        main(["check", *map(str, words), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


def lines(report: dict, rule: str) -> list[int]:
    """The lines of a finding, [] without it."""
    found = [finding for finding in report["findings"] if finding["id"] == rule]
    return [int(location.split(":")[1]) for finding in found for location in finding["locations"]]


def mojibake(text: str, codec: str) -> str:
    return text.encode().decode(codec, "replace")


SOURCE = "Would you like to have coffee with me on Wednesday?"
TARGET = "Möchten Sie am Mittwoch mit mir einen Kaffee trinken?"
DAMAGED = {
    "cp1252": ("mojibake", (SOURCE, mojibake("Die Größe möchte schöner werden.", "cp1252"))),
    "latin-1": ("mojibake", (SOURCE, mojibake("Die Größe möchte schöner werden.", "latin-1"))),
    "umlauts": ("lost-letters", (SOURCE, "Die Gr?sse m?chte sch?ner werden.")),
    "all letters": ("lost-letters", (SOURCE, "?? ????? ?? ???")),
    "another language": ("wrong-language", (SOURCE, SPANISH)),
    "signs": ("garbage", (SOURCE, "#@%&* =+/| ~^#@%")),
    "letters": ("garbage", (SOURCE, "xqzw vbnkj qqxz wrtp zzkq")),
    "number": ("numbers", (f"{SOURCE} 1,511", f"{TARGET} 1.151")),
    "twice": ("doubled", (f"{SOURCE} {SOURCE}", TARGET)),
    "soft hyphen": ("invisible-character", (SOURCE, TARGET[:3] + "\u00ad" + TARGET[3:])),
    "tag": ("tags", (f"<b>{SOURCE}</b>", TARGET)),
}


@pytest.mark.parametrize(("rule", "pair"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_text_is_found_and_no_other(check, tmp_path: Path, monkeypatch, rule: str, pair: Pair):
    monkeypatch.setattr(lexicon, "MANY_PAIRS", 1000)
    write_tsv(tmp_path / "a.tsv", [*book("de")[:AT], pair, *book("de")[AT + 1 :]])
    assert lines(check("a.tsv"), rule) == [AT + 1]


GOOD = [
    ("Look for CAFÉ“ here", "Sucht hier nach CAFÉ“"),
    ("What? Nothing is left??", "Was? Nichts ist übrig??"),
    ("It costs 1,500.25 dollars at 10:30", "Es kostet um 10.30 Uhr 1.500,25 Dollar"),
    ("Bora Bora is an island in the ocean", "Bora Bora ist eine Insel im Ozean"),
    ("The train leaves for Zuiderzee at 4:20 PM", "Der Zug nach Zuiderzee fährt um 16:20 Uhr"),
]


@pytest.mark.parametrize("target", ["de", "ko"])
def test_good_pairs_are_not_lost(check, tmp_path: Path, target: str):
    pairs = [*book(target), *(GOOD if target == "de" else [])]
    write_tsv(tmp_path / "a.tsv", pairs)
    report = check("a.tsv")
    assert {finding["id"] for finding in report["findings"] if finding["level"] != "note"} <= {"mismatch"}
    assert report["corpora"][0]["kept"] >= 0.9995 * len(pairs)


def test_target_that_is_cut_off_is_found(check, tmp_path: Path):
    pairs = [(f"{source.strip('.?!')}.", f"{target.strip('.?!')}.") for source, target in book("de")]
    place = next(place for place, (source, _) in enumerate(pairs) if len(source) > 45)
    cut = pairs[place][1][: len(pairs[place][1]) // 5].rstrip(" ,")
    write_tsv(tmp_path / "a.tsv", [*pairs[:place], (pairs[place][0], cut), *pairs[place + 1 :]])
    assert lines(check("a.tsv"), "cut-off") == [place + 1]
    write_tsv(tmp_path / "a.tsv", [(source, target.strip(".")) for source, target in pairs])  # where none has a stop
    assert lines(check("a.tsv"), "cut-off") == []


def test_case_and_marks_make_a_near_duplicate_which_is_kept(check, tmp_path: Path):
    source, target = CLEAN[3]
    write_tsv(tmp_path / "a.tsv", [*CLEAN, (f"{source.upper()}!", target), (source + "x", target)])
    report = check("a.tsv")
    assert lines(report, "near-duplicate") == [len(CLEAN) + 1]
    assert report["corpora"][0]["kept"] == len(CLEAN) + 2


# Words.


def words_of(texts: list[list[int]]) -> Words:
    counts = [len(text) for text in texts]
    return Words(
        np.array([word for text in texts for word in text], np.uint16), np.concatenate([[0], np.cumsum(counts)])
    )


def test_pair_is_no_evidence_for_itself():
    """Two rows have the same words. Each says of the other what it would say of a pair that was not learned."""
    texts = [[1, 2], [1, 2], [3, 4], [5]]
    sides = words_of(texts), words_of([[word + 10 for word in text] for text in texts])
    rows = np.arange(len(texts))
    learned = Lexicon(*sides, rows, rows)
    scores = learned.scores(*sides, rows, rows, 0)
    assert scores[0] == scores[1] > 0
    assert np.allclose(scores[2:], 0)  # nobody else has these words
    assert np.all(learned.scores(*sides, rows, rows)[2:] > 0)  # the control: as evidence for itself


def half_left(pair: Pair) -> Pair:
    """The pair with the second half of its target as it is in the source."""
    source, target = (text.split() for text in pair)
    return pair[0], " ".join([*target[: len(target) // 2], *source[len(source) // 2 :]])


@pytest.mark.parametrize("target", ["de", "ko"])
def test_halves_that_are_not_translated_are_found(check, tmp_path: Path, target: str):
    pairs = list(book(target))
    places = [place for place in range(50, len(pairs) - 50, 97) if len(pairs[place][0].split()) > 8]
    mess = [half_left(pair) if place in places else pair for place, pair in enumerate(pairs)]
    write_tsv(tmp_path / "a.tsv", mess)
    report, wrong = check("a.tsv"), {place + 1 for place in places}
    found = {line for rule in ("half-translated", "one-language", "mismatch") for line in lines(report, rule)}
    assert set(lines(report, "half-translated")) <= wrong
    assert len(found & wrong) > 0.6 * len(wrong)


LEFT = {
    "sentence": ("Please open the window of your room", "Bitte open the window of your room", True),
    "name": ("Please read Window Room Please Open", "Bitte lesen Window Room Please Open", False),
    "title": ("Please read Open the window of your room", "Bitte lesen Open the window of your room", False),
    "code": ("Please enter open the = window of room", "Bitte eingeben: open the = window of room", False),
    "middle": ("Please enter open the window of room here", "Bitte open the window of room dort eingeben", False),
    "two words": ("Please open the window", "Bitte öffnen Sie the window", False),
    "long": (
        "Say open the window",
        "Sagen Sie dann bitte noch laut und deutlich und zum Schluss open the window",
        False,
    ),
}


@pytest.mark.parametrize(("source", "target", "told"), LEFT.values(), ids=LEFT)
def test_half_that_is_left_is_words_at_an_end(source: str, target: str, told: bool):
    assert is_half_copied(source, target) == told


def test_copied_words_surprise_unless_they_are_names():
    """Word 1 is always copied, 2 never but once; 3 is new. No pair is evidence for itself."""
    texts = [[1, 2, 4]] * 30 + [[1, 2], [3]]
    sources, targets = words_of(texts), words_of([[1, 12, 14]] * 30 + [[1, 2], [3]])
    rows = np.arange(len(texts))
    learned = Lexicon(sources, targets, rows, rows)
    surprise = learned.surprise(sources, targets, rows, 0)
    assert surprise[:30] == pytest.approx(0)
    assert surprise[30] == pytest.approx(np.log(60))  # half a copy in thirty
    assert surprise[31] == pytest.approx(np.log(2))  # nobody else has it


@pytest.mark.parametrize("target", ["de", "ko"])
def test_pairs_of_strangers_are_found(check, tmp_path: Path, target: str):
    pairs = list(book(target))
    places = [place for place in range(50, len(pairs) - 50, 97) if len(pairs[place][0].split()) > 5]
    strangers = {place: pairs[(place + len(pairs) // 2) % len(pairs)][1] for place in places}
    write_tsv(tmp_path / "a.tsv", [(source, strangers.get(place, text)) for place, (source, text) in enumerate(pairs)])
    found, wrong = set(lines(check("a.tsv"), "mismatch")), {place + 1 for place in places}
    assert len(found - wrong) <= 0.001 * len(pairs)
    assert len(found) > 0.7 * len(wrong)


def slipped(pairs: list[Pair], first: int, last: int) -> list[Pair]:
    """The targets of some rows, one row further down; the last one has become the first."""
    targets = [target for _, target in pairs]
    targets[first:last] = targets[last - 1 : last] + targets[first : last - 1]
    return list(zip([source for source, _ in pairs], targets, strict=True))


@pytest.mark.parametrize("size", [20, 60, 300])
@pytest.mark.parametrize("target", ["de", "ko"])
def test_slip_is_found_where_it_is(check, tmp_path: Path, target: str, size: int):
    write_tsv(tmp_path / "a.tsv", slipped(book(target), AT, AT + size))
    report = check("a.tsv")
    found = [*lines(report, "slipped"), *lines(report, "mismatch")]
    wrong = set(range(AT + 1, AT + size + 1))
    assert len(set(found) - wrong) <= 0.001 * len(book(target))
    assert len(found) > 0.8 * size
    (slip,) = report["slips"]
    first, last = map(int, re.findall(r"lines (\d+) to ([\d]+)", slip.replace(",", ""))[0])
    assert abs(first - AT) <= 3
    assert abs(last - AT - size) <= 3
    assert "the targets stand 1 line below their sources" in slip


# What is dropped.


def test_realign_gives_sources_their_targets_back(check, tmp_path: Path):
    pairs = list(dict.fromkeys(book("de")))
    write_tsv(tmp_path / "a.tsv", mess := slipped(pairs, AT, AT + 60))
    check("a.tsv", "--write-clean", "clean.tsv", "--rejected", "out.tsv", "--realign")
    clean, out = read_corpus(["clean.tsv"]).pairs, rejected(tmp_path / "out.tsv")
    assert set(clean) <= set(pairs)
    assert len(clean) >= len(pairs) - 8
    for side in range(2):  # each text is in one of the two files
        texts = Counter(pair[side] for pair in [*clean, *(row[:2] for row in out)])
        assert +Counter({text: times for text, times in texts.items() if text}) == Counter(pair[side] for pair in mess)
    check("a.tsv", "--write-clean", "clean.tsv")  # the control
    assert len(read_corpus(["clean.tsv"]).pairs) < len(pairs) - 50


def rejected(file: Path) -> list[list[str]]:
    head, *rows = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert head.split("\t") == ["source", "target", "corpus", "line", "reasons", "score", "same as"]
    return [row.split("\t") for row in rows]


def test_kept_and_rejected_are_what_was_read_byte_for_byte(check, tmp_path: Path):
    damaged = [pair for _, pair in DAMAGED.values()]
    pairs = [*book("de")[:900], *damaged, *book("de")[900:], book("de")[5], ("  ", "x"), ("a b c d", " a b c d")]
    halves = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    for name, half in zip(("a.tsv", "b.tsv"), halves, strict=True):
        write_tsv(tmp_path / name, half)
    report = check("a.tsv", "b.tsv", "--write-clean", "clean.tsv", "--rejected", "out.tsv")
    kept = (tmp_path / "clean.tsv").read_bytes().split(b"\n")
    read = b"".join((tmp_path / name).read_bytes() for name in ("a.tsv", "b.tsv")).split(b"\n")
    out = rejected(tmp_path / "out.tsv")
    lost = ["\t".join(row[:2]).encode() for row in out]
    assert +Counter({line: n for line, n in Counter([*kept, *lost]).items() if line}) == Counter(filter(None, read))
    assert len(out) == len(pairs) - report["clean"]["pairs"]
    for source, target, corpus, line, reasons, *_ in out:
        assert (tmp_path / corpus).read_text(encoding="utf-8").split("\n")[int(line) - 1] == f"{source}\t{target}"
        assert all(RULES[rule].level != "note" for rule in reasons.split())
    (copy,) = (row for row in out if "duplicate" in row[4].split())
    assert copy[6] == "a.tsv:6"
    assert any("numbers" in row[4] for row in out)


def test_rejected_pairs_of_later_passes_have_their_first_lines(check, tmp_path: Path):
    """When the ten longest are gone, the median falls, and five that were not too long before are."""
    lengths = [60] * 47 + [150] * 38 + [360] * 5 + [1800] * 10
    pairs = [(chr(97 + n % 8) * 60 + f" {n}", chr(105 + n % 8) * size) for n, size in enumerate(lengths)]
    (tmp_path / "a.jsonl").write_bytes(jsonl([("", ""), *pairs]))
    report = check("a.jsonl", "--write-clean", "clean.tsv", "--rejected", "out.tsv")
    assert report["clean"]["dropped_later"] == {"length-ratio": 5}
    out = rejected(tmp_path / "out.tsv")
    assert [int(row[3]) for row in out] == [*range(92, 102), *range(87, 92)]
    assert all(float(row[5].removeprefix("length-ratio=")) > 3 for row in out)


def test_next_pass_knows_what_reading_the_draft_again_would_tell(tmp_path: Path):
    pairs = [*book("de")[:300], ("", ""), (" ", "\t"), ("", "x"), *(pair for _, pair in DAMAGED.values()), ("a b", "c")]
    names = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for name, some in zip(names, (pairs[:310], [*pairs[310:], book("de")[3], ("Das", "ist")]), strict=True):
        Path(name).write_bytes(jsonl(some))
    sets = {"train": tuple(CorpusSpec((name,)) for name in names)}
    readings = first_readings(sets)
    draft = tmp_path / "draft.tsv"
    _, cleaning = check_into(draft, sets, CheckLimits(), draft, readings)
    kept = reading_of_kept(readings["train"], np.concatenate(cleaning.rows), cleaning.lost)
    read = read_first(CorpusSpec((str(draft),)), kept.profile.alphabet, False)
    for name in ("has_text", "pairs", "sources", "lengths", "loose", "numbers"):
        assert np.array_equal(getattr(kept, name), getattr(read, name)), name
    for mine, others in zip(kept.profile.counts, read.profile.counts, strict=True):
        assert np.array_equal(mine, others)
    for side in range(2):
        assert np.array_equal(kept.words[side].hashes, read.words[side].hashes)
        assert np.array_equal(kept.words[side].starts, read.words[side].starts)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rejected out.tsv", "needs --write-clean"),
        ("--realign", "needs --write-clean"),
        ("--write-clean out.tsv --rejected out.tsv", "another output"),
        ("--write-clean out.tsv --rejected a.tsv", "one of the corpora"),
        ("--report page.txt", "ends in .html"),
    ],
)
def test_audit_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch, capsys, words: str, says: str):
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "a.tsv", CLEAN)
    assert main(["check", "a.tsv", *words.split()]) == 2
    assert says in capsys.readouterr().err
    assert read_corpus(["a.tsv"]).pairs == CLEAN


def test_page_has_each_finding_in_both_languages_and_needs_no_network(check, tmp_path: Path):
    script = "<script>alert(1)</script> is here"
    write_tsv(tmp_path / "a.tsv", [*CLEAN, *((f"{n} {script}", "") for n in range(30))])
    check("a.tsv", "--report", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert RULES["empty"].what in page
    assert "한쪽이 비어 있음" in page
    assert page.count("&lt;script&gt;alert(1)") == 2 * 20
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page)


def test_korean_page_says_everything_of_each_rule():
    catalogue = CATALOGUE.read_text(encoding="utf-8")
    texts = {json.loads(text) for text in re.findall(r'^msgid (".*")$', catalogue, re.MULTILINE)}
    assert {text for rule in RULES.values() for text in (rule.what, rule.advice) if text} <= texts


@pytest.mark.parametrize("offset", [1, -1, 12, -3, LOST])
def test_korean_page_says_where_a_side_has_slipped(offset: int):
    (slip,) = Judgement(
        np.zeros(9),
        np.zeros(9, bool),
        False,
        np.zeros((9, 2), bool),
        np.zeros(9),
        np.array([0, 0, *[offset] * 6, 0]),
        True,
    ).slips(np.arange(1, 10))
    korean = speaker("ko", CATALOGUE)(f"a.tsv: {slip}")
    assert korean.startswith("a.tsv: 3번째 줄부터 8번째 줄까지 번역문이 ")
    assert not re.search("[A-Za-z]", korean.removeprefix("a.tsv"))
    assert abs(offset) in (1, LOST) or f"{abs(offset)}줄" in korean
