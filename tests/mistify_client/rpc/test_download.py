import hashlib
import threading

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify.package.manifest import Manifest
from mistify_client.rpc.download import download_package


def described(name: str, data: bytes) -> PackageFile:
    return PackageFile(name, len(data), hashlib.sha256(data).hexdigest())


class Reader:
    """A source that serves bytes in chunks of 3, and records the requested offsets."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls: list[tuple[str, int]] = []

    def __call__(self, name: str, offset: int):
        self.calls.append((name, offset))
        return (self.data[start : start + 3] for start in range(offset, len(self.data), 3))


def test_files_are_downloaded_into_a_new_directory(tmp_path):
    data = b"0123456789"
    download_package([described("a", data)], tmp_path / "new" / "er", Reader(data))
    assert (tmp_path / "new" / "er" / "a").read_bytes() == data


def test_an_existing_file_is_not_downloaded_again(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "a").write_bytes(reader.data)
    download_package([described("a", reader.data)], tmp_path, reader)
    assert reader.calls == []


def test_a_file_with_other_content_is_replaced(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "a").write_bytes(b"from another job")
    download_package([described("a", reader.data)], tmp_path, reader)
    assert (tmp_path / "a").read_bytes() == reader.data


def test_a_partial_download_is_resumed(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "a.part").write_bytes(b"0123")
    download_package([described("a", reader.data)], tmp_path, reader)
    assert reader.calls == [("a", 4)]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_symbolic_link_instead_of_a_partial_file_is_not_followed(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "of-somebody").write_bytes(b"0123")
    (tmp_path / "a.part").symlink_to(tmp_path / "of-somebody")
    download_package([described("a", reader.data)], tmp_path, reader)
    assert (tmp_path / "a").read_bytes() == reader.data
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "of-somebody").read_bytes() == b"0123"


def test_files_of_another_package_are_removed_after_the_download(tmp_path, package):
    old = Manifest.load(package)
    assert "serve.tflite" in old.files
    (package / "mine.txt").write_text("no file of a package")
    new = {"other.tflite": b"network", "manifest.json": b"{}"}
    files = [described(name, data) for name, data in new.items()]
    read_from = lambda name, offset: [new[name][offset:]]  # noqa: E731
    download_package(files, package, read_from, only=["other.tflite"])
    assert (package / "serve.tflite").exists()
    download_package(files, package, read_from)
    assert {path.name for path in package.iterdir()} == {*new, "mine.txt"}


@pytest.mark.parametrize("left", [b"xxxx", b"x" * 10, b"x" * 99])
def test_a_partial_file_with_other_content_is_downloaded_from_the_start(tmp_path, left):
    reader = Reader(b"0123456789")
    (tmp_path / "a.part").write_bytes(left)
    download_package([described("a", reader.data)], tmp_path, reader)
    assert reader.calls[-1] == ("a", 0)
    assert (tmp_path / "a").read_bytes() == reader.data


def test_a_complete_partial_file_is_not_downloaded_again(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "a.part").write_bytes(reader.data)
    download_package([described("a", reader.data)], tmp_path, reader)
    assert reader.calls == []
    assert (tmp_path / "a").exists()


def test_empty_files_are_created(tmp_path):
    download_package([described("a", b"")], tmp_path, Reader(b""))
    assert (tmp_path / "a").read_bytes() == b""


def test_an_endless_stream_is_stopped(tmp_path):
    def endless(name: str, offset: int):
        while True:
            yield b"0" * 8

    with pytest.raises(MistifyError) as caught:
        download_package([described("a", b"0123456789")], tmp_path, endless)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_is_written_last(tmp_path):
    reader = Reader(b"x")
    download_package([described(name, b"x") for name in ("manifest.json", "z", "a")], tmp_path, reader)
    assert [name for name, _ in reader.calls] == ["z", "a", "manifest.json"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "/etc/a", "a/b", "a\\b", "a\0", "a b", ".a", "a" * 129, "origin.json"]
)
def test_file_names_outside_the_directory_are_refused(tmp_path, name):
    reader = Reader(b"x")
    with pytest.raises(MistifyError, match="not a plain file name"):
        download_package([described(name, b"x")], tmp_path / "inside", reader)
    assert reader.calls == []


def test_a_package_too_large_for_the_disk_is_refused_before_the_download(tmp_path):
    files, reader = [described("a", b"0123456789"), described("b", b"0123456789")], Reader(b"0123456789")
    with pytest.raises(MistifyError, match="it needs 20B more, and 19B are left for it") as caught:
        download_package(files, tmp_path, reader, room=lambda directory: 19)
    assert caught.value.code is ErrorCode.NO_ROOM
    assert reader.calls == []
    download_package(files, tmp_path, reader, room=lambda directory: 20)


def test_files_that_exist_need_no_further_disk_space(tmp_path):
    reader = Reader(b"0123456789")
    (tmp_path / "there").write_bytes(reader.data)
    (tmp_path / "begun.part").write_bytes(b"0123")
    files = [described("there", reader.data), described("begun", reader.data)]
    with pytest.raises(MistifyError, match="it needs 6B more"):
        download_package(files, tmp_path, reader, room=lambda directory: 5)
    download_package(files, tmp_path, reader, room=lambda directory: 6)
    download_package(files, tmp_path, reader, room=lambda directory: 0)


def test_free_disk_space_is_queried(tmp_path):
    with pytest.raises(MistifyError) as caught:
        download_package([PackageFile("a", 10**18, "0" * 64)], tmp_path, Reader(b""))
    assert caught.value.code is ErrorCode.NO_ROOM


def test_two_downloads_into_one_directory_take_turns(tmp_path):
    """The second download starts while the first holds the directory, and then finds all files there."""
    data = b"0123456789"
    started, second_waits = threading.Event(), threading.Event()
    second = Reader(data)

    def slow(name: str, offset: int):
        started.set()
        second_waits.wait()
        yield data

    def fetch_second() -> None:
        started.wait()
        second_waits.set()
        download_package([described("a", data)], tmp_path, second)

    threads = [
        threading.Thread(target=download_package, args=([described("a", data)], tmp_path, slow)),
        threading.Thread(target=fetch_second),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert second.calls == []
    assert (tmp_path / "a").read_bytes() == data
