"""From sentence pairs to a model. `loop.train` is the way in and tells the story; each other file has one topic."""
