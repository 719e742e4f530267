"""Compute several things at once, each in a process of its own: two cores do more for two small trainings than for one.

The processes end with this one, however it ends.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from dragoman.errors import DragomanError
from dragoman.runtime.device import device_of
from dragoman.runtime.waiting import use_threads

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
Result = TypeVar("Result")


def processes_for(jobs: int, threads: int) -> int:
    """Return in how many processes some jobs are done: one for each thread at most, and one on a GPU."""
    return min(jobs, threads) if device_of("auto").type == "cpu" else 1


def side_by_side(
    function: Callable[..., Result],
    jobs: Sequence[tuple[Any, ...]],
    threads: int,
    announce: Callable[[int], None] = lambda number: None,
) -> list[Result]:
    """Return function(*job) for each job, which the processes divide among them, as they do the threads.

    announce: called with the number of each job that begins. The function, jobs and results must be such as pickle
    knows. Raise the DragomanError of a job, and one where a process ends without a result.
    """
    processes = processes_for(len(jobs), threads)
    results: dict[int, Result] = {}
    running: dict[int, tuple[Connection, BaseProcess]] = {}
    waiting = list(range(len(jobs)))
    try:
        while len(results) < len(jobs):
            if waiting and len(running) < processes:
                announce(number := waiting.pop(0))
                if processes == 1:
                    results[number] = function(*jobs[number])
                    continue
                reader, writer = SPAWN.Pipe(duplex=False)
                process = SPAWN.Process(target=send_result, args=(writer, threads // processes, function, jobs[number]))
                process.start()
                running[number] = reader, process
                writer.close()
                continue
            wait([reader for reader, _ in running.values()])
            for number in [number for number, (reader, _) in running.items() if reader.poll()]:
                results[number] = receive(*running[number])
                del running[number]
    finally:
        for _, unfinished in running.values():
            unfinished.kill()
            unfinished.join()
    return [results[number] for number in range(len(jobs))]


def receive(reader: Connection, process: BaseProcess) -> Any:
    """Return what a process sends before it ends. Raise the DragomanError that it sends, or one if it sends nothing."""
    try:
        result = reader.recv()
    except EOFError:
        process.join()
        raise DragomanError(f"a process that trains has ended with exit code {process.exitcode}") from None
    process.join()
    if isinstance(result, DragomanError):
        raise result
    return result


def send_result(writer: Connection, threads: int, function: Callable[..., Any], job: tuple[Any, ...]) -> None:
    """Send what the function returns for a job, or its DragomanError, from a process that was started for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    threading.Thread(target=end_with_parent, daemon=True).start()
    use_threads(threads)
    try:
        result = function(*job)
    except DragomanError as error:
        result = error
    writer.send(result)


def end_with_parent() -> None:
    """End this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)
