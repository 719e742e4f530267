"""dragoman: train a Transformer on your own sentence pairs, look inside it, and put it to work."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

# Public names, each imported when it is first used, so that the command line starts at once.
_WHERE = {
    "AttentionConfig": "config",
    "DragomanError": "errors",
    "Inspection": "inspection.inspection",
    "RecurrentConfig": "config",
    "RunConfig": "config",
    "SearchConfig": "config",
    "Tokenizer": "data.tokenizer",
    "Transformer": "model",
    "TransformerConfig": "config",
    "Translation": "translation.translator",
    "Translator": "translation.translator",
    "evaluate": "evaluation.metrics",
    "inspect": "inspection.inspection",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dragoman' has no attribute '{name}'")
    return getattr(import_module(f"dragoman.{_WHERE[name]}"), name)
