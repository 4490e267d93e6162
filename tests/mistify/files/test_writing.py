import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mistify.files.locking import locked, try_lock
from mistify.files.writing import open_partial, replacing, sync_path, write_bytes, write_json, write_text
from tests.support.disks import files_limited_to


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Record every fsync: the inode, and the names in the directory at that moment."""
    calls, sync = [], os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        directory = path if path.is_dir() else path.parent
        calls.append((os.fstat(descriptor).st_ino, sorted(entry.name for entry in directory.iterdir())))

    monkeypatch.setattr(os, "fsync", note)
    return calls


def test_write_json_leaves_no_other_files(tmp_path):
    write_json(tmp_path / "report.json", {"a": 1})
    write_json(tmp_path / "report.json", {"a": 2})
    assert json.loads((tmp_path / "report.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_text_is_written_as_utf_8(tmp_path):
    write_text(tmp_path / "text", "µ\n")
    assert (tmp_path / "text").read_bytes() == b"\xc2\xb5\n"


def test_a_durable_file_is_synced_before_its_renaming_and_the_directory_afterwards(tmp_path, synced):
    path = tmp_path / "a"
    write_bytes(path, b"new", durable=True)
    assert synced == [(path.stat().st_ino, ["a.part"]), (tmp_path.stat().st_ino, ["a"])]


def test_other_files_are_not_synced(tmp_path, synced):
    write_bytes(tmp_path / "a", b"new")
    assert synced == []


def test_the_old_content_survives_a_failed_write_which_leaves_nothing_on_the_disk(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with files_limited_to(1), pytest.raises(OSError, match="File too large"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [False, True])
def test_two_writers_at_once_leave_the_whole_content_of_the_last_one(tmp_path, durable):
    path = tmp_path / "a"
    with replacing(path, durable=durable) as second:
        with replacing(path, durable=durable) as first:
            first.write(b"first")
            second.write(b"sec")
            second.flush()
        assert path.read_bytes() == b"first"
        second.write(b"ond")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_does_not_remove_the_file_of_one_that_begins_just_when_another_ends(tmp_path, monkeypatch):
    path, opened = tmp_path / "a", os.open
    first, third = replacing(path), replacing(path)
    first.__enter__().write(b"first")
    begun = []

    def open_late(name, flags, *mode):
        """Open a file when the first writer has ended, and return when a third one has begun."""
        if flags & os.O_CREAT or begun:
            return opened(name, flags, *mode)
        first.__exit__(None, None, None)
        try:
            return opened(name, flags, *mode)
        finally:
            begun.append(third)
            third.__enter__().write(b"third")

    monkeypatch.setattr(os, "open", open_late)
    write_bytes(path, b"second")
    assert begun == [third]
    assert path.read_bytes() == b"second"
    third.__exit__(None, None, None)
    assert path.read_bytes() == b"third"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_at_once_leave_one_whole_content(tmp_path):
    path, contents = tmp_path / "a", [bytes([number]) * 1000 for number in range(8)]

    def write_often(content: bytes) -> None:
        for _ in range(50):
            write_bytes(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write_often, contents))
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_never_readable_by_others(tmp_path):
    (tmp_path / "a.part").write_bytes(b"left by a crash, readable for all")
    with replacing(tmp_path / "a", private=True) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_until_the_end_of_its_block(tmp_path):
    with tmp_path.joinpath("lock").open("w") as first, tmp_path.joinpath("lock").open() as second:
        with locked(tmp_path / "lock"):
            assert not try_lock(first)
        assert try_lock(first)
        assert not try_lock(second)
        assert not try_lock(second, shared=True)


def test_shared_locks_do_not_exclude_each_other(tmp_path):
    with tmp_path.joinpath("lock").open("w") as first, tmp_path.joinpath("lock").open() as second:
        assert try_lock(first, shared=True)
        assert try_lock(second, shared=True)
        assert not try_lock(second)


def test_a_directory_is_synced(tmp_path, synced):
    sync_path(tmp_path)
    assert synced == [(tmp_path.stat().st_ino, [])]


@pytest.mark.parametrize("private", [False, True])
def test_a_symbolic_link_instead_of_a_partial_file_is_not_followed(tmp_path, private):
    (tmp_path / "of-somebody").write_bytes(b"precious")
    (tmp_path / "a.part").symlink_to(tmp_path / "of-somebody")
    write_bytes(tmp_path / "a", b"new", private=private)
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "a").is_symlink()) == (b"new", False)
    assert (tmp_path / "of-somebody").read_bytes() == b"precious"


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_writing_does_not_resume_through_a_symbolic_link(tmp_path, link):
    (tmp_path / "of-somebody").write_bytes(b"precious")
    link(tmp_path / "a.part", tmp_path / "of-somebody")
    for part in (b"01", b"23"):
        with open_partial(tmp_path / "a.part") as file:
            file.write(part)
    assert (tmp_path / "a.part").read_bytes() == b"0123"
    assert (tmp_path / "of-somebody").read_bytes() == b"precious"
