"""What must come through a translation letter by letter: finding it, comparing it, taking it out, putting it back."""

from dragoman.text.placeholders.detect import Placeholder, compare, find
from dragoman.text.placeholders.restore import Removed, remove, restore

__all__ = ["Placeholder", "Removed", "compare", "find", "remove", "restore"]
