"""Digests are cached until a file changes."""

import hashlib
import os
from pathlib import Path

import pytest

from mistify_server.store import file_digests
from mistify_server.store.file_digests import FileDigests


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with two files whose changes are always detectable, however quickly they follow."""
    monkeypatch.setattr(file_digests, "_SAME_TICK_NS", 0)
    directory = tmp_path / "data"
    (directory / "cats").mkdir(parents=True)
    (directory / "cats" / "one.png").write_bytes(b"one")
    (directory / "two.png").write_bytes(b"two")
    return directory


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> str:
        raise AssertionError("it was read again")

    monkeypatch.setattr(file_digests, "_digest", read)


def test_unchanged_files_are_not_read_again(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = FileDigests()
    before = [digests.of(path) for path in (files, files / "two.png")]
    unread(monkeypatch)
    assert [digests.of(path) for path in (files, files / "two.png")] == before


def test_recently_changed_files_are_read_again(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change may happen before the file system's clock advances."""
    monkeypatch.setattr(file_digests, "_SAME_TICK_NS", 3_600_000_000_000)
    digests = FileDigests()
    digests.of(files)
    unread(monkeypatch)
    with pytest.raises(AssertionError, match="read again"):
        digests.of(files)


def test_equal_content_has_equal_digests_at_any_path(files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"two")
    assert FileDigests().of(other) == FileDigests().of(files / "two.png")
    expected = hashlib.sha256(b"\0003\0two").hexdigest()
    assert FileDigests().of(other) == expected


@pytest.mark.parametrize(
    "change", ["content", "another file of the same size and time", "new file", "renamed", "removed"]
)
def test_every_change_is_detected(files: Path, change: str) -> None:
    digests, changed = FileDigests(), files / "cats" / "one.png"
    before, status = digests.of(files), changed.stat()
    match change:
        case "content":
            changed.write_bytes(b"another")
        case "another file of the same size and time":
            (other := files.parent / "other").write_bytes(b"eno")
            os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
            other.replace(changed)
        case "new file":
            (files / "three.png").write_bytes(b"")
        case "renamed":
            changed.rename(files / "cats" / "uno.png")
        case "removed":
            changed.unlink()
    assert digests.of(files) != before


def test_a_new_access_time_does_not_cause_another_read(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads have their time of last use set."""
    digests, file = FileDigests(), files / "two.png"
    before = digests.of(file)
    unread(monkeypatch)
    os.utime(file, ns=(0, file.stat().st_mtime_ns))
    assert digests.of(file) == before


def test_symbolic_links_to_directories_are_not_followed(files: Path) -> None:
    """They may form loops, and changes behind them would go unnoticed."""
    (files / "cats" / "again").symlink_to(files)
    with pytest.raises(OSError, match="symbolic links"):
        FileDigests().of(files)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileDigests().of(tmp_path / "missing")
