"""The built-in corpus and the demonstration that learns it."""

from pathlib import Path

CATALOGUE = Path(__file__).parent / "ko.po"  # what the demonstration prints, in Korean
