"""Packages from npm for tests, which are skipped where npm is not installed or reaches no registry."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman.storage.locks import lock_file

# What npm says where it reaches no registry.
NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT|E403|E50\d"
)


def npm_packages(
    files: Mapping[str, bytes], command: str, config: pytest.Config, factory: pytest.TempPathFactory
) -> Path:
    """Return a folder with the packages that package.json and the like name, which pytest keeps for the next run.

    files: their content by name; command: 'install', or 'ci' where a lock is among them.
    """
    if not (npm := shutil.which("npm")) or not shutil.which("node"):
        pytest.skip("no npm on this machine: install the packages nodejs and npm")
    cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
    kept = cache.mkdir("npm-packages") if cache else factory.mktemp("npm")
    folder = Path(kept) / hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    with lock_file(folder.with_suffix(".lock"), wait=True):  # several processes of pytest may want them at once
        if not (folder / "installed").exists():
            folder.mkdir(exist_ok=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
            flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0"]
            ran = subprocess.run([npm, command, *flags], cwd=folder, capture_output=True, text=True, timeout=120)
            if ran.returncode and NO_NETWORK.search(ran.stderr):
                pytest.skip("npm reaches no registry, so its packages are not tested")
            assert ran.returncode == 0, ran.stderr
            (folder / "installed").touch()
    return folder
