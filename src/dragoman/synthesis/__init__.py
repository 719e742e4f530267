"""Sentence pairs that a model makes: for a student (distillation), or from text in the target language alone."""
