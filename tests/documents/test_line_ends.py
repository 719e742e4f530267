"""Line ends inside a text: a space, but nothing between two characters of scripts that have no spaces."""

import json
from pathlib import Path

import pytest

from dragoman.data.corpus import read_corpus
from dragoman.data.unspaced import drop_needless_line_ends
from dragoman.documents import read_document, read_text
from dragoman.documents.plain import paragraph_passages

WRAPPED, WHOLE = "这是第一行，\n这是“第二行”", "这是第一行，这是“第二行”"
KOREAN = "여기는 첫 줄\n둘째 줄"
FRAMES = {
    ".html": ["<p>{}</p>", '<p title="{}">7</p>', "<p><b>{}</b></p>"],
    ".md": ["{}\n", "![{}](a.png)\n"],
    ".srt": ["1\n00:00:01,000 --> 00:00:02,000\n{}\n"],
    ".vtt": ["WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n"],
    ".xlf": ["<xliff><trans-unit><source>{}</source></trans-unit></xliff>"],
}  # fmt: skip


@pytest.mark.parametrize(("suffix", "frame"), [(suffix, frame) for suffix in FRAMES for frame in FRAMES[suffix]])
def test_line_end_in_chinese_is_nothing_and_in_korean_a_space(suffix: str, frame: str):
    assert read_document(frame.format(WRAPPED).encode(), suffix).texts == [WHOLE]
    assert read_document(frame.format(KOREAN).encode(), suffix).texts == [KOREAN.replace("\n", " ")]


def test_lines_of_paragraphs_and_of_corpora_are_joined_alike(tmp_path: Path):
    assert read_text(WRAPPED, paragraph_passages).texts == [WHOLE]
    assert read_text(KOREAN, paragraph_passages).texts == [KOREAN.replace("\n", " ")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"source": WRAPPED, "target": KOREAN}))
    assert read_corpus([str(tmp_path / "a.jsonl")]).pairs == [(WHOLE, KOREAN.replace("\n", " "))]


@pytest.mark.parametrize(
    ("suffix", "data", "text"),
    [
        (".html", "<p>第一行\n<b>第二行</b>\n 第三行</p>", "第一行<b>第二行</b>第三行"),
        (".html", "<p>one\n<b>two</b>\n three</p>", "one <b>two</b> three"),
        (".md", "第一行\n**第二行**\n第三行\n", "第一行<strong>第二行</strong>第三行"),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>第一行</i>\n<i>第二行</i>\n", "<i>第一行</i><i>第二行</i>"),
    ],
)
def test_line_end_beside_a_tag_goes_by_the_words_around_it(suffix: str, data: str, text: str):
    assert read_document(data.encode(), suffix).texts == [text]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("中 \r\n\t文", "中文"), ("ー\nー", "ーー"), ("ก\nข", "กข"), ("。\n「", "。「"), ("中——\n文", "中——文"),
        ("中\nab", "中\nab"), ("ab\n中", "ab\n中"), ("가\n。", "가\n。"), ("中\u3000\n文", "中\u3000\n文"),
        ("བོད་\nསྐད", "བོད་སྐད"), ("ཡིན།\nང་", "ཡིན།\nང་"), ("“\n”", "“\n”"), ("😀\n😀", "😀\n😀"), ("中 文", "中 文"),
    ],
)  # fmt: skip
def test_line_end_is_needless_between_wide_characters_alone(text: str, joined: str):
    assert drop_needless_line_ends(text) == joined
