"""Turn text into text: the translator, its second search, its safeguards, and what a model says of a translation."""
