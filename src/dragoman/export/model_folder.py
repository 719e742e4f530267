"""Copy a model folder for others: what translates, without the state of training, which is most of a checkpoint."""

import shutil
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.model_folder.manifest import OF_TRAINING, find_damage, read_manifest
from dragoman.storage.writing import CARD, new_folder
from dragoman.training.card import card_for_others


def copy_model(folder: Path, out: Path) -> int:
    """Copy the files of a model folder into the new folder `out`, byte for byte, and return how many bytes they have.

    The state of training stays behind, and so do the folders of corpora that the card names. Raise DragomanError where
    a copy is not what the manifest of the model says.
    """
    manifest = {name: entry for name, entry in read_manifest(folder).items() if name not in OF_TRAINING}
    with new_folder(out) as draft:
        for name in manifest:
            shutil.copyfile(folder / name, draft / name)
        if damage := next(find_damage(draft, manifest), None):
            raise DragomanError(f"{out}: not written: {damage._replace(file=folder / damage.file.name)}")
        (draft / CARD).write_text(card_for_others(folder), encoding="utf-8")
    return sum(size for size, _ in manifest.values())
