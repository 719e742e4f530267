"""Align words: which source words the model looked at for each word of a translation."""
