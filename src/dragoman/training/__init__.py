"""Train a model on sentence pairs. `loop.train` is the entry point; each other file has one topic."""
