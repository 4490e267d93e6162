"""Limits on file descriptors, which connections share with workers, files and the database."""

import resource
from typing import Final

#: Number of descriptors to request; a lower system limit takes precedence.
_WANTED: Final = 65_536


def raise_descriptor_limit() -> None:
    """Raise this process's limit on open files and connections as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return the maximum number of connections for each of gRPC and HTTP: a third of the descriptors.

    The last third is reserved for workers, files and the database.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED // 3 if soft == resource.RLIM_INFINITY else soft // 3


def most_downloads() -> int:
    """Return the maximum number of files that a caller may download at the same time.

    This is a quarter of the descriptors that are reserved for workers, files and the database.
    """
    return most_connections() // 4
