"""Full disks, real and simulated ones, and no free file descriptors."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Simulate a full disk: limit the files of this process and its children to a size in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def no_more_files() -> Iterator[None]:
    """Use up all file descriptors of this process within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[None]:
    """Mount a disk of a size in bytes within the block; skip the test if this is not allowed."""
    options = f"size={size},mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "small-disk", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted by this user")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no free space on a disk within the block."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()
