"""Draw random numbers that depend on a key and a token alone, so that batches of any kind get the same ones."""

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers: what is added for each number, and shifts with factors.
STEP = 0x9E3779B97F4A7C15 - 2**64
ROUNDS, LAST = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)), 31
LEAST, MOST = 2.0**-64, 1 - 2.0**-24  # between 0 and 1, where the noise would be infinite


def random_bits(keys: Tensor, tokens: Tensor) -> Tensor:
    """Return 64 random bits for each key (R,) and each of its tokens (R, N): (R, N), int64.

    Of the numbers that the generator SplitMix64 gives with the key as its state, token 0 has the first one.
    """
    bits = (tokens + 1).mul_(STEP).add_(keys[:, None])
    shifted = torch.empty_like(bits)
    for shift, factor in ROUNDS:  # in place: fresh memory takes several times as long
        bits.bitwise_xor_(shift_right(bits, shift, shifted)).mul_(factor)
    return bits.bitwise_xor_(shift_right(bits, LAST, shifted))


def shift_right(bits: Tensor, shift: int, out: Tensor) -> Tensor:
    """Write bits of int64, shifted and without regard to the sign, into `out`, and return it."""
    return torch.bitwise_right_shift(bits, shift, out=out).bitwise_and_((1 << 64 - shift) - 1)


def gumbel_noise(keys: Tensor, tokens: Tensor) -> Tensor:
    """Return numbers of the Gumbel distribution, (R, N), float32, for keys (R,) and tokens (R, N), int64."""
    bits = random_bits(keys, tokens)
    # All bits count: the smaller the number, the larger the noise, which lets improbable tokens be drawn.
    uniform = shift_right(bits, 1, bits).float().mul_(2.0**-63).clamp_(LEAST, MOST)
    return uniform.neg_().log1p_().neg_().log_().neg_()
