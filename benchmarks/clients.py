"""Ask a server as many clients do. This file runs in processes of its own, so it imports nothing of dragoman:
`ask` starts some, each of which reads a `Plan` as JSON on stdin and writes its answers as JSON on stdout.
"""

import http.client
import itertools
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

PROCESSES = 2  # at most, so that a client does not wait for the others of its process
PATIENCE = 120.0  # seconds until a client gives up
REFUSED, UNANSWERED = 0, -1  # in place of a status: not connected; connected and sent, but no answer


class Request(NamedTuple):
    """What a client posts."""

    path: str
    body: str
    content_type: str = "application/json"


class Answer(NamedTuple):
    """What came back: to which request, when that was due (on the clock of `time.monotonic`), after which time."""

    request: int
    due: float
    seconds: float
    status: int

    @property
    def end(self) -> float:
        """When the answer arrived."""
        return self.due + self.seconds


@dataclass(frozen=True)
class Plan:
    """Who asks for what, and when."""

    port: int
    requests: Sequence[Request]
    clients: int  # connections
    seconds: float = math.inf  # for which requests are sent, from the first again after the last; inf: each once
    rate: float = 0.0  # requests a second, at random times, answered or not; 0: each client asks as soon as it may
    first: int = 0  # the place of the first request among those of all processes
    step: int = 1  # from one place to the next


def ask(plan: Plan) -> list[Answer]:
    """Return the answers to a plan, sorted by when they were due.

    Its requests and its clients are shared among processes.
    """
    count = min(plan.clients, PROCESSES)
    processes = []
    for number in range(count):
        share = replace(
            plan,
            requests=list(plan.requests[number::count]),
            clients=len(range(number, plan.clients, count)),
            rate=plan.rate / count,
            first=number,
            step=count,
        )
        process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
        )
        assert process.stdin
        process.stdin.write(json.dumps(asdict(share)))
        process.stdin.close()
        processes.append(process)
    answers = []
    for process in processes:
        assert process.stdout
        answers += [Answer(*fields) for fields in json.loads(process.stdout.read())]
        process.wait()
    return sorted(answers, key=lambda answer: answer.due)


class Client(threading.local):
    """A connection for each thread, which is opened again where the server has closed it."""

    def __init__(self, port: int):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def post(self, request: Request) -> int:
        """Return the status of the answer, REFUSED, or UNANSWERED."""
        kept = self.connection.sock is not None
        try:
            self.connection.request("POST", request.path, request.body.encode(), {"Content-Type": request.content_type})
            response = self.connection.getresponse()
            response.read()
            return response.status
        except ConnectionRefusedError:
            return REFUSED
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            # A server may close a connection on which nothing happens, at the moment of the next request.
            closed = isinstance(error, http.client.RemoteDisconnected | BrokenPipeError | ConnectionResetError)
            return self.post(request) if kept and closed else UNANSWERED


def carry_out(plan: Plan) -> list[Answer]:
    """Return the answers to the requests of one process."""
    client, answers = Client(plan.port), list[Answer]()
    start, end = time.monotonic(), time.monotonic() + plan.seconds
    once = enumerate(plan.requests)
    requests = once if math.isinf(plan.seconds) else itertools.cycle(once)

    def send(place: int, request: Request, due: float) -> int:
        status = client.post(request)
        answers.append(Answer(plan.first + plan.step * place, due, time.monotonic() - due, status))
        return status

    if plan.rate:
        with ThreadPoolExecutor(plan.clients) as threads:
            for due, (place, request) in zip(random_times(start, plan.rate), requests, strict=False):
                if due > end:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                threads.submit(send, place, request, due)
        return answers
    lock = threading.Lock()

    def go_on() -> None:
        while time.monotonic() < end:
            with lock:
                place, request = next(requests, (0, None))
            if request is None or send(place, request, time.monotonic()) == REFUSED:
                return

    workers = [threading.Thread(target=go_on) for _ in range(plan.clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return answers


def random_times(start: float, rate: float) -> Iterable[float]:
    """Yield when requests of many clients that know nothing of each other come, `rate` a second on average."""
    chance = random.Random(start)
    while True:
        start += chance.expovariate(rate)
        yield start


if __name__ == "__main__":
    fields = json.loads(sys.stdin.read())
    json.dump(
        carry_out(Plan(**fields | {"requests": [Request(*request) for request in fields["requests"]]})), sys.stdout
    )
