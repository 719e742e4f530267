"""Keep placeholders through a translation: find and compare them, take them out, and put them back."""

from dragoman.text.placeholders.detect import Placeholder, compare, find
from dragoman.text.placeholders.restore import Removed, remove, restore
from dragoman.text.placeholders.tags import inside_tags

__all__ = ["Placeholder", "Removed", "compare", "find", "inside_tags", "remove", "restore"]
