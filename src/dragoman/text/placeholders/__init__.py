"""Keep placeholders through a translation: find and compare them, take them out, and put them back."""

from dragoman.text.placeholders.detect import Placeholder, compare, find, find_filled_in
from dragoman.text.placeholders.restore import Removed, remove, restore
from dragoman.text.placeholders.tags import inside_tags

__all__ = ["Placeholder", "Removed", "compare", "find", "find_filled_in", "inside_tags", "remove", "restore"]
