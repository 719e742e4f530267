"""Find the files of a corpus in a ZIP archive, such as OPUS offers, and in a folder of Hugging Face's datasets.

A file in an archive is named as if the archive were a folder: `books.zip/Books.de-en.en`.
"""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from dragoman.data.lines import codec_of, display_path, is_language
from dragoman.errors import DragomanError, UsageError

Columns = tuple[str, str] | None
SHOWN = 6  # names in a message
OF_MAC = re.compile(r"(^|/)(__MACOSX/|\._)")  # what macOS puts beside each file in an archive
TABLES = ("*.arrow", "*.parquet", "data/*.parquet")


def is_container(word: str) -> bool:
    """Return whether a word names an archive, or a folder with the tables of a dataset."""
    path = Path(word)
    if path.suffix.lower() == ".zip":
        return not path.is_dir()
    return (path / "dataset_dict.json").is_file() or any(any(path.glob(pattern)) for pattern in TABLES)


def files_in(word: str, columns: Columns, of_pairs: Sequence[str]) -> tuple[list[tuple[str, ...]], Columns]:
    """Return the files of each corpus in a container, and the columns that are left to choose in them.

    columns: as given; of two texts in an archive they name the languages, and nothing is left to choose. of_pairs: the
    suffixes of files with both sides. Raise UsageError where it is not clear which files are meant, DragomanError for
    an archive that is missing or damaged.
    """
    if Path(word).is_dir():
        return [(file,) for file in tables_in(Path(word))], columns
    try:
        with zipfile.ZipFile(word) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except FileNotFoundError:
        raise DragomanError(f"{display_path(word)}: no such file") from None
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise DragomanError(f"{display_path(word)}: not a readable ZIP archive: {error}") from None
    names = [name for name in names if not OF_MAC.search(name)]
    both = [name for name in names if Path(name).suffix.lower() in of_pairs and not codec_of(name)]
    if len(both) == 1:
        return [(f"{word}/{both[0]}",)], columns
    texts = {
        language: [name for name in names if Path(name).suffix.lower() == f".{language.lower()}"]
        for language in columns or ()
    }
    if columns and not both and all(len(files) == 1 for files in texts.values()):
        return [tuple(f"{word}/{files[0]}" for files in texts.values())], None
    raise UsageError(f"{display_path(word)}: {advise(word, names, both)}")


def advise(word: str, names: list[str], both: list[str]) -> str:
    """Return what to name instead of an archive with these files, of which some have both sides."""
    if both:
        return f"several corpora in it; name those that you mean: {' '.join(f'{word}/{name}' for name in both[:SHOWN])}"
    texts: dict[str, str] = {}  # languages by the name without them
    for stem, language in ((Path(name).stem, Path(name).suffix[1:]) for name in names):
        if is_language(language) and texts.setdefault(stem, language) != language:
            languages = [texts[stem], language]
            orders = " or ".join(f"columns={','.join(order)}" for order in (languages, languages[::-1]))
            return f"two texts in it; say which is the source: {orders}"
    if not names:
        return "no file in it"
    some = " ".join(f"{word}/{name}" for name in names[:SHOWN])
    return f"no corpus that is told by its names; name a file in it, or two: {some}"


def tables_in(folder: Path) -> list[str]:
    """Return the tables of a dataset, in their order. Raise UsageError where they are of several splits or kinds."""
    if (folder / "dataset_dict.json").is_file():
        splits = [str(path) for path in sorted(folder.iterdir()) if path.is_dir()]
        raise UsageError(f"{display_path(str(folder))}: several splits in it; name one of them: {' '.join(splits)}")
    tables = [files for pattern in TABLES if (files := sorted(folder.glob(pattern)))]
    if len(tables) > 1:
        names = " or ".join(display_path(str(files[0])) for files in tables)
        raise UsageError(f"{display_path(str(folder))}: tables of several kinds; name the files that you mean: {names}")
    (files,) = tables
    if len(splits := sorted({file.name.split("-")[0] for file in files})) > 1:
        raise UsageError(
            f"{display_path(str(folder))}: several splits in it ({', '.join(splits)}); name the files that you mean: "
            f"{' '.join(map(str, files[:SHOWN]))}"
        )
    return list(map(str, files))
