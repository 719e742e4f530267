"""XLIFF: which units are without a translation, and what is said of the others."""

import re

import pytest

from dragoman.documents import read_document

SEGMENTED = '<source>A one.</source><seg-source><mrk mid="1" mtype="seg">A one.</mrk></seg-source>'
QUOTED = '<source>It\'s &#8211; so\n  <x id="1"/> here</source>'


def xliff_12(unit: str) -> str:
    return f'<xliff version="1.2"><file><body><trans-unit id="1">{unit}</trans-unit></body></file></xliff>'


def xliff_2(segment: str, state: str) -> str:
    return f'<xliff version="2.0"><file><unit><segment state="{state}">{segment}</segment></unit></file></xliff>'


@pytest.mark.parametrize(
    "unit",
    [
        f'{SEGMENTED}<target><mrk mid="1" mtype="seg"/></target>',
        f'{SEGMENTED}<target>\n<mrk mid="1" mtype="seg"> </mrk></target>',
        f'{SEGMENTED}<target state="new">A one.</target>',
        f'{SEGMENTED}<target state="new"><mrk mid="1" mtype="seg">A  one.</mrk></target>',
        '<source>A <g id="1">one</g></source><target><g id="1"></g></target>',
        '<source>A <ph id="1">&lt;br></ph> one</source><target><ph id="1">&lt;br></ph></target>',
        f"{QUOTED}<target state=\"needs-l10n\">It&apos;s – so <x id='1' /> here</target>",
        "<source>A one.</source><target><!-- todo --></target>",
        '<source>A one.</source><target state="needs-translation"><![CDATA[A one.]]></target>',
    ],
)
def test_target_without_words_and_copy_of_the_source_are_filled(unit: str):
    document = read_document(xliff_12(unit).encode(), ".xlf")
    assert len(document.texts) == 1
    assert document.left == {"translated before": 0, "approved": 0}
    filled = document.fill(["Neu"]).decode()
    assert filled.count("<target") == 1
    assert "Neu" in filled


@pytest.mark.parametrize(
    ("unit", "left"),
    [
        (f"{SEGMENTED}<target>A one.</target>", "translated before"),
        (f'{SEGMENTED}<target state="new">Ein</target>', "translated before"),
        (f'{QUOTED}<target state="new">It\'s – so <x id="2"/> here</target>', "translated before"),
        (f'{QUOTED}<target state="new">It\'s – so here</target>', "translated before"),
        ("<source>A one.</source><target><![CDATA[Ein]]></target>", "translated before"),
        ('<source>A one.</source><target><mrk mtype="protected">One</mrk></target>', "translated before"),
    ],
)
def test_other_targets_are_left_alone_and_counted(unit: str, left: str):
    document = read_document(xliff_12(unit).encode(), ".xlf")
    assert document.texts == []
    assert document.left is not None
    assert document.left[left] == 1


@pytest.mark.parametrize(("state", "count"), [("initial", 1), ("translated", 0), ("final", 0)])
def test_copy_of_a_segment_is_filled_by_its_state(state: str, count: int):
    segment = "<source>A <pc id=\"1\">one</pc></source><target>A <pc id='1'>one</pc></target>"
    document = read_document(xliff_2(segment, state).encode(), ".xliff")
    assert len(document.texts) == count


def test_approved_units_are_counted_and_protected_ones_are_not():
    units = '<source>A</source></trans-unit><trans-unit approved="yes"><source>A</source><target/>'
    data = xliff_12(f'{units}</trans-unit><trans-unit translate="no"><source>B</source>')
    assert read_document(data.encode(), ".xlf").left == {"translated before": 0, "approved": 1}


def test_icu_message_of_angular_has_the_plural_forms_of_the_target():
    """Each branch has its own tags; a message stays where a translation lacks one, and where it is none."""
    message = "<source>{{n, plural, =0 {{No file}} one {{{0} file}} other {{{0} files}}}}</source>"
    for number in ("{n}", '<x id="n"/>', '<g id="n">#</g>'):
        document = read_document(xliff_12(message.format(number)).encode(), ".xlf", source="en", target="ru")
        filled = document.fill([f"[{text}]" for text in document.texts]).decode()
        target = filled[filled.index("<target") :]
        assert re.findall(r"(\S+) \{\[", target) == ["=0", "one", "few", "many", "other"]
        assert target.count(number) == 4
        assert not document.refused
        document.fill(["Nothing"] * len(document.texts))
        assert [reason for _, reason in document.refused if "its arguments" in reason]
    broken = read_document(xliff_12("<source>{n, plural, one {a}}</source>").encode(), ".xlf")
    assert (broken.texts, len(broken.skipped)) == ([], 1)
    assert "no message in ICU MessageFormat: 'n' has no branch 'other'" in broken.skipped[0].reason
