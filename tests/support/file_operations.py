"""Child processes that end at a chosen operation on files."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_MAKES = ("os.mkdir", "os.symlink")
_REMOVES = ("os.rename", "os.remove", "os.rmdir")


def ended_at(point: int, root: Path, work: Callable[[], object], *, full: bool = False) -> int:
    """Do work in a child process that is killed at one of its operations on files.

    An audit hook counts the operations below `root` that change files. To try all of them, increase the point
    until the status is 0.

    Args:
        point: The number of the operation, from 1.
        full: Let the operation fail as on a full disk instead. Renaming and removing then do not count.

    Returns:
        The wait status of the child: 0 if it has fewer operations.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if not arguments or not str(arguments[0]).startswith(str(root)):
            return
        writes = event == "open" and int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR)
        if writes or event in _MAKES or (event in _REMOVES and not full):
            seen += 1
            if seen == point and full:
                raise OSError(errno.ENOSPC, "No space left on device")
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        work()
    except OSError as error:
        os._exit(error.errno or errno.EIO)
    os._exit(seen >= point)  # work may go on without a file
