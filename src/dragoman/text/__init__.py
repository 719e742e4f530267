"""Work on strings alone, without a model: sentences, placeholders, glossary terms, faults of a translation."""
