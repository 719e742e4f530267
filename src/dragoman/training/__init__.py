"""From sentence pairs to a model."""
