"""How much a helper has to save."""

from typing import Final

#: A helper is asked only if that saves this share of the time, and this many milliseconds.
GAIN: Final = 0.1
GAIN_MS: Final = 1.0


def is_much_faster(milliseconds: float, other_ms: float) -> bool:
    """Return True if one time is so much shorter than another that a helper is worth asking."""
    return milliseconds <= min((1 - GAIN) * other_ms, other_ms - GAIN_MS)
