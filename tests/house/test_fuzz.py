"""The targets of `make fuzz` work: they read their samples, and changes of these, and let defects through."""

import os
from pathlib import Path
from random import Random

import pytest
from fuzz.mutations import mutate_packed
from fuzz.targets import targets
from hostile import packed

CHANGES = 20


def scramble(data: bytes) -> bytes:
    """Leave a byte out and double another one."""
    random = Random(len(data))
    first, second = (random.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[first + 1 : second] + data[second - 1 :]


def test_fuzz_targets_read_their_samples_and_changes_of_them():
    for name, target in targets().items():
        assert target.seeds, name
        assert len(target.dictionary) > 3, name
        for seed in target.seeds[:10]:
            target.read(seed)
            target.read(scramble(seed))
        for number in range(CHANGES if target.mutate else 0):
            changed = target.mutate(target.seeds[-1], Random(number), scramble)
            target.read(changed)


def test_traceback_in_a_fuzz_target_comes_through_control(monkeypatch: pytest.MonkeyPatch):
    """The control for the test above."""

    def defect(*_: object) -> None:
        raise IndexError

    sample = b"cat\tKatze\n"
    targets()["glossary"].read(sample)
    monkeypatch.setattr("dragoman.text.glossary.parse_entry", defect)
    with pytest.raises(IndexError):
        targets()["glossary"].read(sample)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_changes_of_damaged_samples_leave_no_memory_behind(codec: str):
    damaged = bytearray(packed(b"hello\tworld\n" * 1000, codec))
    damaged[60:64] = bytes(4)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes = []
    for _ in range(2):
        for number in range(500):
            mutate_packed(bytes(damaged), Random(number), bytes, codec)
        sizes.append(resident())
    assert sizes[1] - sizes[0] < 1 << 20
