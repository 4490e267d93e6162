"""Disks that are full."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Limit the files of this process and of those that it starts to a size in bytes, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file in the block: it has no descriptor left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
