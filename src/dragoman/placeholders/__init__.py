"""What must come through a translation letter by letter: finding it, comparing it, taking it out, putting it back."""

from dragoman.placeholders.finding import Placeholder, compare, find
from dragoman.placeholders.taking import Taken, put_back, without

__all__ = ["Placeholder", "Taken", "compare", "find", "put_back", "without"]
