"""Search for token ids with a model, of which a search knows `start`, `step` and `select` alone."""
