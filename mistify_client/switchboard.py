"""The switchboard of a package: which branch runs, and whether another version was made current (paper 6).

A file of 16 bytes, mapped into the memory of every process that uses the package. A runtime reads it at each
inference, which costs as much as reading a variable.
"""

import mmap
from pathlib import Path
from typing import Final

from mistify_client.files import locked

#: The branch of a switchboard that nobody has set: the package's default.
DEFAULT_BRANCH: Final = -1

_FILE: Final = "switchboard"

# The last byte of the magic is the version of the format.
_MAGIC: Final = b"MISTIFY\1"
_BRANCH, _GENERATION = 2, 3  # words of 4 bytes
_INITIAL: Final = _MAGIC + DEFAULT_BRANCH.to_bytes(4, "little", signed=True) + bytes(4)


class Switchboard:
    """Which branch of a package runs. Words are read and written whole, by any thread or process.

    A switchboard that is made without `open` is for this process alone.
    """

    def __init__(self, memory: mmap.mmap | bytearray | None = None) -> None:
        words = memoryview(bytearray(_INITIAL) if memory is None else memory)
        self._signed, self._unsigned = words.cast("i"), words.cast("I")

    @classmethod
    def open(cls, state: Path) -> "Switchboard":
        """The switchboard that all processes share, in the state directory of a package.

        Raises:
            OSError: it can be neither found nor made, or not be written to.
        """
        state.mkdir(parents=True, exist_ok=True)
        path = state / _FILE
        path.touch()
        with locked(path), path.open("r+b") as file:
            if file.read()[: len(_MAGIC)] != _MAGIC:
                file.seek(0)
                file.write(_INITIAL)
                file.flush()
            return cls(mmap.mmap(file.fileno(), len(_INITIAL)))

    @property
    def branch(self) -> int:
        """The branch that the next inference runs; `DEFAULT_BRANCH` until it is set."""
        return self._signed[_BRANCH]

    @branch.setter
    def branch(self, branch: int) -> None:
        self._signed[_BRANCH] = branch

    @property
    def generation(self) -> int:
        """Rises, modulo 2^32, whenever another version of the package has been made current."""
        return self._unsigned[_GENERATION]

    def bump(self) -> None:
        """Say that another version is current, whose branches are others; writers take turns."""
        self._signed[_BRANCH] = DEFAULT_BRANCH
        self._unsigned[_GENERATION] = (self._unsigned[_GENERATION] + 1) % 2**32
