"""Sentences and pieces: nothing is lost, sentences stay whole, and each piece fits."""

from collections.abc import Callable
from itertools import accumulate

import pytest
import regex
import sentences
from growth import grows_too_fast, processor_seconds
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.segmentation import split_sentences, split_to_fit

MARKED = [
    # No mark here is the end of a sentence unless a bar says so.
    "He left. |She stayed! |Why? |Nobody knows.",
    "Dr. Smith and Mrs. Jones paid 3.5 million. |Then J. R. R. Tolkien came.",
    "See No. 5 and Fig. 3, pp. 7 ff. of it. |No. |I said so.",
    "Use e.g. this or i.e. that. |U.S. troops left.",
    "Das geschah am 3. Oktober, z. B. unter Ludwig XIV. von Frankreich. |Hr. Maier kam bzw. ging.",
    "Er kam an ihrem 18. Geburtstag, bis zum 3. Mai, seit Mitte des 19. Jahrhunderts. |Den 2. Teil mag ich.",
    "She starts on December 16. |Could you come? |I need 12. |Take\u00a05. |Then go.",
    "1. Open it. |2. Close it. |See no. 3. It is 5. 6 are left.",
    "¿Qué? |¡Ay! |El Sr. López vive en EE. UU. desde 1999. |Bien.",
    'He said "Stop!" and left. |"Really?" |She nodded. |(It was late.) |Good.',
    "Well… maybe. |Wait… |What?",
    "Visit example.com or mail a.b@c.org?x=1 now. |Version 2.0.1 is out!",
    "« Quoi\u00a0!\u00a0» dit-il. |Puis rien.",
    "„Komm!“ rief er. |Sie kam.",
    "他走了。|“你好！”|她说。|温度是３．５度。|真的吗？！|是的。",
    "「もう終わりだ。」と彼は言った。|行こう！",
    "안녕하세요. |잘 지내세요? |네. |iPhone이에요.",
    "यह एक है। |वह दो है।",
    "هل أنت هنا؟ |نعم.",
    "One\n\n|two lines\nof a paragraph.\n\n|three",
    "Wow‼️ |Next ... |End",
]

TAGGED = [
    "<b>One.</b> |Two.",
    "One.<br> |Two.",
    "One.<br/>\n|Two.",
    "One.<br />|Two.<br><br>|Three. <BR>|Four.",
    "One.</p>|<p>Two.",
    "<b>One.</b> |<i>Two.</i>",
    "<b>One.</b>|<i>Two.</i>",
    "<b>One. |Two.</b>",
    '<a href="x">"One."</a> |<a href="y">"Two."</a>',
    "(<i>One.</i>) |Two.",
    "Dear {name},<br>|see e.g.<br>|this.<br>|Yours,<br>|Ann",
    "One.<sup>1</sup> |Two.",
    'One.<sup class="n"><a href="#1">[1]</a></sup> |Two.',
    'One.<x id="1"/> |Two.',
    "One.[1] |Two.[^2] |Three.[^three] |Four.",
    "**One.** |__Two.__ |Three.",
    "One!😀 |Two.👍🏽|Three.❤️ |Four.",
    "<b>一。</b>|<i>二。</i>|三。",
    # None of these ends a sentence.
    "See <b>Fig. 1.</b> for it, or <i>e.g.</i> Two, <b>etc.</b> <i>and</i> so on.",
    "Ask <b>Dr.</b> <i>Smith</i>, <b>Inc.</b>, or <b>example.</b>com.",
    "Open libx.so.* or a.[b](c) or System.<b>Out</b> now.",
]

FRAGMENTS = [
    "a", "B", "word ", "Mr", ". ", ".", "!", "? ", "…", "。", "」", "と", "“", '" ', ")", " (", "\n", "\n\n", " ", "3",
    "<br>", "<b>", "</b>", "[1]", "<sup>1</sup>", '<x id="1"/>', "**", "😀", "{x}",
    "é", "e\u0301", "\u200d", "👩\u200d👧", "🇰🇷", "한국", ", ", "、", ";", "\ud800", "\0", "\u2028", "\u00a0",
]  # fmt: skip
texts = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join))


def at_most(length: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= length


@pytest.mark.parametrize("marked", [*MARKED, *TAGGED])
def test_sentences_end_where_they_end(marked: str):
    assert split_sentences(marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize(
    "inside", ["{# One. Two! #}", '<%= "One. Two?" %>', "<a title='One. Two.'>", "`Run it. Then stop.`"]
)
def test_sentences_never_end_inside_a_placeholder(inside: str):
    """The control is the same without what makes it one."""
    text = f"One of them. And {inside} two. {inside} Three."
    assert split_sentences(text) == ["One of them. ", f"And {inside} two. ", f"{inside} Three."]
    assert len(split_sentences(text.replace(inside, inside[2:]))) > 3


def test_cutting_after_each_full_stop_is_not_enough():
    """The control for the test above."""
    cut = [regex.split(r"(?<=[.!?] )", marked.replace("|", "")) for marked in MARKED]
    assert sum(found != marked.split("|") for found, marked in zip(cut, MARKED, strict=True)) > len(MARKED) / 2


def test_sentences_stay_one_where_the_end_is_in_doubt():
    """Nothing is torn in texts of many kinds, and few ends are overlooked."""
    marked = [text for _, texts in sentences.MARKED.values() for text in texts]
    for text in marked:
        assert set(cuts(split_sentences(text.replace("|", "")))) <= set(cuts(text.split("|"))), text
    assert sum(split_sentences(text.replace("|", "")) == text.split("|") for text in marked) >= 101
    naive = [regex.split(r"(?<=[.!?] )", text.replace("|", "")) for text in marked]  # the control: tears
    assert not all(set(cuts(parts)) <= set(cuts(text.split("|"))) for parts, text in zip(naive, marked, strict=True))


def cuts(parts: list[str]) -> list[int]:
    """Return the indices at which a text is cut into these parts."""
    return list(accumulate(map(len, parts)))


@settings(max_examples=200)
@given(texts, st.integers(1, 30))
def test_sentences_and_pieces_joined_are_the_text_and_each_piece_fits(text: str, length: int):
    sentences, pieces = split_sentences(text), split_to_fit(text, at_most(length))
    assert "".join(sentences) == "".join(pieces) == text
    assert all(sentences)
    assert all(0 < len(piece) <= length for piece in pieces)


@given(
    st.lists(st.text("ab ", max_size=8).map(lambda words: f"X{words}bab. "), min_size=1, max_size=12),
    st.integers(14, 40),
)
def test_pieces_are_whole_sentences_and_as_few_as_possible(parts: list[str], length: int):
    text = "".join(parts)
    found = split_to_fit(text, at_most(length))
    assert split_sentences(text) == parts
    assert [part for piece in found for part in split_sentences(piece)] == parts
    assert len(found) == fewest([len(part) for part in parts], length)
    assert fewest([3, 3, 3], 6) == 2 < 3  # the control: fewer than one for each sentence


def fewest(lengths: list[int], most: int) -> int:
    """The least number of groups of neighbours with a sum of at most `most`, by trying all."""
    best = [0]
    for end in range(1, len(lengths) + 1):
        best.append(min(best[start] + 1 for start in range(end) if sum(lengths[start:end]) <= most))
    return best[-1]


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("", 9, []),
        ("One. Two.", 9, ["One. Two."]),
        ("Short. When it rains, we stay, and read.", 16, ["Short. ", "When it rains, ", "we stay, ", "and read."]),
        ("天気が悪いので、家で本を読む。終わり。", 10, ["天気が悪いので、", "家で本を読む。", "終わり。"]),
        ("one two three four", 9, ["one two ", "three ", "four"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"]),
        ("👩\u200d👧👩\u200d👧", 5, ["👩\u200d👧", "👩\u200d👧"]),
        ("🇰🇷🇩🇪", 3, ["🇰🇷", "🇩🇪"]),
        ("e\u0301\u0302", 1, ["e", "\u0301", "\u0302"]),
        ("ab", 0, ["a", "b"]),  # a character that does not fit stays
    ],
)
def test_split_to_fit_cuts_at_clauses_then_words_then_characters(text: str, length: int, expected: list[str]):
    assert split_to_fit(text, at_most(length)) == expected


@pytest.mark.parametrize("unit", ["It is so. ", "word ", "x", "clause, ", "漢。", "e\u0301"])
def test_few_characters_are_asked_about(unit: str):
    text = (unit * 50_000)[:50_000]
    asked: list[int] = []

    def fits(piece: str) -> bool:
        asked.append(len(piece))
        return len(piece) <= 500

    split_to_fit(text, fits)
    assert sum(asked) < 20 * len(text)
    assert len(asked) < 20 * len(text) / 500 + 20
    assert sum(range(10, 501, 10)) > 20 * 500  # the control: for a piece that grows by a sentence at a time


NONSENSE = [
    ".", ".)", "A. ", "\n ", "🇩🇪", "e\u0301", "👩\u200d", " ", "?\u00a0", "。」", "Mr. 5", "<br", ".</b", '. <a b="',
    ".<sup>", ".[1", ".**", ".😀", ".<a/",
]  # fmt: skip
MORE = ['."', "!“", "1.", "\u0301", ",", "<br> ", ".</b>", ". <a"]  # each takes the way of one of those


@pytest.mark.parametrize("unit", [*NONSENSE, *(pytest.param(unit, marks=pytest.mark.slow) for unit in MORE)])
def test_long_nonsense_is_cut_in_linear_time(unit: str):
    def cut(text: str) -> None:
        assert "".join(split_sentences(text)) == text
        assert "".join(split_to_fit(text, at_most(500))) == text

    assert not grows_too_fast(lambda size: processor_seconds(lambda: cut(unit * (size // len(unit)))), 5_000)
