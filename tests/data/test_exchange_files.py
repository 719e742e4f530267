"""Corpora of translators: XLIFF as pairs, memories with control characters and regions, .zst in several frames."""

from pathlib import Path

import pytest
from hostile import CLEAN, packed, tmx, tsv, xliff_2, xliff_12

from dragoman.cli import main
from dragoman.data.corpus import LeftOut, read_corpus, stream_rows
from dragoman.data.spec import parse_corpora
from dragoman.errors import DragomanError

SKIPPABLE = bytes([0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0]) + b"abc"  # a frame of Zstandard without data


@pytest.mark.parametrize(
    ("attributes", "is_read"),
    [
        ('state="translated"', True), ('state="signed-off"', True), ('state="final"', True), ("", True),
        ('state="new"', False), ('state="needs-review-translation"', False), ('state="needs-l10n"', False),
    ],
)  # fmt: skip
def test_unit_of_xliff_is_a_pair_by_its_state(tmp_path: Path, attributes: str, is_read: bool):
    path = tmp_path / "a.xlf"
    path.write_bytes(xliff_12(CLEAN, attributes))
    (spec,) = parse_corpora([str(path)])
    left_out = LeftOut(spec)
    rows = [(row.source, row.target) for row in stream_rows(spec, left_out)]
    assert rows == (CLEAN if is_read else [])
    assert left_out.counts == ({} if is_read else {"units whose translation is not finished": len(CLEAN)})


@pytest.mark.parametrize(
    ("approved", "state", "is_read"), [("yes", "new", True), ("no", "", False), ("no", "final", True)]
)
def test_approval_of_a_unit_counts_before_its_state(tmp_path: Path, approved: str, state: str, is_read: bool):
    data = xliff_12([("a", "b")], f'state="{state}"' if state else "").replace(
        b"<trans-unit", b'<trans-unit approved="%b"' % approved.encode()
    )
    (tmp_path / "a.xlf").write_bytes(
        data.replace(b"</body>", b"<trans-unit><source>c</source><target>d</target></trans-unit></body>")
    )
    assert read_corpus([str(tmp_path / "a.xlf")]).pairs == [*([("a", "b")] if is_read else []), ("c", "d")]


def test_pairs_of_xliff_have_no_codes_suggestions_or_indentation(tmp_path: Path):
    unit = """<trans-unit id="1">
        <source>
          Press <g id="1">here</g><x id="2"/>, <bpt id="3">&lt;b></bpt>now<ept id="3">&lt;/b></ept>.</source>
        <target state="final">Hier <g id="1">drücken</g>.</target>
        <alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>"""
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>', encoding="utf-8")
    assert read_corpus([str(tmp_path / "a.xlf")]).pairs == [("Press here, now.", "Hier drücken.")]
    match = '<m:match xmlns:m="m"><source>no</source><target>nein</target></m:match>'
    data = xliff_2(CLEAN).decode().replace("<segment", f"{match}<segment", 1)
    (tmp_path / "a.xliff").write_text(data, encoding="utf-8")
    assert read_corpus([str(tmp_path / "a.xliff")]).pairs == CLEAN


def test_units_of_another_language_than_the_first_are_left_out(tmp_path: Path):
    unit = "<trans-unit><source>a</source><target>b</target></trans-unit>"
    other = f'<file source-language="en" target-language="fr"><body>{unit}</body></file>'
    path = tmp_path / "a.xlf"
    path.write_bytes(xliff_12(CLEAN).replace(b"</xliff>", f"{other}</xliff>".encode()))
    corpus = read_corpus([str(path)])
    assert corpus.pairs == CLEAN
    assert corpus.notes() == [f"{path}: skipped units in other languages: 1 (line {len(CLEAN) + 1})"]
    path.write_bytes(path.read_bytes().replace(b'"fr"', b'"ko-KR"'))  # the control
    assert read_corpus([str(path)]).pairs == [*CLEAN, ("a", "b")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("written", ["\v", "&#x0B;", "&#11;"])
def test_control_character_costs_a_memory_one_pair(tmp_path: Path, written: str, encoding: str):
    pairs = [*CLEAN, ("a SLOT b", "c")]
    path, clean = tmp_path / "a.tmx", tmp_path / "clean.tsv"
    path.write_bytes(tmx(pairs).decode().replace("SLOT", written).encode(encoding))
    assert read_corpus([str(path)]).pairs == [*CLEAN, ("a \v b", "c")]
    assert main(["check", str(path), "--write-clean", str(clean)]) == 1
    assert clean.read_bytes() == tsv(CLEAN)


def test_control_character_at_any_place_of_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = tmx([("a&b", "c")]).replace(b"a&amp;b", b"a&#x0B;&amp;\vb")
    for size in range(1, 40):
        monkeypatch.setattr("dragoman.data.lines.BLOCK", size)
        (tmp_path / "a.tmx").write_bytes(data)
        assert read_corpus([str(tmp_path / "a.tmx")]).pairs == [("a\v&\vb", "c")]


@pytest.mark.parametrize(
    ("unit", "header", "pair"),
    [
        (["en-US", "de-DE", "de-AT"], "", ("en-US", "de-DE")), (["en-US", "de", "en-GB"], "", ("en-US", "de")),
        (["de-DE", "en-GB"], "en-US", ("en-GB", "de-DE")), (["en-US", "en-GB"], "en-GB", ("en-GB", "en-US")),
    ],
)  # fmt: skip
def test_languages_of_a_memory_are_the_same_in_all_regions(
    tmp_path: Path, unit: list[str], header: str, pair: tuple[str, str]
):
    sides = "".join(f'<tuv xml:lang="{code}"><seg>{code}</seg></tuv>' for code in unit)
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx><header srclang="{header}"/><body><tu>{sides}</tu></body></tmx>')
    assert read_corpus([str(path)]).pairs == [pair]
    others = "".join(f'<tuv lang="{code}"><seg>x</seg></tuv>' for code in ("fr", "it"))
    path.write_text(path.read_text().replace("</tu>", f"{others}</tu>"))  # the control
    with pytest.raises(DragomanError, match="name two languages"):
        read_corpus([str(path)])


@pytest.mark.parametrize("place", ["first", "between"])
def test_skippable_frame_of_zstandard_is_skipped(tmp_path: Path, place: str):
    frames = [packed(tsv(CLEAN[:9]), "zstd"), packed(tsv(CLEAN[9:]), "zstd")]
    path = tmp_path / "a.tsv.zst"
    path.write_bytes(SKIPPABLE * (place == "first") + frames[0] + SKIPPABLE + frames[1])
    assert read_corpus([str(path)]).pairs == CLEAN
    path.rename(tmp_path / "a.tsv")
    with pytest.raises(DragomanError, match=r"compressed with Zstandard: give it a name that ends in \.zst"):
        read_corpus([str(tmp_path / "a.tsv")])
