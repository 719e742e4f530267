"""Random numbers for sampling: those of the generator that they are named after, and of the right distribution."""

import math

import pytest
import torch

from dragoman.decoding.noise import gumbel_noise, random_bits

MASK = 2**64 - 1


def splitmix64(state: int) -> tuple[int, int]:
    """The next state of the generator, and its number, in whole numbers of Python."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    bits = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return state, bits ^ (bits >> 31)


def test_bits_are_those_of_splitmix64():
    """The control is the first number of a published test vector."""
    assert splitmix64(1234567)[1] == 6457827717110365317
    keys = [1234567, 0, 2**63 - 1, -(2**63), -1]
    bits = random_bits(torch.tensor(keys), torch.arange(300).expand(len(keys), 300))
    for state, row in zip(keys, bits.tolist(), strict=True):
        for number in row:
            state, expected = splitmix64(state & MASK)
            assert number & MASK == expected


def test_noise_depends_on_key_and_token_and_is_gumbel_distributed():
    keys = torch.randint(2**62, (300,), generator=torch.Generator().manual_seed(0))
    noise = gumbel_noise(keys, torch.arange(4000).expand(300, 4000))
    some = torch.tensor([[7, 3999, 0]])
    for row in (0, 7, 299):
        assert torch.equal(gumbel_noise(keys[row : row + 1], some), noise[row, some])
    for x in (-1.5, 0.0, 1.0, 5.0, 10.0):
        chance = math.exp(-math.exp(-x))
        spread = math.sqrt(chance * (1 - chance) / noise.numel())
        assert abs((noise < x).double().mean() - chance) < 5 * spread
    assert len(noise[noise > 10].unique()) == (noise > 10).sum() > 20  # where float32 has the fewest numbers
    assert abs((noise < 0.0).double().mean() - 0.5) > 0.1  # the control: another distribution
    for one, other in ((noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 5 / math.sqrt(one.numel())


def test_noise_is_finite_for_any_bits(monkeypatch: pytest.MonkeyPatch):
    """Infinite noise would decide alone."""
    monkeypatch.setattr("dragoman.decoding.noise.random_bits", lambda *_: torch.tensor([[0, -1, 2**63 - 1]]))
    expected = torch.tensor([[64 * math.log(2), -math.log(24 * math.log(2)), -math.log(math.log(2))]])
    torch.testing.assert_close(gumbel_noise(torch.tensor([0]), torch.tensor([[0, 1, 2]])), expected)
