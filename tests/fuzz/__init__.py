"""Coverage-guided fuzzing of all readers of strangers' bytes: `make fuzz`, which runs `python -m fuzz`."""
