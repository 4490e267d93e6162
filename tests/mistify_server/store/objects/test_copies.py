"""The limit on copies of artifacts on a machine."""

import fcntl
import os
from pathlib import Path

import pytest

from mistify_server.store.objects.copies import KEPT_SECONDS, LocalCopies

NOW = 1_000_000.0
OLD = NOW - 10 * KEPT_SECONDS


def copy(directory: Path, name: str, used: float) -> Path:
    """Make a copy of 100 bytes that was last used at a time."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(100))
    os.utime(path, (used, OLD))
    return path


@pytest.fixture
def copies(tmp_path: Path) -> LocalCopies:
    return LocalCopies(tmp_path, 250, lambda: NOW)


def test_those_unused_for_longest_are_removed(tmp_path: Path, copies: LocalCopies) -> None:
    ages = {"aa/1": 2, "ab/2": 4, "incoming/3": 3, "ac/4": 5, "lock": 9}
    made = {name: copy(tmp_path, name, NOW - hours * KEPT_SECONDS) for name, hours in ages.items()}
    copies.add(100)
    assert [name for name, path in made.items() if path.exists()] == ["aa/1", "incoming/3", "lock"]


def test_copies_in_use_exceed_the_limit(tmp_path: Path, copies: LocalCopies) -> None:
    recent = [copy(tmp_path, f"aa/{number}", NOW - 1800) for number in range(3)]
    locked, used = copy(tmp_path, "ab/locked", OLD), copy(tmp_path, "ab/used", OLD)
    copies.use(used)
    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        copies.add(100)
    assert all(path.exists() for path in (*recent, locked, used))
    LocalCopies(tmp_path, 250, lambda: NOW).add(100)
    assert not locked.exists()


def test_the_content_is_not_suspected_after_each_use(tmp_path: Path, copies: LocalCopies) -> None:
    path = copy(tmp_path, "aa/1", OLD)
    copies.use(path)
    first = path.stat()
    assert (first.st_atime, first.st_mtime) == (NOW, OLD)
    copies.use(path)
    assert path.stat().st_ctime_ns == first.st_ctime_ns
    with pytest.raises(FileNotFoundError):
        copies.use(tmp_path / "aa" / "2")


def test_files_are_counted_again_after_enough_new_ones(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path, 160, lambda: NOW)
    copies.add(1)
    old = [copy(tmp_path, f"aa/{number}", OLD) for number in range(3)]
    copies.add(9)
    assert all(path.exists() for path in old)
    copies.add(1)
    assert sum(path.exists() for path in old) == 1
