"""The switchboard of a package: which branch runs, and whether another version was made current (paper 6).

A file of 20 bytes, mapped into the memory of every process that uses the package. A runtime reads it at each
inference, which costs as much as reading a variable.
"""

import mmap
from pathlib import Path
from typing import Final

from mistify.files import locked

#: The branch of a version that nobody has switched yet: the package's default.
DEFAULT_BRANCH: Final = -1

_FILE: Final = "switchboard"

# The last byte of the magic is the version of the format. Then come words of 4 bytes: the generation, the
# branch of even generations, that of odd ones.
_MAGIC: Final = b"MISTIFY\1"
_GENERATION, _BRANCHES = 2, 3
_GENERATIONS: Final = 2**32
_INITIAL: Final = _MAGIC + bytes(4) + 2 * DEFAULT_BRANCH.to_bytes(4, "little", signed=True)


class Switchboard:
    """Which branch of a package runs. Words are read and written whole, by any thread or process.

    A branch is of one version of the package, a generation: while a new version is being loaded, what runs
    goes on as it was switched. A switchboard that is made without `open` is for this process alone.
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
    def generation(self) -> int:
        """Rises, modulo 2^32, whenever another version of the package has been made current."""
        return self._unsigned[_GENERATION]

    @property
    def generation_before(self) -> int:
        """That of the version before the current one."""
        return (self.generation - 1) % _GENERATIONS

    @property
    def branch(self) -> int:
        """The branch that the current version runs from its next inference on; `DEFAULT_BRANCH` until set."""
        return self.branch_in(self.generation)

    @branch.setter
    def branch(self, branch: int) -> None:
        self.switch_in(self.generation, branch)

    def branch_in(self, generation: int) -> int:
        """The branch of a version: the current one, or the one before, which may still run."""
        return self._signed[_BRANCHES + generation % 2]

    def switch_in(self, generation: int, branch: int) -> None:
        """Set the branch of a version."""
        self._signed[_BRANCHES + generation % 2] = branch

    def bump(self) -> None:
        """Say that another version is current, and runs its default branch; writers take turns."""
        following = (self.generation + 1) % _GENERATIONS
        self.switch_in(following, DEFAULT_BRANCH)
        self._unsigned[_GENERATION] = following
