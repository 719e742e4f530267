"""`dragoman check`: it finds what is wrong, says where, keeps every pair together, and never breaks."""

import io
import json
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import toy_pairs, write_tsv
from hostile import AT, CLEAN, CODECS, HOSTILE, SOURCE, TARGET, WRITERS, Hostile, changed, jsonl, packed, text, tsv
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.check import corpora
from dragoman.check.cleaning import Cleaning
from dragoman.check.corpora import check as check_sets
from dragoman.check.detectors import CheckLimits
from dragoman.check.report import CheckedCorpus, CheckReport
from dragoman.check.rules import RULES
from dragoman.cli import main
from dragoman.commands.check import name_locations
from dragoman.data.corpus import Pair, read_corpus, stream_rows
from dragoman.data.spec import MAPPED, parse_corpora
from dragoman.data.split import read_documents
from dragoman.demo.phrasebook import Phrasebook, phrasebook
from dragoman.errors import DragomanError


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the command in an empty folder; returns its exit code and what it printed: JSON, or text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: object):
        capsys.readouterr()
        code = main(["check", *map(str, words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert err.count("\n") == (code != 0)
        return code, (json.loads(out) if "--json" in words else out)

    return run


def findings(report: dict) -> dict[str, dict]:
    return {finding["id"]: finding for finding in report["findings"]}


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


WORDS_AND_DAMAGE = (
    *("mismatch", "doubled", "cut-off", "numbers", "half-translated", "wrong-language", "mojibake", "lost-letters"),
    *("garbage", "doubtful", "near-duplicate", "realigned", "tags", "invisible-character"),
)

# The hostile ones.


def test_hostile_cases_are_many():
    assert len({case.name for case in HOSTILE}) == len(HOSTILE) >= 40
    elsewhere = {"overlap", "slipped", "near-slip", "one-language", "direction", "tab", "implausible"}
    elsewhere |= set(WORDS_AND_DAMAGE)  # see test_check_damage.py
    assert {case.finds.split()[0] for case in HOSTILE} >= set(RULES) - elsewhere


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_hostile_corpus_is_read_line_by_line_or_refused_by_name(check, tmp_path: Path, case: Hostile):
    put(tmp_path, case.files)
    if isinstance(case.reads, str):
        with pytest.raises(DragomanError) as error:
            read_corpus(case.words)
        assert case.reads in str(error.value)
        assert str(error.value).startswith("a.")
        assert len(str(error.value)) < 300
    else:
        (origin,) = parse_corpora(case.words)
        rows = list(stream_rows(origin))
        assert [(row.source, row.target) for row in rows] == case.reads
        if origin.format != ".po":
            assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        full = [pair for pair in case.reads if all(map(str.strip, pair))]
        assert read_corpus(case.words).pairs == full


SIGNS = list(dict.fromkeys(case.name.partition(" in a ")[0] for case in HOSTILE if " in a " in case.name))


def is_slow(case: Hostile) -> bool:
    """Of a sign that is in a source and in a target file, one is slow: by turns this one and that one."""
    sign, both, side = case.name.partition(" in a ")
    return bool(both) and (side == "source") == bool(SIGNS.index(sign) % 2)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow) if is_slow(case) else case for case in HOSTILE],
    ids=[case.name for case in HOSTILE],
)
def test_check_finds_what_is_wrong_and_nothing_else_and_cleans_it(check, tmp_path: Path, case: Hostile):
    put(tmp_path, case.files)
    code, report = check(*case.words, "--json", "--write-clean", "clean.tsv")
    assert findings(report).keys() >= set(case.finds.split())
    assert code == any(found["level"] != "note" for found in report["findings"])
    for found in report["findings"]:
        assert found["count"] >= len(found["locations"]) > 0
        assert all(location.startswith("a.") for location in found["locations"])
    if len(case.finds.split()) == 1 and not isinstance(case.reads, str) and "UTF-16" not in case.name:
        also = {"two targets": {"length-ratio"}, "over-long": {"length-ratio"}, "escape": {"outer-space"}}
        also |= {"two targets": {"length-ratio", "numbers"}, "tag": {"tags"}}
        assert findings(report).keys() - {case.finds} <= also.get(case.name.split(" in ")[0], set())
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    if (tmp_path / "clean.tsv").exists():
        again, report = check("clean.tsv", "--json")
        assert again == 0, report
        given = set(CLEAN) if isinstance(case.reads, str) else set(case.reads)
        assert set(read_corpus(["clean.tsv"]).pairs) <= given | {("a", "b")}  # nothing is shifted
    else:
        assert code == 1


# The controls.


@pytest.mark.parametrize("pack", CODECS)
@pytest.mark.parametrize("kind", WRITERS)
def test_clean_corpora_have_no_findings(check, tmp_path: Path, kind: str, pack: str):
    if f".{kind}" in MAPPED and pack:
        return
    put(tmp_path, {f"a.{kind}{pack}": packed(WRITERS[kind](CLEAN), CODECS[pack])})
    code, report = check(f"a.{kind}{pack}", "--json")
    assert (code, report["findings"], report["corpora"][0]["kept"]) == (0, [], len(CLEAN))
    assert check(f"a.{kind}{pack}", "--write-clean", "clean.tsv")[0] == 0
    assert (tmp_path / "clean.tsv").read_bytes() == tsv(CLEAN)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 200, 800])
def test_small_clean_corpus_raises_no_alarm(check, tmp_path: Path, count: int):
    write_tsv(tmp_path / "a.tsv", toy_pairs(800)[:count])
    read = "1 row, 1 pair" if count == 1 else f"{count} rows, {count} pairs"
    assert check("a.tsv") == (0, f"a.tsv: {read}, {count} of them without errors or warnings\n")


# Findings that need a corpus around them.


@cache
def book(target: str, per_template: int = 3) -> Phrasebook:
    return phrasebook("en", target, per_template=per_template, seed=1)


@pytest.mark.parametrize("target", ["ko", "de", pytest.param("es", marks=pytest.mark.slow)])
def test_swapped_pair_is_found_among_the_others_and_no_other_is(check, tmp_path: Path, target: str):
    pairs = book(target).train
    swapped = set(range(7, len(pairs), 50))
    write_tsv(tmp_path / "a.tsv", [(t, s) if i in swapped else (s, t) for i, (s, t) in enumerate(pairs)])
    _, report = check("a.tsv", "--json")
    found = findings(report)["swapped"]
    long = sum(len(pairs[i][0]) > 20 for i in swapped)
    assert long <= found["count"] <= len(swapped)
    assert {int(place.split(":")[1]) - 1 for place in found["locations"]} <= swapped
    # The control: as they were, nothing is swapped.
    write_tsv(tmp_path / "a.tsv", pairs)
    assert not {"swapped", "one-language", "script", "slipped"} & findings(check("a.tsv", "--json")[1]).keys()


def test_text_that_was_never_translated_is_found(check, tmp_path: Path):
    train = book("de").train
    other = "Please could you tell me what the weather is going to be like in the mountains this week?"
    write_tsv(tmp_path / "a.tsv", [*train[:99], (train[99][0], other), *train[100:]])
    assert findings(check("a.tsv", "--json")[1])["one-language"]["locations"] == ["a.tsv:100"]


def test_placeholders_that_a_program_fills_in_are_compared_and_no_others(check, tmp_path: Path):
    differ = [
        ("100 %% of %s", "100 % von %s"),
        ("Error at %lld: %m", "Fehler bei %lld"),
        ("It runs on $HOST now", "Es läuft jetzt auf $WIRT"),
        ("Show {{user.name}} here", "Hier {{user.nome}} zeigen"),
        ("One {% if many %}s{% endif %}", "Eins {% wenn many %}e{% endif %}"),
        ("See `%s` in %{count} files", "Siehe `%d` in %{count} Dateien"),
        ('Click <a href="%s">here</a>', 'Klicken Sie <a href="%d">hier</a>'),
        ("Open https://{host}:%d/ now", "Jetzt https://{port}:%d/ öffnen"),
        ("Is it %d%% or more?", "Ist es %d oder mehr?"),
    ]
    same = [
        ("The command `%s` is gone", "Der Befehl '%s' ist fort"),
        ("%1$s of {0}", "{0} mit %1$s"),
        ("Read http://example.org/en", "Lesen Sie http://example.org/de"),
        ("The <b>dog</b> sleeps at 9:30", "Der <i>Hund</i> schläft um 9:30"),
        ("It costs 20 % more", "Es kostet 20% mehr"),
        ('The <a href="%s">dog</a> sleeps', "Der Hund schläft: %s"),
        ("Read http://example.org/%C3%A4/%sx", "Lesen Sie http://example.org/%E4%BD/%sx"),
        ("The scale is %d%% now", "Der Maßstab ist jetzt %d %%"),
    ]
    write_tsv(tmp_path / "a.tsv", [*differ, *same])
    found = findings(check("a.tsv", "--json")[1])["placeholders"]
    assert found["count"] == len(differ)
    assert found["locations"] == [f"a.tsv:{line}" for line in range(1, len(differ) + 1)]
    write_tsv(tmp_path / "a.tsv", same)
    assert "placeholders" not in findings(check("a.tsv", "--json")[1])


SLOW = [pytest.param(*which, marks=pytest.mark.slow) for which in (("de", None), ("es", 20))]


@pytest.mark.parametrize(("target", "count"), [("ko", 20), ("ko", None), ("de", 20), ("es", None), *SLOW])
def test_corpora_whose_directions_differ_are_both_named(check, tmp_path: Path, target: str, count: int | None):
    """Whichever of them is wrong. Their rows are not: each corpus is judged by its own direction."""
    pairs, dev = book(target).train, book(target).dev[:count]
    train, more = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    write_tsv(tmp_path / "a.tsv", train)
    write_tsv(tmp_path / "more.tsv", more)
    write_tsv(tmp_path / "dev.tsv", dev)
    for name, some in (("a", train), ("more", more), ("dev", dev)):
        write_tsv(tmp_path / f"{name}-swapped.tsv", [(t, s) for s, t in some])
    straight = findings(check("a.tsv", "more.tsv", "--dev", "dev.tsv", "--json")[1])  # the control
    assert not {"direction", "swapped", "one-language", "script"} & straight.keys()
    for words in ("a.tsv --dev dev-swapped.tsv", "a-swapped.tsv --dev dev.tsv", "a.tsv more-swapped.tsv"):
        first, *_, second = words.split()
        code, report = check(*words.split(), "--json", "--write-clean", "clean.tsv")
        found = findings(report)
        assert (code, found["direction"]["count"]) == (1, 1)
        assert {first, second} <= set(found["direction"]["example"].split())
        assert not {"swapped", "one-language", "script"} & found.keys()
        assert not (tmp_path / "clean.tsv").exists()


def test_sides_that_slipped_are_found_where_they_slipped(check, tmp_path: Path):
    """A line is missing on one side, and another one was put in at the end: the counts are equal."""
    sources, targets = zip(*book("es", 6).train, strict=True)
    at = 600
    shifted = [*targets[:at], *targets[at + 1 :], targets[0]]
    for name, side in (("a.en", sources), ("a.es", shifted), ("b.es", targets)):
        (tmp_path / name).write_bytes(text(side))
    _, report = check("a.en", "a.es", "--json")
    found = findings(report)["slipped"]
    assert found["locations"][0] == "a.en:769"  # the first window of 256 lines after line 600
    assert not {"slipped", "near-slip"} & findings(check("a.en", "b.es", "--json")[1]).keys()


@pytest.mark.parametrize(("first", "last"), [(600, 1600), (760, 1700), (600, 2500), (0, 2500)])
def test_slips_leave_no_pair_in_the_clean_file(check, tmp_path: Path, first: int, last: int):
    """A line is missing on one side, and further down on the other: in between, each line has a wrong partner."""
    chance = random.Random(1)
    sides = [(f"{n} {'a' * (size := chance.randrange(80))}", f"{n} {'b' * size}") for n in range(2500)]
    sources, targets = (list(side) for side in zip(*sides, strict=True))
    del targets[first], sources[last - 1]
    put(tmp_path, {"a.en": text(sources), "a.es": text(targets)})
    found = findings(check("a.en", "a.es", "--json", "--write-clean", "clean.tsv")[1])
    wrong = last - 1 - first
    dropped = sum(found[rule]["count"] for rule in ("slipped", "near-slip") if rule in found)
    assert wrong <= dropped < wrong + 4 * 256
    assert (tmp_path / "clean.tsv").exists() == (dropped < len(sources))
    if dropped < len(sources):
        assert set(read_corpus(["clean.tsv"]).pairs) <= set(sides)
    if first == 760:  # the control: without those near the slip, pairs 761 to 768, which are wrong, would stay
        assert found["slipped"]["locations"][0] == "a.en:769"


def test_texts_without_letters_overlap_where_they_are_the_same(check, tmp_path: Path):
    write_tsv(tmp_path / "a.tsv", [*CLEAN, ("?!", "¡!")])
    for dev, count in ([("?!", "¡!")], 1), ([("!!", "¡!")], 0):
        write_tsv(tmp_path / "dev.tsv", [*dev, *toy_pairs(70)[60:]])
        found = findings(check("a.tsv", "--dev", "dev.tsv", "--json")[1])
        assert ("overlap" in found and found["overlap"]["count"]) == (count or False)


def test_write_clean_says_where_nothing_is_left(check, tmp_path: Path):
    write_tsv(tmp_path / "a.tsv", [("Say hello now please", "Say hello now please")])
    _, said = check("a.tsv", "--write-clean", "clean.tsv")
    assert "clean.tsv: not written; no pair is left without errors or warnings" in str(said)


def test_overlaps_with_a_later_set_are_found_and_cleaned_away(check, tmp_path: Path):
    source, target = CLEAN[AT]
    write_tsv(tmp_path / "a.tsv", CLEAN)
    write_tsv(tmp_path / "dev.tsv", [(source.upper() + " !", "x"), *toy_pairs(70)[60:]])
    _, report = check("a.tsv", "--dev", "dev.tsv", "--json", "--write-clean", "clean.tsv")
    found = findings(report)["overlap"]
    assert (found["count"], found["locations"]) == (1, [f"a.tsv:{AT + 1}"])
    assert read_corpus(["clean.tsv"]).pairs == [pair for pair in CLEAN if pair != (source, target)]
    assert "overlap" not in findings(check("clean.tsv", "--dev", "dev.tsv", "--json")[1])
    # dev and test are compared too; and without a set to compare with, nothing overlaps.
    _, report = check("clean.tsv", "--dev", "dev.tsv", "--test", "a.tsv", "--json")
    found = findings(report)["overlap"]
    assert found["count"] == len(CLEAN)  # all of clean.tsv, and one of dev.tsv
    assert found["locations"][0] == "clean.tsv:1"
    assert "overlap" not in findings(check("a.tsv", "--json")[1])


def test_result_is_cleaned_until_nothing_more_is_dropped(check, tmp_path: Path):
    """When the ten longest are gone, the median falls, and five that were not too long before are."""
    chance = random.Random(1)
    lengths = [60] * 47 + [150] * 38 + [360] * 5 + [1800] * 10
    pairs = [("".join(chance.choices("abcdefgh", k=60)), "".join(chance.choices("stuvwxyz", k=n))) for n in lengths]
    write_tsv(tmp_path / "a.tsv", pairs)
    _, report = check("a.tsv", "--json", "--write-clean", "clean.tsv")
    assert findings(report)["length-ratio"]["count"] == 10
    assert (report["clean"]["pairs"], report["clean"]["dropped_later"]) == (85, {"length-ratio": 5})
    assert read_corpus(["clean.tsv"]).pairs == pairs[:85]
    assert check("clean.tsv")[0] == 0
    # The control: cleaned once, it would not be clean.
    write_tsv(tmp_path / "once.tsv", pairs[:90])
    assert findings(check("once.tsv", "--json")[1])["length-ratio"]["count"] == 5


odd_texts = st.text(st.sampled_from("ab  \t\t\u00a0\v\r\x85\u2028\u200b\ufeff\u3000"), max_size=6)


@settings(max_examples=25)
@given(st.lists(st.tuples(odd_texts, odd_texts), min_size=1, max_size=12))
def test_cleaned_files_are_clean_whatever_the_white_space(tmp_path_factory: pytest.TempPathFactory, pairs):
    """Each pair that is dropped counts under a finding, each change is noted, and what stays is as it was."""
    folder = tmp_path_factory.mktemp("odd")
    given, clean, again = (folder / name for name in ("a.jsonl", "clean.tsv", "again.tsv"))
    given.write_bytes(jsonl(pairs))
    report, written, _ = corpora.check_and_clean({"train": parse_corpora([str(given)])}, CheckLimits(), clean)
    drops = {name for name, rule in RULES.items() if rule.level != "note"} - {"no-pairs"}
    dropped = {name: found.count for name, found in report.findings.items() if name in drops}
    assert report.corpora[0].dropped == dropped
    full = sum(bool("".join(pair).strip()) for pair in pairs)
    assert sum(dropped.values()) >= full - report.kept()
    assert report.dropped_later.total() >= report.kept() - written
    tabs = [pair for pair in pairs if "\t" in "".join(pair) and all(map(str.strip, pair))]
    assert (report.findings["tab"].count if "tab" in report.findings else 0) == len(tabs)
    if written:
        sets = {"train": parse_corpora([str(clean)])}
        checked, unchanged, _ = corpora.check_and_clean(sets, CheckLimits(), again)
        assert (checked.count("error"), checked.count("warning"), unchanged) == (0, 0, written)
        assert again.read_bytes() == clean.read_bytes()
        assert set(read_corpus([str(clean)]).pairs) <= {tuple(side.replace("\t", " ") for side in p) for p in pairs}


def test_tab_counts_as_the_space_that_is_written_for_it(check, tmp_path: Path):
    source, target = SOURCE.replace(" ", "\t"), TARGET
    put(tmp_path, {"a.jsonl": jsonl([*CLEAN, (source, target)]), "b.jsonl": jsonl([*CLEAN, (source + ".", target)])})
    found = findings(check("a.jsonl", "--json")[1])
    assert {name: found[name]["locations"] for name in found} == {"duplicate": ["a.jsonl:61"], "tab": ["a.jsonl:61"]}
    # The control: another pair.
    assert findings(check("b.jsonl", "--json")[1]).keys() == {"tab", "near-duplicate"}


@pytest.mark.parametrize("count", [60, 400])
def test_copies_are_not_swapped_pairs(check, tmp_path: Path, count: int):
    same = [source for source, _ in book("es").train[:count]]
    (tmp_path / "a.en").write_bytes(text(same))
    found = findings(check("a.en", "a.en", "--json")[1])
    assert {"swapped", "one-language", "script"}.isdisjoint(found)
    assert found["copy"]["count"] > count / 2


def test_cleaning_ends_for_a_corpus_that_is_never_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passes: list[Path] = []

    def pass_(draft: Path, *_: object) -> tuple[CheckReport, Cleaning]:
        passes.append(draft)
        corpus = CheckedCorpus("train", parse_corpora(["a.tsv"])[0], read=1000, kept=999)
        corpus.dropped["copy"] += 1
        draft.write_text(f"{len(passes)}")
        return CheckReport([corpus]), Cleaning(io.StringIO(), rows=[np.zeros(0, int)])

    monkeypatch.setattr(corpora, "check_into", pass_)
    monkeypatch.setattr(corpora, "reading_of_kept", lambda *_: None)
    _, written, _ = corpora.check_and_clean({"train": ()}, CheckLimits(), tmp_path / "clean.tsv")
    assert (written, len(passes), len(set(passes))) == (999, corpora.MAX_PASSES, 2)
    assert (tmp_path / "clean.tsv").read_text() == f"{corpora.MAX_PASSES}"
    assert [path.name for path in tmp_path.iterdir()] == ["clean.tsv"]


# Places, limits, output.


def test_place_names_the_file_of_its_side(check, tmp_path: Path):
    (tmp_path / "a.en").write_bytes(text([s for s, _ in changed(SOURCE + "\0")]))
    (tmp_path / "a.ko").write_bytes(text([t + "\x01" * (i == 9) for i, (_, t) in enumerate(CLEAN)]))
    _, report = check("a.en", "a.ko", "--json")
    places = {found["id"]: found["locations"] for found in report["findings"]}
    assert places == {"nul": [f"a.en:{AT + 1}"], "control-character": ["a.ko:10"]}


def test_check_goes_on_where_training_stops(check, tmp_path: Path):
    bad = [b"\xff\tb\n", b"abc\n", b"a\t\xff\xff\n"]
    (tmp_path / "a.tsv").write_bytes(bad[0] + tsv(CLEAN) + bad[1] + bad[2])
    code, report = check("a.tsv", "--json", "--write-clean", "clean.tsv")
    (counts,) = report["corpora"]
    assert (counts["rows"], counts["pairs"], counts["kept"]) == (63, 60, 60)
    assert "a.tsv: 63 rows, 60 pairs, 60 of them without errors or warnings\n" in check("a.tsv")[1]
    places = {found["id"]: (found["count"], found["locations"]) for found in report["findings"]}
    assert places == {"utf-8": (2, ["a.tsv:1:1", "a.tsv:63:3"]), "columns": (1, ["a.tsv:62"])}
    assert (code, report["errors"]) == (1, 3)
    assert report["clean"] == {"file": "clean.tsv", "pairs": len(CLEAN), "dropped_later": {}}
    assert read_corpus(["clean.tsv"]).pairs == CLEAN


def test_row_that_cannot_be_read_on_either_side_counts_once(check, tmp_path: Path):
    (tmp_path / "a.en").write_bytes(b"\xff\n" + text([s for s, _ in CLEAN]))
    (tmp_path / "a.ko").write_bytes(b"\xff\n" + text([t for _, t in CLEAN]))
    _, report = check("a.en", "a.ko", "--json")
    assert (report["errors"], report["corpora"][0]["rows"], report["corpora"][0]["pairs"]) == (2, 61, 60)


def test_blank_lines_end_documents_and_are_kept(check, tmp_path: Path):
    write_tsv(tmp_path / "a.tsv", [*CLEAN[:20], ("", ""), *CLEAN[20:40], ("x", "")])
    (tmp_path / "b.en").write_bytes(text([s for s, _ in [*CLEAN[40:50], (" " * 3000, "")]]))
    (tmp_path / "b.ko").write_bytes(text([t for _, t in [*CLEAN[40:50], ("", "")]]))
    code, report = check("a.tsv", "b.en", "b.ko", "--json", "--write-clean", "clean.tsv")
    found = {name: one["locations"] for name, one in findings(report).items()}
    assert (code, found) == (1, {"empty": ["a.tsv:42"], "blank": ["a.tsv:21", "b.en:11"]})
    assert report["clean"]["pairs"] == 50
    parts = CLEAN[:20], CLEAN[20:40], CLEAN[40:50]
    assert (tmp_path / "clean.tsv").read_bytes() == b"\n".join(map(tsv, parts)) + b"\n"  # and one between the files
    located = read_documents(parse_corpora(["clean.tsv"]))
    assert [located.documents.count(n) for n in range(3)] == [20, 20, 10]
    assert check("clean.tsv")[0] == 0


def test_example_of_json_on_the_page_is_what_the_command_prints(check, tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text(encoding="utf-8")
    example = page.partition("prints one object:\n\n")[2].partition("\n\n")[0]
    write_tsv(tmp_path / "train.tsv", [*CLEAN[:3], ("x", ""), *CLEAN[3:8]])
    assert check("train.tsv", "--json", "--write-clean", "clean.tsv") == (1, json.loads(example))


def test_limits_are_flags(check, tmp_path: Path):
    write_tsv(tmp_path / "a.tsv", changed(target=TARGET * 5))
    assert "length-ratio" in findings(check("a.tsv", "--json")[1])
    assert check("a.tsv", "--json", "--max-ratio", "9")[0] == 0
    assert check("a.tsv", "--json", "--max-ratio", "9", "--max-length", "20")[0] == 1
    for flags in ("--max-ratio 1", "--max-ratio nan", "--max-length 0"):
        assert check("a.tsv", *flags.split())[0] == 2


def test_report_for_people_names_findings_places_and_what_to_do(check, tmp_path: Path):
    write_tsv(tmp_path / "[red]a.tsv", [*changed(SOURCE + "\u2028"), ("", "x")])
    code, out = check("[red]a.tsv")
    assert code == 1
    places = "line-separator", f"[red]a.tsv:{AT + 1}", "empty", "[red]a.tsv:61"
    for words in (*places, "61 rows, 60 pairs, 59 of them without", RULES["line-separator"].advice):
        assert words in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_findings_in_many_files_stand_at_the_end_above_the_total(check, tmp_path: Path):
    write_tsv(tmp_path / "a.tsv", [*CLEAN[:30], ("", "x")])
    sides = [[pair[side] for pair in CLEAN[30:]] for side in range(2)]
    put(tmp_path, {"b.en": text(sides[0]), "b.ko": text(sides[1])})
    first, second, *finding, total = check("a.tsv", "b.en", "b.ko")[1].splitlines()
    assert first == "a.tsv: 31 rows, 30 pairs, 30 of them without errors or warnings"
    assert second == "b.en and b.ko: 30 rows, 30 pairs, 30 of them without errors or warnings"
    assert "a.tsv:31" in "".join(finding)
    assert total == "3 files: 61 rows, 60 pairs, 60 of them without errors or warnings"
    # The control: of one corpus, its own line is the total.
    assert check("a.tsv")[1].splitlines() == [*finding, first]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("", 2, "give a corpus"),
        ("missing.tsv", 1, "missing.tsv: no such file"),
        (".", 1, ".: a folder; name the files in it"),
        ("a.tsv --dev missing", 1, "missing: no such file"),
        ("a.tsv wieght=2", 2, "did you mean weight=?"),
        ("a.tsv --write-clean a.tsv", 2, "a.tsv: one of the corpora"),
        ("a.tsv --dev b.tsv --write-clean b.tsv", 2, "b.tsv: one of the corpora"),
        ("a.tsv --write-clean link.tsv", 2, "link.tsv: one of the corpora"),
        ("a.tsv --write-clean clean.txt", 2, "ends in .tsv"),
        ("a.tsv --write-clean no/such/clean.tsv", 2, "clean.tsv: the folder no/such does not exist"),
        (f"a.tsv --write-clean {'x' * 245}.tsv", 1, f"dragoman: {'x' * 245}.tsv: "),  # the names of drafts are longer
        ("a.tsv tag=x b.tsv tag=y --write-clean clean.tsv", 2, "one at a time"),
    ],
)
def test_wrong_request_gets_one_line(check, tmp_path: Path, words: str, code: int, says: str, capsys):
    write_tsv(tmp_path / "a.tsv", CLEAN)
    write_tsv(tmp_path / "b.tsv", CLEAN)
    (tmp_path / "link.tsv").symlink_to("a.tsv")
    assert main(["check", *words.split()]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert read_corpus(["a.tsv"]).pairs == read_corpus(["b.tsv"]).pairs == CLEAN


@pytest.mark.parametrize("later", [CLEAN[::-1], CLEAN[:-1], [*CLEAN, CLEAN[0]]], ids=["order", "shorter", "longer"])
def test_file_that_changes_between_two_readings_is_no_traceback(tmp_path: Path, later: list[Pair]):
    path = Path(write_tsv(tmp_path / "a.tsv", CLEAN))

    report = check_sets({"train": parse_corpora([str(path)])}, CheckLimits())
    assert not report.findings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.check.profile.Profile.learn", lambda *_: path.write_bytes(tsv(later)))
        report = check_sets({"train": parse_corpora([str(path)])}, CheckLimits())
    assert "changed while it was read" in report.findings["unreadable"].example


@pytest.mark.parametrize("pack", CODECS)
@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_bytes_are_no_traceback(check, tmp_path: Path, kind: str, pack: str):
    chance = random.Random(f"{kind}{pack}")
    whole = packed(WRITERS[kind](CLEAN), CODECS[pack])
    for _ in range(6):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 30])):
            at = chance.randrange(len(data))
            data[at : at + chance.choice([0, 1, 1, 5])] = chance.randbytes(chance.choice([0, 1, 1, 5]))
        (tmp_path / f"a.{kind}{pack}").write_bytes(data)
        assert check(f"a.{kind}{pack}", "--json")[0] in (0, 1)


def test_page_explains_every_finding_with_its_level():
    page = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.split("\n") if line.startswith("| `")]
    levels = {name: row[1] for row in rows for name in row[0].removeprefix("| ").replace("`", "").split(", ")}
    assert {name: levels.get(name) for name in RULES} == {name: rule.level for name, rule in RULES.items()}


def test_pairs_that_training_takes_for_the_same_are_duplicates(check, tmp_path: Path):
    """An accent may be a character of its own; the tokenizer makes one of both forms."""
    pairs = [("The café is open.", "카페"), ("The cafe\u0301 is open.", "카페"), ("The cafe is open.", "카페")]
    put(tmp_path, {"a.tsv": tsv(pairs)})
    _, report = check("a.tsv", "--json")
    assert findings(report)["duplicate"]["count"] == 1


def test_place_is_named_once_and_each_occurrence_counted():
    report = CheckReport()
    report.add("line-break", ["a.tsv:3", "a.tsv:3", "a.tsv:5"])
    report.add("line-break", ["a.tsv:5", "a.tsv:6"])
    found = report.findings["line-break"]
    assert (found.count, found.locations) == (5, ["a.tsv:3", "a.tsv:5", "a.tsv:6"])


@pytest.mark.parametrize(("lines", "named"), [((3, 3), "a.tsv:3"), (range(1, 8), "a.tsv:1, 2, 3, 4, 5, ...")])
def test_more_places_are_hinted_at_only_where_there_are_more(lines: Iterable[int], named: str):
    report = CheckReport()
    report.add("line-break", [f"a.tsv:{line}" for line in lines])
    assert name_locations(report.findings["line-break"]) == named
