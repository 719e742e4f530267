"""Cut off clients that are too many, or send a request's head or take an answer too slowly, before the application."""

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Sequence
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragoman.server.keys import caller_of
from dragoman.server.shares import Shares

HEAD_SECONDS = 10.0  # until the head of a request is complete
FIRST_SECONDS = 0.5  # until a client that has connected has sent a request, where the server ends
ANSWER_SECONDS = 30.0  # until a client has taken its answer
SENT_AHEAD = 1 << 18  # bytes of an answer that the system buffers; its default is up to 4 MB per client
RESET = struct.pack("ii", 1, 0)  # on, and after no seconds


class Connections(Shares):
    """Connections, of which each address has a share; a proxy, which brings the requests of many, may have all."""

    def __init__(self, most: int, proxies: Sequence[str]):
        """Take how many there may be, and the addresses and networks of proxies, '*' for all."""
        super().__init__(most)
        networks = [network for proxy in proxies for network in (("0.0.0.0/0", "::/0") if proxy == "*" else (proxy,))]
        self.proxies = [ipaddress.ip_network(network, strict=False) for network in networks]

    def holder(self, client: tuple[str, int] | None) -> str:
        """Return who has the connection of a client: an address; of a proxy, the connection itself."""
        host, port = client or ("-", 0)
        if (caller := caller_of(host)) == "-":
            return caller
        address = ipaddress.ip_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        return f"{caller} {port}" if any(address in network for network in self.proxies) else caller


class TimedProtocol(H11Protocol):
    """Speak HTTP/1.1 as uvicorn does, within these limits; the body of a request is timed by its reader.

    An answer is late if part of it is still in our memory ANSWER_SECONDS after it was complete, or after the handler
    had to pause because too much was waiting.
    """

    def __init__(self, *args: Any, among: Connections, **kwargs: Any):
        """Take what uvicorn gives, and the connections that there may be. One more is cut at once."""
        super().__init__(*args, **kwargs)
        self.among = among
        self.holder = ""  # '' for a connection that is cut at once
        self.head_timer: asyncio.TimerHandle | None = None
        self.answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        holder = self.among.holder(self.client)
        if not self.among.take(holder, 1):
            self._cut()
            return
        self.holder = holder
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
        self.head_timer = self.loop.call_later(HEAD_SECONDS, self._cut)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self.holder:
            self.among.give_back(self.holder, 1)
        for timer in (self.head_timer, self.answer_timer):
            if timer:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self.answer_timer and not self.transport.get_write_buffer_size():  # whoever asks again has taken it
            self.answer_timer.cancel()
            self.answer_timer = None
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is complete
            if self.head_timer:
                self.head_timer.cancel()
            self.head_timer = None
        elif not self.head_timer:  # the next one on this connection has begun
            self.head_timer = self.loop.call_later(HEAD_SECONDS, self._cut)

    def shutdown(self) -> None:
        """Close the connection if nothing is being answered on it; a client that has just connected may ask first."""
        if self.cycle is None:
            self.loop.call_later(FIRST_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_answer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._time_answer()

    def _time_answer(self) -> None:
        """Cut the connection later if part of an answer still waits to be sent then."""
        if not self.answer_timer and self.transport.get_write_buffer_size():
            self.answer_timer = self.loop.call_later(ANSWER_SECONDS, self._cut_untaken)

    def _cut_untaken(self) -> None:
        self.answer_timer = None
        if self.transport.get_write_buffer_size():
            self._cut()

    def _cut(self) -> None:
        """Close the connection at once, whatever waits to be sent, by us or by the system, which would go on trying."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()
