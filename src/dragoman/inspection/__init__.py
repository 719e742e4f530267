"""Look inside a model from outside: the model knows nothing of it, and its output stays the same to the bit."""

from pathlib import Path

CATALOGUE = Path(__file__).parent / "ko.po"  # texts of figures and of `dragoman insight` in Korean
