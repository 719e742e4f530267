"""Compile transformer.cpp, once for each level of instructions. Without a compiler, dragoman searches in PyTorch.

CXX in the environment names another compiler than the first of c++, g++ and clang++, such as "python -m ziglang c++",
and CXXFLAGS has more flags for it.
Archives have the same bytes whoever builds them, if SOURCE_DATE_EPOCH is set: their files have its date, and
permissions that do not depend on the builder's. All other settings are in pyproject.toml.
"""

import gzip
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

FOLDER = Path("src/dragoman/inference")
SOURCES = ("kernels.h", "transformer.cpp")
# -ffp-contract=off: a product and a sum are rounded as the source says, or rows beside a row could change its bits.
FLAGS = (
    "-std=c++17 -O3 -shared -fPIC -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-exceptions -fno-rtti -lm"
)
# The names of native.py.
LEVELS = {
    "x86_64": {
        "x86-64-v4": "-march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512",
        "x86-64-v3": "-march=x86-64-v3",
        "x86-64": "-march=x86-64",
    },
    "aarch64": {"armv8.2": "-march=armv8.2-a+dotprod", "armv8": "-march=armv8-a"},
}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "universal2": "aarch64"}


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler; [] where there is none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    return [path for path in map(shutil.which, ("c++", "g++", "clang++")) if path][:1]


class BuildLibraries(build_ext):
    """Build plain libraries instead of an extension of Python."""

    def build_extension(self, ext: Extension) -> None:
        """Compile the libraries of this platform; a failure is reported, and there is no library then."""
        compiler = find_compiler()
        machine = sysconfig.get_platform().rpartition("-")[2]
        levels = LEVELS.get(MACHINES.get(machine, machine), {})
        folder = Path(self.build_lib, *FOLDER.parts[1:])
        folder.mkdir(parents=True, exist_ok=True)
        stamp = hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
        if not compiler:
            print("no C++ compiler: dragoman will search in PyTorch. Install g++ or clang, and install dragoman again.")
            return
        for level, flags in levels.items():
            library = folder / f"transformer-{level}.so"
            command = [*compiler, *FLAGS.split(), *flags.split(), f'-DSTAMP="{stamp}"', str(FOLDER / SOURCES[1])]
            command += shlex.split(os.environ.get("CXXFLAGS", ""))
            try:
                subprocess.run([*command, "-o", str(library)], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"without {library.name}: {error}", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        """Copy the libraries to where an editable installation looks for them."""
        for library in self.get_outputs():
            # Not over one in use, which would end the process that uses it.
            draft = FOLDER / f".{Path(library).name}"
            shutil.copy(library, draft)
            draft.replace(FOLDER / Path(library).name)

    def get_outputs(self) -> list[str]:
        """Return the libraries that were built."""
        return [str(path) for path in Path(self.build_lib).rglob("transformer-*.so")]

    def get_output_mapping(self) -> dict[str, str]:
        """Return {}: nothing is to be linked."""
        return {}


class PlatformWheel(bdist_wheel):
    """Name the platform, and no Python: the libraries do without Python's interface."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel."""
        tags: Any = super().get_tag()
        return "py3", "none", tags[2]


class PlainArchive(sdist):
    """Pack the files in the order of their names, with one date and no owner."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files. setuptools copies a folder by the first link to it alone: undo that, and copy the links."""
        super().make_release_tree(base_dir, files)
        for link in sorted(path for path in Path("tests").rglob("*") if path.is_symlink()):
            copy, target = Path(base_dir, link), link.readlink()
            folder = copy.parent / target
            if copy.is_dir() and not folder.exists():
                folder.parent.mkdir(parents=True)
                copy.rename(folder)
            copy.symlink_to(target)

    def make_archive(self, base_name: str, format: str, root_dir: Any = None, base_dir: Any = None, **_: Any) -> str:
        """Write the archive of the folder `base_dir`; return its path."""
        date = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.mode = date, 0o755 if member.mode & 0o100 else 0o644
            member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
            return member

        path = f"{base_name}.tar.gz"
        with gzip.GzipFile(path, "wb", mtime=date) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for file in sorted(path for path in Path(base_dir).rglob("*") if path.is_symlink() or path.is_file()):
                archive.add(file, filter=plain)
        return path


os.umask(0o022)  # the permissions of the files in a wheel
setup(
    ext_modules=[Extension("dragoman.inference.transformer", [str(FOLDER / SOURCES[1])], optional=True)],
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": PlatformWheel, "sdist": PlainArchive},
)
