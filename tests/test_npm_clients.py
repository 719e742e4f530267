"""What clients from npm send and get: deepl-node, libretranslate, translate."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Running, running

from dragoman.server.keys import Key, digest
from dragoman.server.models import Models

TEXT = "The dog sees 4 red cats."
CLIENTS = Path(__file__).parent / "npm"
# What npm says where it reaches no registry.
NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT|E403|E50\d"
)


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the lock, which pytest keeps for the next run."""
    if not (npm := shutil.which("npm")) or not shutil.which("node"):
        pytest.skip("no npm on this machine: install the packages nodejs and npm")
    lock = (CLIENTS / "package-lock.json").read_bytes()
    cache = getattr(request.config, "cache", None)  # none with -p no:cacheprovider
    kept = cache.mkdir("npm-clients") if cache else tmp_path_factory.mktemp("npm")
    folder = Path(kept) / hashlib.sha256(lock).hexdigest()[:16]
    if not (folder / "installed").exists():
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(CLIENTS / name, folder)
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0"]
        ran = subprocess.run([npm, "ci", *flags], cwd=folder, capture_output=True, text=True, timeout=120)
        if ran.returncode and NO_NETWORK.search(ran.stderr):
            pytest.skip("npm reaches no registry, so its clients are not tested")
        assert ran.returncode == 0, ran.stderr
        (folder / "installed").touch()
    return folder


@pytest.fixture(scope="module")
def server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a key and a folder."""
    keys = [Key("one", digest("first"))]
    with running(models, replace(CONFIG, state=str(tmp_path_factory.mktemp("state"))), keys) as started:
        yield started


def test_clients_from_npm_are_answered(server: Running, packages: Path, models: Models):
    alone = next(iter(models.by_pair.values())).translator.translate(TEXT).text
    command = ["node", str(CLIENTS / "clients.js"), server.url, "first", TEXT, str(packages)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    bound, error = found.pop("bound"), found.pop("error")
    assert found == {
        "texts": [[alone, "en", len(TEXT)], ["7", "en", 1]],
        "detected": "en",
        "html": f"<p>{alone}</p>",
        "xml": f"<s>{alone}</s><k>dog</k>",
        "fast": "latency_optimized",
        "sources": ["en"],
        "targets": [["ko", False]],
        "pairs": [["en", "ko"]],
        "used": 8,
        "glossary": ["one", 1, {"dog": "강아지"}],
        "dictionaries": [["en", "ko", 1], ["ko", "en", 1]],
        "glossaries": 0,
        "document": ["done", len(TEXT)],
        "refused": "AuthorizationError",
        "libretranslate": alone,
        "translate": alone,
    }
    assert "강아지" in bound
    assert "target_lang" in error
