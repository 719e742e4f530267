"""Measure how `dragoman serve` bears load: steady, too much of it, a document in between, its end, and a long time."""

import contextlib
import itertools
import json
import random
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.clients import REFUSED, UNANSWERED, Answer, Plan, Request, ask
from benchmarks.server_process import ServerProcess
from benchmarks.serving_tasks import (
    LANGUAGES,
    PATIENT,
    UNCACHED,
    Setting,
    document_of,
    milliseconds,
    percentile,
    requests_for,
    take_turn,
)
from dragoman.config.serve import ServeConfig
from dragoman.evaluation.timing import markdown_table

SHARE, OVERLOAD = 0.8, 3.0  # of the capacity
CROWD = 32  # clients whose requests fill a server
CONNECTIONS = 256  # of clients that do not wait for each other
MIXED = 100  # sentences, of all lengths
DOCUMENT, DOCUMENTS = 300, 1  # sentences of a document; documents, one after the other
SHORT, START = 60, 0.3  # requests beside each; seconds after it
SAMPLE = 250  # requests of a soak between two looks at the memory
FULL = 4  # samples after which the cache of a soak is full
BATCHES, GATHER = (1, 2, 4), (0.0, 0.005, 0.01)
GOALS = ["", "measured", "goal"]


def steady_load(setting: Setting) -> str:
    """Return a section of the report, in Markdown: how long answers take at 80 % of what the server can do."""
    alike, mixed = requests_for(setting.alike), requests_for(mixed_lengths(setting.sentences))
    full = capacities(setting, alike, mixed)
    with setting.native("steady", *UNCACHED) as server:
        idle = idle_times(server, mixed)
        rows = []
        for title, requests, most in zip(("one length", "mixed lengths"), (alike, mixed), full, strict=True):
            rate = SHARE * most
            answers = ask(Plan(server.port, requests, CONNECTIONS, 60 * setting.minutes, rate))
            times = [answer.seconds for answer in answers]
            p50, p99 = statistics.median(times), percentile(times, 0.99)
            rows += [
                [f"{title}: requests, a second", f"{len(answers):,}, {rate:.1f}", ""],
                [f"{title}: refused, otherwise failed", describe_failures(answers), "0, 0"],
                [f"{title}: p50, p99", f"{milliseconds(p50)}, {milliseconds(p99)} ms", ""],
            ]
            if requests is alike:
                rows.append([f"{title}: p99 / p50", f"{p99 / p50:.2f}", "≤ 3"])
            else:
                slowest = percentile(slowdowns(answers, idle), 0.99)
                rows.append([f"{title}: p99 of time / own idle time", f"{slowest:.2f}", "≤ 5"])
    title = f"### {setting.minutes:g} minutes at {100 * SHARE:.0f} % of capacity, native"
    return f"{title}\n\n{markdown_table(GOALS, rows)}"


def overload(setting: Setting) -> str:
    """Return a section of the report: what becomes of three times as many requests as the server can answer."""
    requests = requests_for(setting.alike)
    rate = OVERLOAD * capacities(setting, requests)[0]
    with setting.native("overload", *UNCACHED) as server:
        answers = ask(Plan(server.port, requests, CONNECTIONS, max(10.0, 10 * setting.minutes), rate))
    ok, refused = ([answer.seconds for answer in answers if answer.status == status] for status in (200, 503))
    p50, p99 = (milliseconds(percentile(refused, share)) for share in (0.5, 0.99))
    neither, bound = len(answers) - len(ok) - len(refused), ServeConfig.max_wait
    rows = [
        ["requests, a second", f"{len(answers):,}, {rate:.1f}", ""],
        ["answered, refused, neither", f"{len(ok):,}, {len(refused):,}, {neither:,}", "neither 0"],
        ["refusals: p50, p99", f"{p50}, {p99} ms", "p99 < 100"],
        ["answers: p99, slowest", f"{percentile(ok, 0.99):.2f}, {max(ok):.2f} s", f"≤ {bound:g} s + their own time"],
    ]
    return f"### {OVERLOAD:g} times the capacity, native\n\n{markdown_table(GOALS, rows)}"


def stop(setting: Setting) -> str:
    """Return a section of the report: what becomes of requests while the server gets SIGTERM."""
    with setting.native("stop", *UNCACHED) as server:
        threading.Timer(setting.seconds, server.terminate).start()
        answers = ask(Plan(server.port, requests_for(setting.alike), CROWD, 60.0 + setting.seconds))
        code = server.process.wait(60)
    counts = Counter(answer.status for answer in answers)
    other = sum(counts.values()) - counts[200] - counts[REFUSED] - counts[UNANSWERED]
    rows = [
        ["answered", f"{counts[200]:,}", ""],
        ["not connected: it no longer listened", f"{counts[REFUSED]:,}", f"{CROWD}: one for each client"],
        ["other answers", f"{other:,}", "0"],
        ["sent and not answered", f"{counts[UNANSWERED]:,}", "0"],
        ["exit code", f"{code}", "0"],
    ]
    return f"### SIGTERM while {CROWD} clients ask, native\n\n{markdown_table(GOALS, rows)}"


def soak(setting: Setting) -> str:
    """Return a section of the report: how memory, files and threads grow over many requests of all kinds.

    They are counted once the cache is full.
    """
    with setting.native("soak", "--cache", "1") as server:
        kinds = itertools.cycle(mixed_requests(setting.sentences))
        seen = []
        for number in range(FULL + -(-setting.requests // SAMPLE)):
            answers = ask(Plan(server.port, list(itertools.islice(kinds, SAMPLE)), 8))
            leave(server, requests_for(setting.alike)[number % len(setting.alike)])
            assert len(answers) == SAMPLE
            time.sleep(0.2)  # until connections are closed
            if number >= FULL - 1:  # the first time before the requests that count
                seen.append((server.memory(), server.files(), server.threads(), Counter(a.status for a in answers)))
        metrics = server.metrics()
    megabytes = [memory / 2**20 for memory, *_ in seen]
    thousands = [number * SAMPLE / 1000 for number in range(len(seen))]
    statuses = sum((sample[3] for sample in seen[1:]), Counter[int]())
    finished = {kind: metrics[f'dragoman_finished_total{{outcome="{kind}"}}'] for kind in ("ok", "failed", "cancelled")}
    total = sum(finished.values()) + metrics["dragoman_in_flight"]
    rows = [
        ["requests", f"{sum(statuses.values()):,}", ""],
        ["statuses", ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())), "200, 400"],
        ["memory: first, last", f"{megabytes[0]:.1f}, {megabytes[-1]:.1f} MiB", ""],
        ["MiB for each 1,000 requests", f"{statistics.linear_regression(thousands, megabytes).slope:.2f}", "< 1"],
        ["files: first, last", f"{seen[0][1]}, {seen[-1][1]}", "the same"],
        ["threads: first, last", f"{seen[0][2]}, {seen[-1][2]}", "the same"],
        ["accepted", f"{metrics['dragoman_accepted_total']:,.0f}", f"{total:,.0f}: ok, failed, cancelled, in flight"],
        ["of these cancelled", f"{finished['cancelled']:,.0f}", ""],
    ]
    return f"### Soak, native, a cache of 1 MB\n\n{markdown_table(GOALS, rows)}"


def beside_document(setting: Setting) -> str:
    """Return a section of the report: how long short requests take while long ones are translated."""
    rows = []
    for batches in (2, 1):
        flags = ("--batches", str(batches), "--state", str(setting.folder / "state"), *PATIENT)
        with setting.native(f"beside-{batches}", *flags) as server:
            long = {"document": document_of(long_text(setting)), "list": list_of(long_text(setting))}
            for kind, request in long.items():
                idle, beside = short_times(server, request, short_requests(setting))
                rows.append(
                    [
                        f"a {kind} of {DOCUMENT} sentences, --batches {batches}",
                        f"{len(beside):,}",
                        f"{milliseconds(percentile(idle, 0.95))} ms",
                        f"{milliseconds(percentile(beside, 0.95))} ms",
                        f"{percentile(beside, 0.95) / percentile(idle, 0.95):.2f}",
                        "≤ 2.5" if batches == 2 else "control",
                    ]
                )
    columns = ["beside", "requests", "p95, idle", "p95, beside it", "ratio", "goal"]
    return f"### Short beside long, native\n\n{markdown_table(columns, rows)}"


def pool_settings(setting: Setting) -> str:
    """Return a section of the report: what `--batches` and `--gather` change; the settings take turns."""
    alike, mixed = requests_for(setting.alike), requests_for(mixed_lengths(setting.sentences))
    by_setting: dict[tuple[int, float], list[list[float]]] = {}
    with contextlib.ExitStack() as stack:
        servers = {}
        for batches, gather in itertools.product(BATCHES, GATHER):
            name = f"pool-{batches}-{gather}"
            flags = (
                "--batches",
                f"{batches}",
                "--gather",
                f"{gather}",
                "--state",
                str(setting.folder / f"{name}-state"),
                *PATIENT,
            )
            servers[batches, gather] = stack.enter_context(setting.native(name, *flags))
        default = servers[ServeConfig.batches, ServeConfig.gather]
        idle = idle_times(default, mixed)
        rates = [SHARE * capacity(default, requests, setting.seconds) for requests in (alike, mixed)]
        for _, (key, server) in itertools.product(range(setting.rounds), servers.items()):
            alike_answers, both = (
                ask(Plan(server.port, requests, CONNECTIONS, 2 * setting.seconds, rate))
                for requests, rate in zip((alike, mixed), rates, strict=True)
            )
            alone, beside = short_times(server, list_of(long_text(setting)), short_requests(setting), times=1)
            times = [answer.seconds for answer in alike_answers]
            by_setting.setdefault(key, []).append(
                [
                    capacity(server, alike, setting.seconds),
                    1000 * statistics.median(times),
                    1000 * percentile(times, 0.99),
                    percentile(slowdowns(both, idle), 0.5),
                    percentile(slowdowns(both, idle), 0.99),
                    percentile(beside, 0.95) / percentile(alone, 0.95),
                ]
            )
    rows = []
    for (batches, gather), turns in by_setting.items():
        cells = [
            f"{statistics.median(column):.4g} ({min(column):.3g}–{max(column):.3g})"
            for column in zip(*turns, strict=True)
        ]
        rows.append([f"{batches}", f"{1000 * gather:g}", *cells])
    columns = [
        *("batches", "gather, ms", "requests/s, one length", "one length: p50, ms", "p99, ms"),
        *("mixed: p50 of time / idle time", "p99", "short beside long: p95 / idle"),
    ]
    note = (
        f"{rates[0]:.1f} requests/s of one length, {rates[1]:.1f} of mixed ones; medians of {setting.rounds} turns "
        "(least to most)."
    )
    return f"### Batches and gathering, native\n\n{note}\n\n{markdown_table(columns, rows)}"


def capacities(setting: Setting, *kinds: Sequence[Request]) -> list[float]:
    """Return the requests per second, for each kind, that a server answers under full load."""
    with setting.native("capacity", *PATIENT) as server:
        return [capacity(server, requests, setting.seconds) for requests in kinds]


def capacity(server: ServerProcess, requests: Sequence[Request], seconds: float) -> float:
    """Return how many requests a second a server answers to a crowd."""
    return take_turn(server, Plan(server.port, requests, CROWD, seconds)).rate


def describe_failures(answers: Sequence[Answer]) -> str:
    """Return '12, 0': how many requests were refused (503), and how many got another answer than 200, or none."""
    failed = [answer.status for answer in answers if answer.status != 200]
    refused = failed.count(503)
    return f"{refused:,}, {len(failed) - refused:,}"


def mixed_lengths(sentences: Sequence[str]) -> list[str]:
    """Return some of the sentences, evenly from the shortest to the longest, shuffled."""
    ordered = sorted(sentences, key=len)
    chosen = [ordered[number * len(ordered) // MIXED] for number in range(MIXED)] if len(ordered) > MIXED else ordered
    return random.Random(1).sample(chosen, len(chosen))


def idle_times(server: ServerProcess, requests: Sequence[Request]) -> list[float]:
    """Return the seconds that each request takes when there is no other one: the smaller of two."""
    ask(Plan(server.port, requests[:20], 1))
    turns = [{answer.request: answer.seconds for answer in ask(Plan(server.port, requests, 1))} for _ in range(2)]
    return [min(turn[number] for turn in turns) for number in range(len(requests))]


def slowdowns(answers: Sequence[Answer], idle: Sequence[float]) -> list[float]:
    """Return for each answer how many times its own idle time it took."""
    return [answer.seconds / idle[answer.request] for answer in answers]


def long_text(setting: Setting) -> list[str]:
    """Return the sentences of a document."""
    return list(itertools.islice(itertools.cycle(setting.sentences), DOCUMENT))


def list_of(texts: Sequence[str]) -> Request:
    """Return the request to translate all texts at once."""
    return Request("/translate", json.dumps({"q": list(texts), **LANGUAGES}))


def short_requests(setting: Setting) -> list[Request]:
    """Return requests for sentences of the usual length."""
    ordered = sorted(setting.sentences, key=len)
    return requests_for(ordered[len(ordered) // 3 : 2 * len(ordered) // 3])


def short_times(
    server: ServerProcess, long: Request, short: Sequence[Request], times: int = DOCUMENTS
) -> tuple[list[float], list[float]]:
    """Return the seconds of short requests, one after the other: alone, and beside a long one, sent `times` times.

    A document goes on only while there is no other request, so it does not end before they do.
    """
    take_turn(server, Plan(server.port, short[:10], 1))
    beside: list[float] = []
    with ThreadPoolExecutor(1) as threads:
        for number in range(times):
            asking = threads.submit(take_turn, server, Plan(server.port, [long], 1))
            time.sleep(START)
            texts = [short[(number * SHORT + place) % len(short)] for place in range(SHORT)]
            answers = take_turn(server, Plan(server.port, texts, 1)).answers
            (whole,) = asking.result().answers
            beside += [answer.seconds for answer in answers if whole.due < answer.due and answer.end < whole.end]
    return take_turn(server, Plan(server.port, short[:SHORT], 1)).times, beside


def mixed_requests(sentences: Sequence[str]) -> list[Request]:
    """Return requests of all kinds: texts, lists, HTML, alternatives, detection, and some that are wrong."""
    requests = []
    for number, text in enumerate(sentences):
        fields: dict[str, Any] = {"q": text, **LANGUAGES}
        kind = number % 10
        if kind == 0:
            fields["q"] = [text, sentences[number - 1], f"{number}"]
        elif kind == 1:
            fields |= {"q": f"<p>{text} <b>{number}</b></p>", "format": "html"}
        elif kind == 2:
            fields["alternatives"] = 2
        elif kind == 3:
            fields["target"] = "xx"
        elif kind == 4:
            fields["q"] = sentences[0]
        path, body = "/detect" if kind == 5 else "/translate", json.dumps(fields)
        requests.append(Request(path, body[:-1] if kind == 6 else body))
    return requests


def leave(server: ServerProcess, request: Request) -> None:
    """Send a request, and do not wait for its answer."""
    body = request.body.encode()
    head = f"POST {request.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {request.content_type}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.01)
