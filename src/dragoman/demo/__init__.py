"""The built-in corpus and the demonstration that learns it."""
