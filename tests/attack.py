"""Clients without a key that hold on to a server: a program of its own, so that it takes no time of a test's Python.

    python tests/attack.py PORT KIND=CLIENTS ...

Each client connects, sends, and then a byte a second until it is cut; some seconds later it begins again.
"""

import asyncio
import contextlib
import sys

FORM = b"Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
ASK = b"POST /translate HTTP/1.1\r\n" + FORM
LARGE, MEDIUM, SMALL = (10 << 20) - 100, 310_000, 65_000  # bytes
PAUSE = 5  # seconds
KINDS = {
    "large": (b"POST /translate_file HTTP/1.1\r\n" + FORM + b"Content-Length: %d\r\n\r\n" % (LARGE + 60), LARGE),
    "medium": (ASK + b"Content-Length: %d\r\n\r\n" % (MEDIUM + 60), MEDIUM),
    "small": (ASK + b"Content-Length: %d\r\n\r\n" % (SMALL + 60), SMALL),
    "heads": (ASK + b"X-Slow: ", 0),
    "asks": (ASK + b"Content-Length: 2\r\n\r\n", 0),
}


async def hold(port: int, head: bytes, size: int) -> None:
    """Be one of the clients, for ever."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"q=" + b"a" * size)
            while True:
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1 << 16), 1):
                        break
                writer.write(b"a")
            writer.close()
        await asyncio.sleep(PAUSE)


async def attack(port: int, clients: dict[str, int]) -> None:
    """Be all of them."""
    await asyncio.gather(*(hold(port, *KINDS[kind]) for kind, count in clients.items() for _ in range(count)))


if __name__ == "__main__":
    counts = [argument.split("=") for argument in sys.argv[2:]]
    asyncio.run(attack(int(sys.argv[1]), {kind: int(count) for kind, count in counts}))
