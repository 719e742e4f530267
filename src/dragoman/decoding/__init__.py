"""From a model to token ids. Search knows `start`, `step` and `select`, and nothing else of a model."""
