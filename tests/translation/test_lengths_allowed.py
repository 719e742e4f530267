from dataclasses import replace

import pytest

from dragoman.documents import read_document
from dragoman.errors import DragomanError
from dragoman.translation.limits import is_unsure, too_long, within_limits
from dragoman.translation.translation import Translation
from dragoman.translation.translator import Translator


def test_long_translation_gives_way_to_one_that_fits(reopened: Translator):
    """The control is a limit that no translation keeps, and none at all."""
    text = "A dog sees 2 cats."
    best = reopened.translate(text)
    shorter = [each.output for each in reopened.translate(text, beam=12, n_best=12).alternatives]
    limit = min(map(len, shorter))
    assert 0 < limit < len(best.output)
    kept, chosen, flagged = within_limits(reopened, [text] * 3, [best] * 3, [0, limit, 1], [""] * 3)
    assert kept == best
    assert 0 < len(chosen.output) <= limit
    assert (flagged.output, flagged.flags[-1]) == (best.output, too_long(best.output, 1))
    with pytest.raises(DragomanError, match="menu"):  # the searches have the tag of the text, which is unknown here
        within_limits(reopened, [text], [best], [1], ["menu"])


def test_limits_of_catalogues_are_those_of_their_texts():
    message = '#. {}\nmsgid "Open the file"\nmsgstr ""\n\n'
    comments = ["maxlength: 12", "Max. length 9!", "max characters = 5", "at most 7", "The maximum is fine"]
    catalogue = "".join(map(message.format, comments)).encode()
    assert read_document(catalogue, ".po").limits == [12, 9, 5, 0, 0]
    unit = "<trans-unit {}><source>Open the file</source></trans-unit>"
    attributes = ["maxwidth='9' size-unit='char'", "maxwidth='9' size-unit='pixel'", "maxwidth='9'", ""]
    units = "".join(map(unit.format, attributes))
    xliff = f"<xliff version='1.2'><file><body>{units}</body></file></xliff>".encode()
    assert read_document(xliff, ".xlf").limits == [9, 0, 0, 0]


def test_flag_says_how_long_a_translation_is():
    assert [too_long("abc", limit) for limit in (0, 2, 3)] == ["", "3 characters instead of 2", ""]


def test_mark_of_doubt_is_for_loops_and_losses_too():
    for flags, marked in (((), False), (("loop",), True), (("lost %d",), True), (("copied",), False)):
        translation = Translation("a b", 0.0, segments=(("x", "a b"),), flags=flags)
        assert [is_unsure(translation, 0, mark) for mark in ("fuzzy", "")] == [marked, False]
        assert is_unsure(translation, 1, "")
        assert is_unsure(replace(translation, text=""), 0, "")
