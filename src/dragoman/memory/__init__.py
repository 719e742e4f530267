"""Remember approved pairs: a correction counts from the next sentence on, and each word can name its source.

The decoder's states over the pairs are kept with the pairs, and a search looks up those nearest to its own state
(nearest-neighbour translation, Khandelwal et al. 2021).
"""

from dragoman.memory.memory import Memory, create_memory
from dragoman.memory.pairs import ApprovedPair

__all__ = ["ApprovedPair", "Memory", "create_memory"]
