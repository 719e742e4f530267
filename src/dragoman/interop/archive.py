"""Unpack the zip file of a model of others: only plain files, no larger than such a file can be."""

import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from dragoman.errors import DragomanError
from dragoman.interop.sources import PLAIN_NAME
from dragoman.interop.tensors import ShortReads
from dragoman.storage.writing import name_errors

MAX_FILES = 1000
MAX_GROWTH, SPARE = 20, 64 << 20  # lists of words shrink to a quarter, weights to nine tenths
BLOCK = 1 << 20  # bytes


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a zip file into a new folder and return that in which the files are: `folder`, or the only one in it.

    Raise DragomanError where a name leads out of it, a file is a link or encrypted, or they are far too large.
    """
    folder.mkdir()
    try:
        with name_errors(archive), ShortReads(archive) as opened, zipfile.ZipFile(opened) as zipped:
            entries = [entry for entry in zipped.infolist() if not entry.is_dir()]
            check_entries(archive, entries)
            for entry in entries:
                with zipped.open(entry) as packed, (folder / PurePosixPath(entry.filename).name).open("xb") as out:
                    left = entry.file_size
                    while block := packed.read(BLOCK):
                        left -= len(block)
                        if left < 0:
                            raise ValueError(f"'{entry.filename:.100}' is longer than it says")
                        out.write(block)
    except (ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, FileExistsError) as error:
        raise DragomanError(f"{archive}: not a zip file that can be unpacked: {' '.join(str(error).split())}") from None
    return folder


def check_entries(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise ValueError where the files in a zip file are not plain ones in one folder, or too many or too large."""
    if len(entries) > MAX_FILES:
        raise ValueError(f"it has {len(entries):,} files")
    most = MAX_GROWTH * archive.stat().st_size + SPARE
    if (total := sum(entry.file_size for entry in entries)) > most:
        raise ValueError(f"its files would take {total:,} bytes, but it has {archive.stat().st_size:,}")
    folders = {PurePosixPath(entry.filename).parent for entry in entries}
    for entry in entries:
        path, kind = PurePosixPath(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
        if path.is_absolute() or ".." in path.parts or not PLAIN_NAME.fullmatch(path.name) or len(path.parts) > 2:
            raise ValueError(f"the name '{entry.filename:.100}' leads elsewhere")
        if kind not in (0, stat.S_IFREG):
            raise ValueError(f"'{entry.filename:.100}' is a link or a device")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # Python would unpack all at once
            raise ValueError(f"'{entry.filename:.100}' is not compressed with deflate")
        if entry.flag_bits & 1:
            raise ValueError(f"'{entry.filename:.100}' is encrypted")
    if len(folders) > 1:
        raise ValueError(f"its files are in {len(folders)} folders instead of one")
