"""Put a model folder on the Hugging Face Hub: `dragoman upload`."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from dragoman.config.fields import check_argument
from dragoman.errors import UsageError, plural
from dragoman.export.readme import read_usage
from dragoman.model_folder import fetch_model, read_model
from dragoman.model_folder.manifest import OF_TRAINING
from dragoman.storage.hub import Repository
from dragoman.storage.records import read_json
from dragoman.storage.writing import CARD, MANIFEST
from dragoman.text.languages import read_languages
from dragoman.text.origin import Origin
from dragoman.training.card import card_for_others

README = "README.md"
LICENCE = re.compile(r"[a-z][a-z0-9.-]{1,40}")  # such as cc-by-nc-4.0, as the Hub names them


@dataclass(frozen=True)
class Upload:
    """What was uploaded: the name that the model has now, how many files and bytes, and the address of the commit."""

    name: str
    files: int
    bytes: int
    commit: str

    def __str__(self) -> str:
        return f"{plural(self.files, 'file')}, {self.bytes / 1e6:,.1f} MB: {self.commit}"


def upload_model(model: str | Path, name: str, *, private: bool = False) -> Upload:
    """Put a model on the Hugging Face Hub, where it is opened by its name.

    model: a model folder or run folder; name: 'hub:USER/NAME', a repository that is made if there is none; private: for
    its owner alone. The model is read and compared with its manifest first. Its files go along byte for byte, without
    the state of a training, and its card once more, as the README.md that the Hub shows.

    Raise UsageError for a name that is none, DragomanError where the model is damaged and as `Repository.upload` does.
    """
    check_argument("model", model, str | Path)
    check_argument("name", name, str)
    repository = Repository.parse(name)
    if repository.revision:
        raise UsageError(f"{name}: what is uploaded becomes the newest version: leave out @{repository.revision}")
    folder = fetch_model(Path(model))
    read_model(folder)
    manifest = {file: entry for file, entry in read_json(folder / MANIFEST).items() if file not in (*OF_TRAINING, CARD)}
    card = card_for_others(folder)
    written = {
        MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode(),
        CARD: card.encode(),
        README: (front_matter(folder) + card + read_usage("hub").format(name=name)).encode(),
    }
    files = {file: folder / file for file in manifest} | written
    commit = repository.upload(files, f"Upload {folder.name}", private=private)
    size = sum(entry["bytes"] for entry in manifest.values()) + sum(map(len, written.values()))
    return Upload(name, len(files), size, commit)


def front_matter(folder: Path) -> str:
    """Return what the Hub wants to know of a model, in YAML: its task, its languages and licence if they are known."""
    languages, origin = read_languages(folder), Origin.load(folder)
    lines = ["library_name: dragoman", "pipeline_tag: translation"]
    if languages:
        codes = dict.fromkeys(code.split("-")[0] for code in (languages.source, languages.target))
        lines += ["language:", *(f"- {json.dumps(code)}" for code in codes)]  # quoted: 'no' is false in YAML
    if origin and LICENCE.fullmatch(origin.licence):
        lines.append(f"license: {origin.licence}")
    return "\n".join(["---", *lines, "---", "", ""])
