"""Write the reference of the public names from their docstrings: python scripts/api_reference.py FOLDER."""

import sys
from pathlib import Path

import pdoc

import dragoman


def main(folder: str) -> None:
    """Write index.html and dragoman.html into a folder."""
    for name in dragoman.__all__:
        setattr(dragoman, name, getattr(dragoman, name))  # pdoc shows no name that would be imported when it is used
    pdoc.render.configure(search=False, show_source=False)
    pdoc.pdoc("dragoman", "!dragoman.", output_directory=Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
