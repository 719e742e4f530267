"""dragoman: train a Transformer on your own sentence pairs, look inside it, and put it to work."""

import os
from typing import TYPE_CHECKING

from dragoman.runtime.threads import configure_onednn, configure_openmp
from dragoman.version import __version__ as __version__

configure_openmp(os.environ)  # now, because OpenMP reads it when PyTorch is imported
configure_onednn(os.environ)

__all__ = [
    "Alternative",
    "AttentionConfig",
    "AttentionMap",
    "DragomanError",
    "FeedForwardConfig",
    "Glossary",
    "Inspection",
    "RecurrentConfig",
    "RunConfig",
    "Safeguards",
    "SearchConfig",
    "Tokenizer",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "UsageError",
    "evaluate",
    "export_model",
    "import_model",
    "inspect",
    "train",
    "upload_model",
    "view_figure",
]

if TYPE_CHECKING:  # what editors and type checkers read
    from dragoman.config import (
        AttentionConfig,
        FeedForwardConfig,
        RecurrentConfig,
        RunConfig,
        SearchConfig,
        TrainingConfig,
        TransformerConfig,
    )
    from dragoman.data.tokenizer import Tokenizer
    from dragoman.errors import DragomanError, UsageError
    from dragoman.evaluation.metrics import evaluate
    from dragoman.export.run import export_model
    from dragoman.export.upload import upload_model
    from dragoman.inspection.inspect import inspect
    from dragoman.inspection.inspection import AttentionMap, Inspection
    from dragoman.inspection.views import view_figure
    from dragoman.interop.importing import import_model
    from dragoman.model.transformer import Transformer
    from dragoman.text.glossary import Glossary
    from dragoman.training.loop import train
    from dragoman.translation.safeguards import Safeguards
    from dragoman.translation.translation import Alternative, Translation
    from dragoman.translation.translator import Translator
else:  # what happens: each name is imported when it is first used, so that the command line starts at once
    _MODULES = {
        "Alternative": "translation.translation",
        "AttentionConfig": "config",
        "AttentionMap": "inspection.inspection",
        "DragomanError": "errors",
        "FeedForwardConfig": "config",
        "Glossary": "text.glossary",
        "Inspection": "inspection.inspection",
        "RecurrentConfig": "config",
        "RunConfig": "config",
        "Safeguards": "translation.safeguards",
        "SearchConfig": "config",
        "Tokenizer": "data.tokenizer",
        "TrainingConfig": "config",
        "Transformer": "model.transformer",
        "TransformerConfig": "config",
        "Translation": "translation.translation",
        "Translator": "translation.translator",
        "UsageError": "errors",
        "evaluate": "evaluation.metrics",
        "export_model": "export.run",
        "import_model": "interop.importing",
        "inspect": "inspection.inspect",
        "train": "training.loop",
        "upload_model": "export.upload",
        "view_figure": "inspection.views",
    }

    def __getattr__(name):
        """Import a public name and return it. Raise AttributeError for any other."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module 'dragoman' has no attribute '{name}'")
        return getattr(import_module(f"dragoman.{_MODULES[name]}"), name)

    def __dir__():
        """Return the public names, which completion shows."""
        return [*__all__, "__version__"]
