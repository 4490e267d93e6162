"""File descriptors, which connections share with workers, files and the database."""

import resource
from typing import Final

#: Descriptors that are asked for; fewer where the system allows fewer.
_WANTED: Final = 65_536


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return how many connections each of gRPC and HTTP may have: a third of the descriptors.

    Workers, files and the database have the last third, however many clients connect.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED // 3 if soft == resource.RLIM_INFINITY else soft // 3
