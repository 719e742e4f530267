"""A Hugging Face Hub on this machine: the parts of its HTTP API that its library uses for models."""

import base64
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_" + "s3cret" * 5


@dataclass
class Kept:
    """A repository: its versions by their commit, the newest last, and the commits of branches and tags."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: dict[str, bytes], *names: str) -> str:
        """Add a version with these files, and let the branch main and other names mean it."""
        sha = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[sha] = files
        self.names |= dict.fromkeys(("main", *names), sha)
        return sha

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the branch main."""
        return self.commits[self.names["main"]]


class FakeHub(ThreadingHTTPServer):
    """A Hub with repositories by their id; `asked`: each request; `short`: files that are sent without their end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Kept] = {}
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.short: set[str] = set()
        self.down = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, id: str, files: dict[str, bytes], *names: str, **kind: bool) -> str:
        """Add a version to a repository, which is made if there is none; return its commit."""
        return self.repositories.setdefault(id, Kept(**kind)).commit(files, *names)

    def downloads(self) -> list[str]:
        """The names of the files that were downloaded, in order."""
        return [line.split("/")[-1] for line in self.asked if line.startswith("GET") and "/resolve/" in line]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(self.path).path.split("/")[1:]]
        if self.server.down:
            return self.answer(500, {}, "Internal", "our disks are full")
        match path:
            case [user, name, "resolve", revision, *file]:
                self.send_file(f"{user}/{name}", revision, "/".join(file))
            case ["api", "models", user, name, *revision] if revision[:1] in ([], ["revision"]):
                self.describe(f"{user}/{name}", revision[1] if revision else "main")
            case ["api", "validate-yaml"]:
                self.answer(200, {})
            case ["lfs", oid]:
                self.server.objects[oid] = body
                self.answer(200, {})
            case _ if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, {}, "", "Invalid credentials in Authorization header")
            case ["api", "repos", "create"]:
                self.create(json.loads(body))
            case ["api", "models", _, _, "preupload", _]:
                files = json.loads(body)["files"]
                kinds = ["lfs" if file["path"].endswith(".safetensors") else "regular" for file in files]
                modes = [
                    {"path": file["path"], "uploadMode": kind, "shouldIgnore": False}
                    for file, kind in zip(files, kinds, strict=True)
                ]
                self.answer(200, {"files": modes})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = json.loads(body)["objects"]
                for each in objects:
                    each["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{each['oid']}"}}
                self.answer(200, {"transfer": "basic", "objects": objects})
            case ["api", "models", user, name, "commit", "main"]:
                self.add_commit(f"{user}/{name}", [json.loads(line) for line in body.splitlines()])
            case _:
                self.answer(404, {})

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def find(self, id: str, revision: str) -> tuple[Kept, str] | None:
        """Return a repository and a commit; None where something is against it, which was then answered."""
        kept, known = self.server.repositories.get(id), self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if kept is None or (kept.private and not known):
            self.answer(401 if not known else 404, {}, "RepoNotFound", "Repository not found")
        elif kept.gated and not known:
            self.answer(401, {}, "GatedRepo", "Access is restricted")
        elif (sha := kept.names.get(revision, revision)) not in kept.commits and kept.commits:
            self.answer(404, {}, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return kept, sha
        return None

    def send_file(self, id: str, revision: str, name: str) -> None:
        if (found := self.find(id, revision)) is None:
            return
        kept, sha = found
        if name not in kept.commits.get(sha, {}):
            return self.answer(404, {}, "EntryNotFound", "Entry not found", **{"X-Repo-Commit": sha})
        data = kept.commits[sha][name]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        if self.command == "GET" and name in self.server.short:
            data = data[:-1]
        self.answer(200, data, **headers)

    def describe(self, id: str, revision: str) -> None:
        if (found := self.find(id, revision)) is None:
            return
        kept, sha = found
        siblings = [{"rfilename": name} for name in kept.commits.get(sha, {".gitattributes": b""})]
        self.answer(200, {"id": id, "sha": sha, "private": kept.private, "siblings": siblings, "tags": []})

    def create(self, wanted: dict[str, Any]) -> None:
        id = f"{wanted['organization']}/{wanted['name']}"
        there = id in self.server.repositories
        if not there:
            self.server.repositories[id] = Kept(private=wanted.get("visibility") == "private")
        self.answer(409 if there else 200, {"url": f"{self.server.url}/{id}"})

    def add_commit(self, id: str, lines: list[dict[str, Any]]) -> None:
        kept = self.server.repositories[id]
        files = dict(kept.files) if kept.commits else {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        sha = kept.commit(files)
        self.answer(200, {"commitUrl": f"{self.server.url}/{id}/commit/{sha}", "commitOid": sha})

    def answer(self, status: int, content: Any, code: str = "", message: str = "", **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        named = {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": str(len(data)), **headers}
        for name, value in named.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def running() -> Iterator[FakeHub]:
    """Serve a Hub without repositories for the block."""
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
