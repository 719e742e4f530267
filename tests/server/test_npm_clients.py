"""What clients from npm send and get: deepl-node, libretranslate, translate."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packages import npm_packages
from serving import CONFIG, Running, running

from dragoman.server.keys import Key, digest
from dragoman.server.models import Models

TEXT = "The dog sees 4 red cats."
CLIENTS = Path(__file__).parents[1] / "npm"


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the lock."""
    files = {name: (CLIENTS / name).read_bytes() for name in ("package.json", "package-lock.json")}
    return npm_packages(files, "ci", request.config, tmp_path_factory)


@pytest.fixture(scope="module")
def server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a key and a folder."""
    keys = [Key("one", digest("first"))]
    with running(models, replace(CONFIG, state=str(tmp_path_factory.mktemp("state"))), keys) as started:
        yield started


def test_client_of_deepl_uses_a_memory(remembering: Models, packages: Path, tmp_path: Path):
    config = replace(CONFIG, memory=("memory",), state=str(tmp_path / "state"))
    unit = f'<tu><tuv xml:lang="en"><seg>{TEXT}</seg></tuv><tuv xml:lang="ko"><seg>개들</seg></tuv></tu>'
    (tmp_path / "cats.tmx").write_text(f'<tmx><header srclang="en"/><body>{unit}</body></tmx>', encoding="utf-8")
    with running(remembering, config, [Key("one", digest("first"))]) as server:
        command = ["node", CLIENTS / "memories.js", server.url, "first", TEXT, packages, tmp_path / "cats.tmx"]
        ran = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "memory": ["memory", "en", ["ko"], 0],
        "imported": ["completed", True],
        "count": 1,
        "segments": [[TEXT, "개들"]],
        "text": "개들",
        "left": 0,
    }
    assert "개들" in (tmp_path / "cats.tmx.exported").read_text(encoding="utf-8")


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
        "glossary": ["one", 1, {"dog": "개들"}],
        "dictionaries": [["en", "ko", 1], ["ko", "en", 1]],
        "glossaries": 0,
        "document": ["done", len(TEXT)],
        "refused": "AuthorizationError",
        "libretranslate": alone,
        "translate": alone,
    }
    assert "개들" in bound
    assert "target_lang" in error
