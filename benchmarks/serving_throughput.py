"""Measure how many requests a second servers answer: ours, and CTranslate2 called one request at a time.

The peer runs behind gunicorn and calls CTranslate2 as argos-translate does, with the same weights, beam and limit on
output. It has as many workers and threads as make it the fastest. Its search ends when as many hypotheses are finished
as it has beams; so does ours with a patience of 1, which therefore takes part as well.
"""

import contextlib
import importlib.util
import itertools
import statistics
from collections.abc import Iterator, Sequence

from benchmarks.clients import Plan, Request
from benchmarks.server_process import ServerProcess, our_server, peer_server
from benchmarks.serving_tasks import (
    PATIENT,
    Setting,
    Turn,
    milliseconds,
    percentile,
    requests_for,
    take_turn,
)
from dragoman.config import SearchConfig
from dragoman.evaluation.timing import Contender, markdown_table
from dragoman.interop.ctranslate2.cache import converted_model
from dragoman.interop.ctranslate2.conversion import unknown_settings
from dragoman.model_folder import read_config

CLIENTS = (1, 8, 32)
WORKERS, THREADS = (1, 2, 4), (1, 2)  # of gunicorn; of CTranslate2 in each
TYPES = ("float32", "int8")
WARM_UP = 2.0  # seconds
COLUMNS = ["clients", "server", "requests/s", "p50, ms", "p99, ms", "CPU, ms a request", "ours / one at a time"]


def throughput(setting: Setting) -> str:
    """Return how fast our server is with each engine, beside CTranslate2 called one request at a time."""
    notes = []
    kinds = {"texts of one length": setting.alike, "a test set": setting.sentences}
    tables = []
    with contextlib.ExitStack() as stack:
        ours = {"native": stack.enter_context(setting.native("native", *PATIENT))}
        peers: dict[tuple[str, int], tuple[str, ServerProcess]] = {}
        if unknown := unknown_settings(read_config(setting.model)):
            notes.append(f"CTranslate2 is left out: it lacks {' and '.join(unknown)}.")
        elif not all(map(importlib.util.find_spec, ("ctranslate2", "gunicorn"))):
            notes.append("CTranslate2 is left out: pip install 'dragoman[fast,benchmark]' installs it and gunicorn.")
        else:
            for kind in TYPES:
                for name, patience in ((kind, ()), (f"{kind}, patience 1", ("--patience", "1"))):
                    flags = ("--engine", "ctranslate2", "--compute-type", kind, *PATIENT, *patience)
                    ours[name] = stack.enter_context(our_server(setting.model, setting.folder / name, *flags))
            peers = open_peers(setting, stack)
            for (kind, clients), (name, _) in peers.items():
                notes.append(f"One at a time, {kind}, {clients} clients: {name}.")
        for title, texts in kinds.items():
            requests, rows = requests_for(texts), []
            for clients in CLIENTS:
                servers = {f"dragoman, {name}": server for name, server in ours.items()}
                servers |= {f"one at a time, {kind}": peers[kind, clients][1] for kind in TYPES if peers}
                rows += compare(servers, requests, clients, setting)
            tables += [f"### Throughput: {title}", markdown_table(COLUMNS, rows)]
    return "\n\n".join([*tables, "\n".join(f"- {note}" for note in notes)])


def compare(
    servers: dict[str, ServerProcess], requests: Sequence[Request], clients: int, setting: Setting
) -> list[list[str]]:
    """Return a row for each of the servers, which take turns."""
    rates = {name: Contender(name, int) for name in servers}
    turns: dict[str, list[Turn]] = {name: [] for name in servers}
    for turn, (name, server) in itertools.product(range(setting.rounds + 1), servers.items()):
        done = take_turn(server, Plan(server.port, requests, clients, setting.seconds if turn else WARM_UP))
        if turn:
            rates[name].rates.append(done.rate)
            turns[name].append(done)
    rows = []
    for name, done_turns in turns.items():
        times = [seconds for turn in done_turns for seconds in turn.times]
        kind = "int8" if "int8" in name else "float32"
        peer = rates.get(f"one at a time, {kind}")
        rows.append(
            [
                f"{clients}",
                name,
                f"{rates[name].median:,.1f} ± {100 * rates[name].spread:.0f} %",
                milliseconds(statistics.median(times)),
                milliseconds(percentile(times, 0.99)),
                f"{1000 * sum(turn.processor for turn in done_turns) / len(times):.1f}",
                f"{rates[name].median / peer.median:.2f}" if peer and name.startswith("dragoman") else "",
            ]
        )
    return rows


def open_peers(setting: Setting, stack: contextlib.ExitStack) -> dict[tuple[str, int], tuple[str, ServerProcess]]:
    """Start the peer with the numbers of workers and threads that are fastest for each type and number of clients.

    Return it with a description. Texts of one length decide.
    """
    requests = requests_for(setting.alike)
    best: dict[tuple[str, int], tuple[float, int, int]] = {}
    for kind, workers, threads in itertools.product(TYPES, WORKERS, THREADS):
        with open_peer(setting, kind, workers, threads) as server:
            take_turn(server, Plan(server.port, requests, 2 * workers, WARM_UP))
            for clients in CLIENTS:
                rate = take_turn(server, Plan(server.port, requests, clients, WARM_UP)).rate
                fastest = best.get((kind, clients), (0.0, 0, 0))
                best[kind, clients] = max(fastest, (rate, workers, threads))
                if rate < fastest[0] / 2:  # no better with more clients, who would have to wait for long
                    break
    running: dict[tuple[str, int, int], ServerProcess] = {}
    peers = {}
    for (kind, clients), (_, workers, threads) in best.items():
        key = kind, workers, threads
        if key not in running:
            running[key] = stack.enter_context(open_peer(setting, *key))
        peers[kind, clients] = f"{workers} workers, {threads} threads", running[key]
    return peers


@contextlib.contextmanager
def open_peer(setting: Setting, kind: str, workers: int, threads: int) -> Iterator[ServerProcess]:
    """Run CTranslate2 behind gunicorn within the block; each worker translates one request at a time.

    kind: its compute type; workers: processes; threads: those of CTranslate2 in each. Raise DragomanError where it does
    not start.
    """
    folder, config = converted_model(setting.model.resolve(), kind), SearchConfig()
    tokenizer = str(setting.model.resolve() / "tokenizer.json")
    app = f"make_app({str(folder)!r}, {tokenizer!r}, {kind!r}, {threads}, {config.beam}, {config.extra_length})"
    log = setting.folder / f"{kind}-{workers}-{threads}"
    with peer_server(app, workers, log) as server:
        yield server


def http_layer(setting: Setting) -> str:
    """Return what a request costs apart from the search: texts that have nothing to translate, and cached ones."""
    length = round(statistics.mean(map(len, setting.alike)))
    digits = [f"{number:0{length}d}" for number in range(1000)]
    rows = []
    with setting.native("http") as server:
        for title, texts in {"without letters": digits, "from the cache": setting.alike[:100]}.items():
            requests = requests_for(texts)
            take_turn(server, Plan(server.port, requests, 1))
            for clients in CLIENTS:
                turns = [
                    take_turn(server, Plan(server.port, requests, clients, setting.seconds))
                    for _ in range(setting.rounds)
                ]
                rates, times = [turn.rate for turn in turns], [seconds for turn in turns for seconds in turn.times]
                rows.append(
                    [
                        f"{clients}",
                        title,
                        f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
                        milliseconds(statistics.median(times)),
                        milliseconds(percentile(times, 0.99)),
                        f"{1000 * sum(turn.processor for turn in turns) / len(times):.2f}",
                    ]
                )
    return "### The HTTP layer alone\n\n" + markdown_table(
        ["clients", f"texts of {length} characters", *COLUMNS[2:-1]], rows
    )
