"""Model folders: config.json, model.safetensors, tokenizers, card.md and a manifest that vouches for the others.

Nothing in them is code, and nothing in them is trusted: they come from strangers.
"""

from dragoman.model_folder.folder import (
    add_record,
    copy_records,
    fetch_model,
    load_model,
    read_config,
    read_model,
    read_parts,
    write_model,
)
from dragoman.model_folder.manifest import verify_files

__all__ = [
    "add_record",
    "copy_records",
    "fetch_model",
    "load_model",
    "read_config",
    "read_model",
    "read_parts",
    "verify_files",
    "write_model",
]
