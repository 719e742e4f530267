"""Draw random numbers that depend on a key and an index alone, so that batches of any kind get the same ones."""

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers: what is added for each index, and shifts with factors.
STEP = 0x9E3779B97F4A7C15 - 2**64
ROUNDS, LAST = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)), 31
BITS = 23  # with half of a last one, those of a float32


def random_bits(keys: Tensor, size: int) -> Tensor:
    """Return 64 random bits for each key (R,) and each index below `size`: (R, size), int64.

    They are the numbers that the generator SplitMix64 gives with a key as its state.
    """
    bits = keys[:, None] + torch.arange(1, size + 1, device=keys.device) * STEP
    shifted = torch.empty_like(bits)
    for shift, factor in ROUNDS:  # in place: fresh memory takes several times as long
        bits.bitwise_xor_(shift_right(bits, shift, shifted)).mul_(factor)
    return bits.bitwise_xor_(shift_right(bits, LAST, shifted))


def shift_right(bits: Tensor, shift: int, out: Tensor) -> Tensor:
    """Write bits of int64, shifted and without regard to the sign, into `out`, and return it."""
    return torch.bitwise_right_shift(bits, shift, out=out).bitwise_and_((1 << 64 - shift) - 1)


def gumbel_noise(keys: Tensor, size: int) -> Tensor:
    """Return numbers of the Gumbel distribution, (R, size), float32, for keys (R,), int64."""
    bits = random_bits(keys, size)
    uniform = shift_right(bits, 64 - BITS, bits).float().add_(0.5).mul_(2.0**-BITS)  # between 0 and 1, so finite noise
    return uniform.neg_().log1p_().neg_().log_().neg_()
