"""Work on strings alone, without a model: sentences, scripts, placeholders, glossary terms, faults of a translation."""
