"""Whether time grows in proportion to the input, measured by the processor's time for an input and for a larger one.

Twice the input may take twice as long, and quadratic time is four times: so four times the input is measured, which is
4 or 16. A bound in seconds would depend on the machine.
"""

import gc
import time
from collections.abc import Callable

FACTOR = 4  # how much more the second measurement reads
MOST = 9  # times as long as the first one may the second one take
NOISE = 0.1  # seconds


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    gc.disable()  # it would look at every object of the other tests
    try:
        began = time.process_time()
        call()
        return time.process_time() - began
    finally:
        gc.enable()


def grows_too_fast(seconds: Callable[[int], float], size: int) -> bool:
    """Return whether FACTOR times the input takes far more than FACTOR times as long, three times in a row.

    seconds: gives the time for an input of some size, such as from `processor_seconds`.
    """
    return all(seconds(FACTOR * size) > MOST * seconds(size) + NOISE for _ in range(3))
