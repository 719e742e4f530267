"""Align words: which source words the model attended to for each word of a translation."""
