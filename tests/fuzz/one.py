"""Fuzz one target in this process, as libFuzzer does it: python -m fuzz.one TARGET FOLDER [flags of libFuzzer]."""

import sys
import time
from collections.abc import Callable, Iterable
from hashlib import sha1
from pathlib import Path
from random import Random

import atheris

INSTRUMENTED = ["dragoman", "polib", "markdown_it", "defusedxml", "tomllib", "html", "csv"]
with atheris.instrument_imports(include=INSTRUMENTED):
    from fuzz.targets import Target, targets

SECONDS_PER_BYTE = 1 / 100_000
LARGEST = 100_000  # bytes


class TooSlow(Exception):
    """A target took longer than its input is worth."""


def timed(read: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function that also raises TooSlow, above one second, for more than a second per 100 kB."""

    def read_in_time(data: bytes) -> None:
        began = time.process_time()
        read(data)
        seconds = time.process_time() - began
        if seconds > max(1, SECONDS_PER_BYTE * len(data)):
            raise TooSlow(f"{seconds:.1f} s for {len(data):,} bytes")

    return read_in_time


def mutator(target: Target) -> Callable[[bytes, int, int], bytes] | None:
    """Return the target's own way to change a sample as libFuzzer calls it; None for libFuzzer's."""
    if not (mutate := target.mutate):
        return None

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        new = mutate(data, Random(seed), lambda part: atheris.Mutate(part, max(len(part), max_size)))
        return new if len(new) <= max_size else data

    return change


def write_samples(folder: Path, seeds: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (folder / sha1(seed).hexdigest()).write_bytes(seed)


def write_dictionary(file: Path, words: Iterable[str]) -> None:
    """Write words as libFuzzer reads them: a quoted string on each line, with escapes."""
    quoted = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in sorted(words))
    file.write_text("".join(f'"{word}"\n' for word in quoted), encoding="utf-8")


def main() -> None:
    program, name, folder, *flags = sys.argv
    target, place = targets()[name], Path(folder)
    write_samples(place / "seeds", target.seeds)
    write_samples(place / "corpus", [])  # what libFuzzer finds interesting stays there for the next time
    write_dictionary(place / "dictionary", target.dictionary)
    arguments = [program, str(place / "corpus"), str(place / "seeds"), f"-dict={place / 'dictionary'}"]
    limits = [f"-max_len={LARGEST}", f"-artifact_prefix={place}/", "-print_final_stats=1"]
    mutate = mutator(target)
    options = {"custom_mutator": mutate} if mutate else {}
    atheris.Setup([*arguments, *limits, *flags], timed(target.read), **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
