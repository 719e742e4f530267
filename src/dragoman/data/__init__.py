"""Sentence pairs: files in many formats, subwords, the tokenised corpus on disk, batches."""
