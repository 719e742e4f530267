"""Start servers as processes, and read what they use."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.peers.trainers import OUR_VARIABLES
from dragoman.errors import DragomanError

LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)")
START = 120.0  # seconds that a server may take to start
PAIR = "en-de"  # what all models are served as: nothing depends on the languages


class ServerProcess:
    """A server in a process of its own, which may have children."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path):
        self.process, self.port, self.log = process, port, log

    def processes(self) -> list[Path]:
        """Return the folders of its processes below /proc."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
        family = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in family} - family:
            family |= more
        return [Path(f"/proc/{number}") for number in sorted(family)]

    def processor_time(self) -> float:
        """Return the seconds of processor time that its processes have taken."""
        fields = [(folder / "stat").read_text().rpartition(")")[2].split() for folder in self.processes()]
        ticks = sum(int(stat[11]) + int(stat[12]) for stat in fields)  # in the program, and in the system for it
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Return the bytes of main memory that its processes hold."""
        pages = sum(int((folder / "statm").read_text().split()[1]) for folder in self.processes())
        return pages * os.sysconf("SC_PAGE_SIZE")

    def files(self) -> int:
        """Return how many files and connections its processes have open."""
        return sum(len(list((folder / "fd").iterdir())) for folder in self.processes())

    def threads(self) -> int:
        """Return how many threads its processes have."""
        return sum(len(list((folder / "task").iterdir())) for folder in self.processes())

    def metrics(self) -> dict[str, float]:
        """Return the numbers of /metrics, by their names with labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def started(command: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[ServerProcess]:
    """Run a server within the block, which writes into `log`. Raise DragomanError, with its last line, if it fails."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        end = time.monotonic() + START
        while not (listening := LISTENING.search(log.read_text(encoding="utf-8", errors="replace"))):
            if process.poll() is not None or time.monotonic() > end:
                lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise DragomanError(f"{' '.join(command[1:4])} did not start: {lines[-1] if lines else 'no message'}")
            time.sleep(0.05)
        yield ServerProcess(process, int(listening[1]), log)
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def our_server(folder: Path, log: Path, *flags: str) -> AbstractContextManager[ServerProcess]:
    """Run `dragoman serve` with a model, without a limit of characters a minute, within the block."""
    command = [sys.executable, "-m", "dragoman", "serve", "-m", f"{PAIR}={folder}", "--port", "0", "--rate", "0"]
    return started([*command, *flags], log, dict(os.environ))


def peer_server(app: str, workers: int, log: Path) -> AbstractContextManager[ServerProcess]:
    """Run an application of `benchmarks.peers.one_at_a_time` with gunicorn, without our settings of OpenMP."""
    command = [sys.executable, "-m", "gunicorn", f"one_at_a_time:{app}", "--workers", str(workers)]
    command += ["--bind", "127.0.0.1:0", "--chdir", str(Path(__file__).parent / "peers"), "--timeout", "300"]
    environment = {name: value for name, value in os.environ.items() if name not in OUR_VARIABLES}
    return started(command, log, environment)
