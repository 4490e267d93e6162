"""Limits on the memory of processes, as of containers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

_GROUPS: Final = Path("/sys/fs/cgroup")

#: Version of Linux's control groups: the parent of new groups, and the file with the limit of a group.
_VERSIONS: Final = ((_GROUPS / "memory", "memory.limit_in_bytes"), (_GROUPS, "memory.max"))


@contextmanager
def memory_limited(process: int, size: int) -> Iterator[None]:
    """Let Linux kill a process that takes more than `size` bytes of further memory, until the block ends.

    Skips the test if this is not allowed. The process must have ended by the end of the block.
    """
    for parent, limit in _VERSIONS:
        group = parent / f"mistify-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(size))
                (group / "cgroup.procs").write_text(str(process))
            except OSError:
                group.rmdir()
                continue
            break
    else:
        pytest.skip("no memory can be limited by this user")
    try:
        yield
    finally:
        group.rmdir()
