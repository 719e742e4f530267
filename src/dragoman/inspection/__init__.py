"""Look inside a model from outside: the model knows nothing of it, and its output stays the same to the bit."""
