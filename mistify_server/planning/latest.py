"""Values that the latest keys have given."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LatestValues(Generic[_Key, _Value]):
    """Remembers the values of the latest keys, which are compared and not hashed.

    It is for keys of configs, most of which have the same objects as the one before: comparing these takes no
    time, while a text or a hash of them takes longer than most of what it would save.

    Args:
        most: Number of values to remember.
    """

    def __init__(self, most: int) -> None:
        self._latest: deque[tuple[_Key, _Value]] = deque(maxlen=most)

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return the value of a key, which is made unless it is remembered."""
        for known, value in self._latest:
            if known == key:
                return value
        made = make()
        self._latest.appendleft((key, made))
        return made
