"""Keep what must not change through a translation: find and compare it, take it out, and put it back."""

from dragoman.text.verbatim.detect import (
    KINDS,
    TAG_SIGN,
    TAGS,
    WITH_NUMBERS,
    Placeholder,
    compare,
    find,
    find_filled_in,
    find_matches,
)
from dragoman.text.verbatim.kinds import Finder
from dragoman.text.verbatim.numbers import StandIn, compare_numbers, mend_numbers, replace_stand_ins, with_stand_ins
from dragoman.text.verbatim.restore import Removed, remove, restore
from dragoman.text.verbatim.tags import inside_tags, tag_pairs

__all__ = [
    "KINDS",
    "TAGS",
    "TAG_SIGN",
    "WITH_NUMBERS",
    "Finder",
    "Placeholder",
    "Removed",
    "StandIn",
    "compare",
    "compare_numbers",
    "find",
    "find_filled_in",
    "find_matches",
    "inside_tags",
    "mend_numbers",
    "remove",
    "replace_stand_ins",
    "restore",
    "tag_pairs",
    "with_stand_ins",
]
