"""Know the keys that requests may have, and how much each may ask for."""

import hashlib
import hmac
import ipaddress
import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dragoman.config.fields import CountOrZero, check_fields
from dragoman.errors import UsageError
from dragoman.storage.records import MAX_RECORD_SIZE, read_json
from dragoman.storage.writing import replace_file

MAX_CALLERS = 10_000  # whose use is remembered


@dataclass(frozen=True)
class Key:
    """A key as the file has it: its name, its SHA-256, and its characters a minute (0: as many as the server's)."""

    name: str
    sha256: str
    rate: CountOrZero = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef"):
            raise UsageError("sha256 must be 64 hexadecimal digits")


def read_keys(file: Path) -> list[Key]:
    """Return the keys in a file. Raise UsageError where it is missing or damaged."""
    try:
        return [Key(**entry) for entry in read_json(file)["keys"]]
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file; dragoman serve --api-keys {file} --new-key NAME creates it") from None
    except (ValueError, TypeError, KeyError, UsageError) as error:
        raise UsageError(f"{file}: not a file of keys: {error}") from None


def add_key(file: Path, name: str) -> str:
    """Add a key to a file, which is made if it is missing, and return the key. Raise UsageError for a name in use."""
    keys = read_keys(file) if file.exists() else []
    if any(known.name == name for known in keys):
        raise UsageError(f"{file}: there is a key '{name}' already")
    secret = secrets.token_urlsafe(32)
    content = json.dumps({"keys": [asdict(known) for known in [*keys, Key(name, digest(secret))]]}, indent=1) + "\n"
    if len(content) > MAX_RECORD_SIZE:
        raise UsageError(f"{file}: too many keys")
    replace_file(file, content)
    file.chmod(0o600)
    return secret


def digest(secret: str) -> str:
    """Return the SHA-256 of a key, whatever characters it has."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_key(keys: Sequence[Key], secret: str) -> Key | None:
    """Return the key of a request, None if it is unknown. The time does not depend on which key it is."""
    given, match = digest(secret), None
    for known in keys:
        if hmac.compare_digest(known.sha256, given):
            match = known
    return match


def caller_of(address: str) -> str:
    """Return the address that a caller is counted by: of IPv6 its /64, which is one customer's; '-' for none."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # such as what a proxy writes for a client that it does not name
        return "-"
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


class Usage:
    """Count the characters translated for each caller since the start.

    Beyond MAX_CALLERS, those who asked longest ago are forgotten.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # by caller, the latest last
        self.lock = threading.Lock()

    def add(self, caller: str, characters: int) -> None:
        """Count characters that were translated."""
        with self.lock:
            self.counts[caller] = self.counts.pop(caller, 0) + characters
            if len(self.counts) > MAX_CALLERS:
                del self.counts[next(iter(self.counts))]

    def count(self, caller: str) -> int:
        """Return how many characters were translated for a caller."""
        return self.counts.get(caller, 0)


class Rates:
    """Limit what each caller may ask for: a full bucket is worth a minute, and fills evenly.

    Beyond MAX_CALLERS, those who asked longest ago are forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.buckets: dict[str, tuple[float, float]] = {}  # by caller, the latest last: what is left, and when

    def take(self, caller: str, amount: int, a_minute: int) -> float:
        """Take an amount from a caller's bucket, and return 0; or the seconds after which there will be enough.

        An amount that is larger than a bucket is taken from a full one.
        """
        now = self.clock()
        left, since = self.buckets.pop(caller, (float(a_minute), now))
        left = min(a_minute, left + (now - since) * a_minute / 60)
        missing = min(amount, a_minute) - left
        self.buckets[caller] = (left - amount if missing <= 0 else left), now
        if len(self.buckets) > MAX_CALLERS:
            del self.buckets[next(iter(self.buckets))]
        return math.ceil(missing * 60 / a_minute) if missing > 0 else 0.0
