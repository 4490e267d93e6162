"""The switchboard of a package: the current option, and the generation of the current version (paper 6).

A file of 24 bytes, memory-mapped by every process that uses the package. A runtime reads it at each
inference, which costs as much as reading a variable.
"""

import math
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from mistify.files.locking import locked
from mistify_client.files import damage_reported

#: The option of a version without any switch yet: the package's default.
DEFAULT_OPTION: Final = -1

#: The most seconds for which a monitor can forbid helpers. If more are left, the device was restarted since.
LONGEST_ALONE: Final = 600

_FILE: Final = "switchboard"

# The last byte of the magic is the version of the format. Then come words of 4 bytes: the generation, the
# option of even generations, that of odd ones, and the second of the monotonic clock until which no helper
# may be asked. Files of earlier versions lack the last one.
_MAGIC: Final = b"MISTIFY\1"
_GENERATION, _OPTIONS, _ALONE_UNTIL = 2, 3, 5
_GENERATIONS: Final = 2**32

#: Number of versions whose options are kept.
_KEPT: Final = 2

_INITIAL: Final = _MAGIC + bytes(4) + 2 * DEFAULT_OPTION.to_bytes(4, "little", signed=True) + bytes(4)
_EARLIER_BYTES: Final = 20


class Switchboard:
    """The choice of the current option, by its index among the options of its version (`PackageOptions`).

    Words are read and written atomically, by any thread or process.

    An option belongs to one version of the package, a generation: while a new version is being loaded, the
    old one keeps its option. A switchboard created without `open` is private to this process.

    Args:
        clock: Returns seconds since the device started, the same in all processes.
    """

    def __init__(
        self, memory: mmap.mmap | bytearray | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._file: tuple[Path, int] | None = None
        self._memory: mmap.mmap | bytearray = bytearray(_INITIAL) if memory is None else memory
        words = memoryview(self._memory)
        self._signed, self._unsigned = words.cast("i"), words.cast("I")

    @classmethod
    def open(cls, state: Path, clock: Callable[[], float] = time.monotonic) -> "Switchboard":
        """Open the switchboard shared by all processes, in the state directory of a package.

        A damaged switchboard is reset, as if no version had been switched.

        Args:
            clock: Returns seconds since the device started, the same in all processes.

        Raises:
            MistifyError: CORRUPT_PACKAGE, its path is not a file, or not accessible to this process.
            OSError: The file cannot be written, for example on a full disk.
        """
        with damage_reported(state):
            path = state / _FILE
            try:
                file = path.open("r+b")
            except FileNotFoundError:
                state.mkdir(parents=True, exist_ok=True)
                path.touch()
                file = path.open("r+b")
            with file:
                if not _is_complete(file):
                    with locked(path):
                        _complete(file)
                switchboard = cls(mmap.mmap(file.fileno(), len(_INITIAL)), clock)
                switchboard._file = path, os.fstat(file.fileno()).st_ino
                return switchboard

    @property
    def is_removed(self) -> bool:
        """True if its file was removed: processes that open the package later share another one."""
        if self._file is None:
            return False
        path, inode = self._file
        try:
            return path.stat().st_ino != inode
        except OSError:
            return True

    @property
    def generation(self) -> int:
        """The generation, which is incremented, modulo 2^32, when another version becomes current."""
        return self._unsigned[_GENERATION]

    @property
    def generation_before(self) -> int:
        """The generation of the previous version."""
        return (self.generation - 1) % _GENERATIONS

    @property
    def following(self) -> int:
        """The generation of the next version that becomes current."""
        return (self.generation + 1) % _GENERATIONS

    def is_before(self, generation: int) -> bool:
        """Check whether a generation is yet to be announced."""
        return 0 < (generation - self.generation) % _GENERATIONS < _GENERATIONS // 2

    @property
    def option(self) -> int:
        """The index of the current version's next option; `DEFAULT_OPTION` until one is chosen."""
        return self.option_in(self.generation)

    @option.setter
    def option(self, option: int) -> None:
        self.switch_in(self.generation, option)

    def holds(self, generation: int) -> bool:
        """Check whether an option of a version is kept: of the current and the previous one."""
        return (self.generation - generation) % _GENERATIONS < _KEPT

    def option_in(self, generation: int) -> int:
        """Return the index of the option of the current version, or of the previous one if it still runs."""
        return self._signed[_OPTIONS + generation % _KEPT]

    @property
    def alone(self) -> bool:
        """True if no helper may be asked; otherwise apps decide before each inference."""
        return 0 < self._unsigned[_ALONE_UNTIL] - self._clock() <= LONGEST_ALONE

    def forbid_helpers(self, seconds: float) -> None:
        """Let no app ask helpers for a while: a monitor that was killed does not allow them again.

        Args:
            seconds: Time until apps decide again, at most `LONGEST_ALONE`; 0 for now.
        """
        self._unsigned[_ALONE_UNTIL] = math.floor(self._clock() + min(seconds, LONGEST_ALONE))

    def switch_in(self, generation: int, option: int) -> None:
        """Set the option of a version."""
        self._signed[_OPTIONS + generation % _KEPT] = option

    def bump(self) -> None:
        """Announce another current version, as `announce` does."""
        self.announce(self.following)

    def announce(self, generation: int) -> None:
        """Make a later generation the current one, with its default option; writers hold a lock.

        It is on the disk at the end: after a power cut, the new version would run the option that was chosen
        for the previous one.

        Raises:
            OSError: The disk fails.
        """
        self.switch_in(generation, DEFAULT_OPTION)
        self._unsigned[_GENERATION] = generation
        if isinstance(self._memory, mmap.mmap):
            self._memory.flush()


def _is_complete(file: IO[bytes]) -> bool:
    file.seek(0)
    content = file.read()
    return content.startswith(_MAGIC) and len(content) >= len(_INITIAL)


def _complete(file: IO[bytes]) -> None:
    """Write what is missing, unless another process has already done so; writers hold a lock."""
    if not _is_complete(file):
        file.seek(0)
        content = file.read()
        is_earlier = content.startswith(_MAGIC) and len(content) == _EARLIER_BYTES
        file.seek(0)
        file.write(content + _INITIAL[_EARLIER_BYTES:] if is_earlier else _INITIAL)
        file.flush()
