"""Bind the socket that a server listens on."""

import errno
import resource
import socket

from dragoman.config.serve import ServeConfig
from dragoman.errors import DragomanError

NOTICE = 2.0  # seconds between SIGTERM and the end of listening, in which others learn not to send requests here
SILENCE = 5.0  # seconds without a beat, after which a server is stuck
MAX_CONNECTIONS = 1 << 11  # each may take half a megabyte, see `SENT_AHEAD` and `MAX_HEAD`
MAX_FILES, OTHER_FILES = 1 << 12, 256  # that this process may have open; those of them that are no connections


def bind(config: ServeConfig) -> socket.socket:
    """Return a socket that is bound to the address of the settings. Raise DragomanError where that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        advice = "; choose another --port" if error.errno == errno.EADDRINUSE else ""
        raise DragomanError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}{advice}"
        ) from None
    return listener


def allow_connections() -> int:
    """Let this process open MAX_FILES, if the system grants that, and return how many connections it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    return min(MAX_CONNECTIONS, files - min(OTHER_FILES, files // 2))


def address_of(listener: socket.socket) -> str:
    """Return the address of a server for clients on this machine: 'http://127.0.0.1:5000'."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
