import json
import os
from pathlib import Path

import pytest

from mistify.files import locked, replacing, sync_path, try_lock, write_bytes, write_json, write_text


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """What was synced: its inode, and the names in the directory at that moment."""
    calls, sync = [], os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        directory = path if path.is_dir() else path.parent
        calls.append((os.fstat(descriptor).st_ino, sorted(entry.name for entry in directory.iterdir())))

    monkeypatch.setattr(os, "fsync", note)
    return calls


def test_write_json_leaves_nothing_else(tmp_path):
    write_json(tmp_path / "report.json", {"a": 1})
    write_json(tmp_path / "report.json", {"a": 2})
    assert json.loads((tmp_path / "report.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_text_is_written_as_utf_8(tmp_path):
    write_text(tmp_path / "text", "µ\n")
    assert (tmp_path / "text").read_bytes() == b"\xc2\xb5\n"


def test_a_durable_file_is_synced_before_it_takes_its_name_and_the_directory_afterwards(tmp_path, synced):
    path = tmp_path / "a"
    write_bytes(path, b"new", durable=True)
    assert synced == [(path.stat().st_ino, ["a.part"]), (tmp_path.stat().st_ino, ["a"])]


def test_other_files_wait_for_no_disk(tmp_path, synced):
    write_bytes(tmp_path / "a", b"new")
    assert synced == []


def test_the_old_content_stays_where_writing_fails(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old")
    Path(f"{path}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_private_file_is_never_readable_for_others(tmp_path):
    (tmp_path / "a.part").write_bytes(b"left by a crash, readable for all")
    with replacing(tmp_path / "a", private=True) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_until_its_end(tmp_path):
    with tmp_path.joinpath("lock").open("w") as first, tmp_path.joinpath("lock").open() as second:
        with locked(tmp_path / "lock"):
            assert not try_lock(first)
        assert try_lock(first)
        assert not try_lock(second)
        assert not try_lock(second, shared=True)


def test_shared_locks_go_together(tmp_path):
    with tmp_path.joinpath("lock").open("w") as first, tmp_path.joinpath("lock").open() as second:
        assert try_lock(first, shared=True)
        assert try_lock(second, shared=True)
        assert not try_lock(second)


def test_a_directory_is_synced(tmp_path, synced):
    sync_path(tmp_path)
    assert synced == [(tmp_path.stat().st_ino, [])]
