"""Settings of the server."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dragoman.config.fields import (
    MAX_BEAMS,
    MAX_WAIT,
    Count,
    CountOrZero,
    Threads,
    Wait,
    at_least,
    at_most,
    check_fields,
    short_repr,
)
from dragoman.config.search import ComputeType, EngineName
from dragoman.config.training import Device
from dragoman.errors import UsageError

MAX_PORT = 65535
MAX_PROCESSES = 1024
MAX_CACHE = 1 << 20  # MB
MAX_BATCHES = 64
MAX_INSPECTED = 1024  # tokens
NAME = re.compile(r"[A-Za-z0-9._-]+")
ORIGIN = re.compile(r"\*|[A-Za-z*][A-Za-z0-9+.*-]*://[^/\s]+")


@dataclass(frozen=True)
class ServeConfig:
    """Describe what is served, where, to whom, and within which limits."""

    model: tuple[str, ...] = ()
    "FOLDER; en-de=FOLDER if it records no languages; en-de=FOLDER:TAG to tag its texts; en,de=FOLDER for some of many"
    pivot: str | None = None
    "language, such as en, through which to translate pairs without a model"
    host: str = "127.0.0.1"
    "address to listen on; 0.0.0.0 lets other machines in, and needs --api-keys or --open"
    port: Annotated[int, at_least(0), at_most(MAX_PORT)] = 5000
    "port to listen on; 0: any free one"
    engine: EngineName = "native"
    "search engine; ctranslate2 is usually the fastest on CPUs, but cannot drop a batch that nobody is waiting for"
    compute_type: ComputeType = "float32"
    "data type of matmuls, on a GPU float32 or bfloat16; auto: the fastest in batches here"
    device: Device = "auto"
    "where the native engine computes"
    threads: Threads | None = None
    "CPU threads of each search; default: the cores that the server may use, shared by its processes; ctranslate2: 1"
    processes: Annotated[int, at_least(1), at_most(MAX_PROCESSES)] = 1
    "server processes, each with its own models; one that dies is replaced"
    replicas: Threads | None = None
    "batches that ctranslate2 searches at the same time; default: as many as keep all cores busy"
    batches: Annotated[int, at_least(1), at_most(MAX_BATCHES)] = 2
    "batches that the native engine steps in turn, so that a short text does not wait for the end of a long one"
    gather: Annotated[float, at_least(0), at_most(MAX_WAIT)] = 0.01
    "seconds that a text waits for others to join it while a batch is searched"
    beam: Annotated[int, at_least(1), at_most(MAX_BEAMS)] = 4
    "beam size of requests that do not set one"
    max_beam: Annotated[int, at_least(1), at_most(MAX_BEAMS)] = 8
    "largest beam size that a request may ask for; alternatives are limited to one less"
    patience: Annotated[float, at_least(1), at_most(MAX_BEAMS)] | None = None
    "end a search after patience * beam finished hypotheses, 1 for speed; default: once no other is likely to win"
    deadline: Wait = 30.0
    "seconds after which an unfinished request gets an error"
    max_wait: Wait = 4.0
    "refuse a request (503, with Retry-After) that would wait longer than this many seconds"
    requests: Annotated[int, at_least(1), at_most(1024)] = 64
    "requests that are translated at the same time; more are refused (503)"
    cache: Annotated[int, at_least(0), at_most(MAX_CACHE)] = 64
    "megabytes of cached results for each model; 0: no cache"
    texts: Count = 1000
    "maximum number of texts in a request"
    characters: Count = 100_000
    "maximum number of characters in a request, over all of its texts"
    keep: tuple[str, ...] = ()
    "regular expression for what translations keep unchanged, besides what docs/verbatim.md lists"
    min_confidence: Annotated[float, at_least(0), at_most(1)] = 0.0
    "leave out translations that the model is less sure of than this, from 0 to 1: they are empty, and flagged"
    inspect_tokens: Annotated[int, at_least(0), at_most(MAX_INSPECTED)] = 128
    "maximum number of tokens on each side of an inspected sentence; 0: no inspections"
    rate: CountOrZero = 1_000_000
    "characters per minute for each key, or without keys for each IP address; 0: no limit"
    api_keys: str | None = None
    "file with the keys that requests need; --new-key adds a key to it"
    open: bool = False
    "serve everybody who can reach --host, without keys"
    host_name: tuple[str, ...] = ()
    "name by which clients reach the server, such as translate.example.org; IP addresses and localhost need none"
    allow_origin: tuple[str, ...] = ()
    "origin of web pages that may use the server, such as https://example.org or chrome-extension://*"
    proxy: tuple[str, ...] = ()
    "address of a reverse proxy, whose X-Forwarded-For is then trusted"
    state: str | None = None
    "folder for glossaries and documents; several servers may share it"
    suggestions: str | None = None
    "folder for the corrections of users: a TSV file for each pair, such as en-de.tsv, for dragoman train"
    memory: tuple[str, ...] = ()
    "FOLDER of approved pairs, which count from the next request on, made if missing; with several models en-de=FOLDER"
    runs: str | None = None
    "folder with runs of dragoman train, which the page at /runs follows"
    grace: Wait = 30.0
    "seconds that accepted requests may take after SIGTERM"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.host_name:
            if not NAME.fullmatch(name):
                raise UsageError(f"host_name '{name}': give the name alone, such as translate.example.org")
        for origin in self.allow_origin:
            if not ORIGIN.fullmatch(origin):
                raise UsageError(f"allow_origin '{origin}': an origin is like https://example.org, without a path")
        for address in self.proxy:
            if address != "*" and not is_network(address):
                raise UsageError(f"proxy '{address}': give an IP address, or a network such as 10.0.0.0/8")
        if self.beam > self.max_beam:
            raise UsageError(f"beam {self.beam} is above max_beam {self.max_beam}")
        if self.engine == "native" and self.replicas is not None:
            raise UsageError("replicas works only with the engine ctranslate2; the native engine uses batches")

    @property
    def listens_beyond_loopback(self) -> bool:
        """Return whether other machines can reach the server."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def state_folder(self) -> Path | None:
        """Return the folder for what outlives a request."""
        return Path(self.state) if self.state else None

    def check_access(self) -> None:
        """Raise UsageError where others could use the server and nothing says that they may."""
        if self.listens_beyond_loopback and not (self.api_keys or self.open):
            raise UsageError(
                f"{self.host} can be reached from other machines: give --api-keys FILE, or --open to serve everybody"
            )


def is_network(text: str) -> bool:
    """Return whether a text is an IP address, or a network of them."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
