"""The processors that a process may use, which can be fewer than the machine has."""

import os
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Final

#: Files with the limit of a cgroup's processor time, below its directory: version 2, and version 1.
_LIMIT: Final = "cpu.max"
_QUOTA, _PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use, at least 1.

    These are the ones on which it may run, but at most the limit of its cgroup and those above, rounded up.

    Args:
        root: The root of the file system.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *(max(1, ceil(limit)) for limit in _limits(root))])


def _limits(root: Path) -> Iterator[float]:
    """Yield the limits of this process's cgroups and those above, in processors."""
    groups = root / "sys/fs/cgroup"
    lines: list[str] = []
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        hierarchy = groups / controllers if controllers else groups
        path = PurePosixPath(name.strip("/"))
        for group in (path, *path.parents):
            with suppress(OSError, ValueError, ZeroDivisionError):
                yield _limit_of(hierarchy / group, version=1 if controllers else 2)


def _limit_of(group: Path, version: int) -> float:
    """Return the limit of a cgroup in processors.

    Raises:
        OSError: There is no such file, as of a group seen from within a container.
        ValueError: There is no limit.
    """
    if version == 1:
        quota, period = ((group / name).read_text() for name in (_QUOTA, _PERIOD))
        if int(quota) < 0:
            raise ValueError("no limit")
    else:
        quota, period = (group / _LIMIT).read_text().split()
    return int(quota) / int(period)
