"""Uploads resume, contain exactly the announced content, and are removed when nothing needs them."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, current_thread, main_thread
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.uploads import MOST_LISTING_BYTES, UploadName, listing_text
from mistify_server.store.uploads import KEPT_SECONDS, FileState, Uploads
from tests.support.disks import files_limited_to
from tests.support.sent import digest_of, pieces, send

CONTENT = bytes(range(256)) * 4


def bytes_below(directory: Path) -> int:
    """Return the total size of files below a directory; hard-linked files count once."""
    files = {path.stat().st_ino: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    return sum(files.values())


class Clock:
    """A manually set clock, in seconds since 1970."""

    def __init__(self) -> None:
        self.seconds = 2e9  # later than any file that the tests create

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def referenced() -> set[str]:
    return set()


@pytest.fixture
def uploads(tmp_path: Path, clock: Clock, referenced: set[str]) -> Uploads:
    return Uploads(tmp_path / "uploads", 10_000, lambda: referenced, clock)


def test_a_file_is_stored_under_the_names_in_configs(uploads: Uploads, tmp_path: Path) -> None:
    file = send(uploads, CONTENT)
    assert uploads.state(file) == FileState(True, 1024)
    for name in ("train.npz", "test.npz"):
        path = uploads.find(UploadName(file.sha256, name))
        assert (path.name, path.read_bytes()) == (name, CONTENT)
    assert bytes_below(tmp_path) == 1024


def test_an_upload_resumes_where_it_broke_off_even_after_a_restart(uploads: Uploads, tmp_path: Path) -> None:
    file = digest_of(CONTENT)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(uploads.receive(file, 0, pieces(CONTENT[:500], broken=True), "ci"))
    again = Uploads(tmp_path / "uploads", 10_000, set)
    assert again.state(file) == FileState(False, 500)
    assert bytes_below(tmp_path) == 500
    send(again, CONTENT, offset=500)
    assert again.find(UploadName(file.sha256, "net.keras")).read_bytes() == CONTENT


def test_repeating_a_damaged_upload_repairs_it_under_all_its_names(uploads: Uploads, tmp_path: Path) -> None:
    file = send(uploads, CONTENT)
    named = [uploads.find(UploadName(file.sha256, name)) for name in ("a.npz", "b.npz")]
    (stored,) = (tmp_path / "uploads" / "files").glob("*/*")
    stored.write_bytes(CONTENT[:-9])
    assert not uploads.state(file).complete
    send(uploads, CONTENT)
    assert uploads.state(file) == FileState(True, len(CONTENT))
    assert [path.read_bytes() for path in named] == [CONTENT, CONTENT]
    assert uploads.kept == bytes_below(tmp_path / "uploads") == len(CONTENT)


def test_data_that_would_leave_a_gap_is_refused(uploads: Uploads) -> None:
    with pytest.raises(MistifyError, match="expected byte 0,") as caught:
        send(uploads, CONTENT, offset=100)
    assert caught.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"!", b"?" + CONTENT[1:]])
def test_content_that_differs_from_the_announcement_is_not_kept(uploads: Uploads, content: bytes) -> None:
    file = digest_of(CONTENT)
    with pytest.raises(MistifyError, match="did not arrive as announced") as caught:
        send(uploads, content, file)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert not uploads.state(file).complete
    send(uploads, CONTENT, file)
    assert uploads.state(file).complete


def test_uploads_do_not_exceed_the_size_limit(uploads: Uploads, tmp_path: Path) -> None:
    send(uploads, b"a" * 6_000)
    with pytest.raises(MistifyError, match="got a file of 6KB; expected at most 4KB") as caught:
        send(uploads, b"b" * 6_000)
    assert caught.value.code is ErrorCode.NO_ROOM
    send(uploads, b"c" * 4_000)
    assert bytes_below(tmp_path) == uploads.kept == 10_000


def test_space_is_reserved_for_an_incomplete_upload(uploads: Uploads) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        other = b"b" * 6_000
        with pytest.raises(MistifyError, match="expected at most 4KB") as caught:
            await uploads.receive(digest_of(other), 0, pieces(other), "ci")
        assert caught.value.code is ErrorCode.NO_ROOM
        yield b"a" * 6_000

    asyncio.run(uploads.receive(digest_of(b"a" * 6_000), 0, chunks(), "ci"))
    assert uploads.kept == 6_000


@pytest.mark.parametrize("size", [1_024, 100_000])
def test_data_written_before_the_disk_was_full_counts(tmp_path: Path, size: int) -> None:
    content = b"a" * size
    uploads = Uploads(tmp_path / "uploads", 1e6, set)
    with files_limited_to(500), pytest.raises(MistifyError, match="cannot be written") as caught:
        send(uploads, content)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert bytes_below(tmp_path) == uploads.kept == uploads.state(digest_of(content)).arrived == 500
    send(uploads, content, offset=500)
    assert uploads.kept == size


def test_unneeded_uploads_are_removed_to_make_space(
    uploads: Uploads, clock: Clock, referenced: set[str], tmp_path: Path
) -> None:
    needed, other = send(uploads, b"a" * 4_000), send(uploads, b"b" * 6_000)
    for file in (needed, other):
        uploads.find(UploadName(file.sha256, "train.npz"))
    referenced.add(needed.sha256)
    clock.seconds += KEPT_SECONDS + 1
    send(uploads, b"c" * 5_000)
    assert uploads.state(needed).complete
    assert not uploads.state(other).complete
    assert bytes_below(tmp_path) == 9_000


def test_a_requested_upload_is_kept_for_a_day(uploads: Uploads, clock: Clock) -> None:
    file = send(uploads, CONTENT)
    clock.seconds += KEPT_SECONDS - 10
    before = uploads.find(UploadName(file.sha256, "a")).stat().st_mtime_ns
    assert uploads.state(file).complete
    clock.seconds += KEPT_SECONDS - 10
    assert uploads.collect() == 0
    assert uploads.find(UploadName(file.sha256, "a")).stat().st_mtime_ns == before
    clock.seconds += KEPT_SECONDS + 10
    assert uploads.collect() == 1024
    with pytest.raises(InvalidValue):
        uploads.find(UploadName(file.sha256, "a"))


def directory_of(uploads: Uploads, files: dict[str, bytes]) -> UploadName:
    for content in files.values():
        send(uploads, content)
    listing = listing_text({path: digest_of(content) for path, content in files.items()})
    return UploadName(send(uploads, listing).sha256, "photos", directory=True)


def test_a_directory_is_assembled_from_its_files_and_keeps_them(
    uploads: Uploads, clock: Clock, referenced: set[str]
) -> None:
    files = {"cats/1.png": b"cat", "dogs/1.png": b"dog", "dogs/2.png": b"cat"}
    name = directory_of(uploads, files)
    referenced.add(name.sha256)
    clock.seconds += KEPT_SECONDS + 1
    uploads.find(name)
    uploads.collect()
    path = uploads.find(name)
    kept = {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*.png")}
    assert kept == files


def test_a_directory_with_a_missing_file_is_missing(uploads: Uploads) -> None:
    listing = send(uploads, listing_text({"1.png": digest_of(b"nowhere")}))
    name = UploadName(listing.sha256, "photos", directory=True)
    with pytest.raises(InvalidValue):
        uploads.find(name)
    send(uploads, b"nowhere")
    assert (uploads.find(name) / "1.png").read_bytes() == b"nowhere"


@pytest.mark.parametrize(
    "path", ["../out", "/etc/passwd", "a/../../b", "a//b", ".", "", "a\0b", "x" * 300, "\ud800"]
)
def test_a_listing_cannot_contain_paths_outside_the_directory(
    uploads: Uploads, path: str, tmp_path: Path
) -> None:
    listing = send(uploads, listing_text({path: send(uploads, b"evil")}))
    with pytest.raises(MistifyError, match="paths below the directory"):
        uploads.find(UploadName(listing.sha256, "photos", directory=True))
    assert {each.name for each in tmp_path.iterdir()} == {"uploads"}


@pytest.mark.parametrize("path", ["/".join("a" * 2_000), "/".join(["b" * 255] * 5)])
def test_paths_that_file_systems_reject_are_refused_and_leave_no_files(
    uploads: Uploads, path: str, tmp_path: Path
) -> None:
    listing = send(uploads, listing_text({"1.png": send(uploads, b"cat"), path: send(uploads, b"dog")}))
    with pytest.raises(MistifyError, match="a path of") as caught:
        uploads.find(UploadName(listing.sha256, "photos", directory=True))
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert list((tmp_path / "uploads" / "named").rglob("*.png")) == []


def test_file_names_in_a_directory_may_have_the_maximum_length(uploads: Uploads) -> None:
    listing = send(uploads, listing_text({"/".join(["b" * 255] * 3): send(uploads, b"cat")}))
    assert uploads.find(UploadName(listing.sha256, "n" * 255, directory=True)).is_dir()


def test_a_file_may_have_more_names_than_the_file_system_supports(
    uploads: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with 70,000 equal files: ext4 supports 65,000 hard links to a file."""
    link = os.link

    def up_to_ten(source: Path, target: Path, **options: Any) -> None:
        if os.stat(source).st_nlink >= 10:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", up_to_ten)
    file = send(uploads, CONTENT)
    for number, count in enumerate((25, 3)):
        names = {f"{number}/{each}.png": file for each in range(count)}
        listing = send(uploads, listing_text(names))
        path = uploads.find(UploadName(listing.sha256, "photos", directory=True))
        assert [each.read_bytes() for each in path.rglob("*.png")] == [CONTENT] * count
    assert uploads.state(file).complete
    assert list((tmp_path / "uploads" / "arriving").iterdir()) == []


def test_too_large_a_listing_is_not_read(uploads: Uploads, tmp_path: Path) -> None:
    file = send(uploads, CONTENT)
    (place,) = tmp_path.glob("uploads/files/??/*")
    with place.open("r+b") as large:
        large.truncate(MOST_LISTING_BYTES + 1)
    with pytest.raises(MistifyError, match="at most 268,435,456 bytes") as caught:
        uploads.find(UploadName(file.sha256, "photos", directory=True))
    assert caught.value.code is ErrorCode.INVALID_DATASET


@pytest.mark.parametrize(
    "text",
    ["train.npz", "upload:12/x", f"upload:{'0' * 64}/..", f"upload:{'0' * 64}/a/b", f"upload:{'0' * 64}/"],
)
def test_other_names_are_not_uploads(text: str) -> None:
    assert UploadName.parse(text) is None


@pytest.mark.parametrize("directory", [False, True])
def test_names_of_uploads_survive_a_round_trip(directory: bool) -> None:
    name = UploadName("0" * 64, "net v2.keras", directory)
    assert UploadName.parse(str(name)) == name


def test_an_upload_resumed_after_days_is_not_removed_meanwhile(uploads: Uploads, clock: Clock) -> None:
    file = digest_of(CONTENT)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(uploads.receive(file, 0, pieces(CONTENT[:500], broken=True), "ci"))
    clock.seconds += KEPT_SECONDS + 1

    async def rest() -> AsyncIterator[bytes]:
        assert uploads.collect() == 0
        yield CONTENT[500:]

    asyncio.run(uploads.receive(file, 500, rest(), "ci"))
    assert uploads.state(file).complete


def test_an_upload_that_takes_days_is_not_removed_meanwhile(uploads: Uploads, clock: Clock) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield CONTENT[:500]
        clock.seconds += KEPT_SECONDS + 1
        assert uploads.collect() == 0
        yield CONTENT[500:]

    file = digest_of(CONTENT)
    asyncio.run(uploads.receive(file, 0, slow(), "ci"))
    assert uploads.state(file).complete


def test_concurrent_collections_remove_files_once(tmp_path: Path, clock: Clock) -> None:
    start = Barrier(2)

    def referenced() -> set[str]:
        start.wait()
        return set()

    uploads = Uploads(tmp_path / "uploads", 10_000, referenced, clock)
    for number in range(100):
        uploads.find(UploadName(send(uploads, bytes([number])).sha256, "train.npz"))
    clock.seconds += KEPT_SECONDS + 1
    with ThreadPoolExecutor(2) as pool:
        collections = [pool.submit(uploads.collect) for _ in range(2)]
        assert sum(collection.result() for collection in collections) == 100
    assert bytes_below(tmp_path) == uploads.kept == 0


class HeldClock(Clock):
    """A clock that blocks all threads except the main one until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = Event(), Event()

    def __call__(self) -> float:
        if current_thread() is not main_thread():
            self.asked.set()
            self.released.wait()
        return super().__call__()


async def test_a_file_is_released_after_it_has_been_checked(tmp_path: Path) -> None:
    clock, file = HeldClock(), digest_of(CONTENT)
    uploads = Uploads(tmp_path / "uploads", 10_000, set, clock)
    receiving = asyncio.create_task(uploads.receive(file, 0, pieces(CONTENT), "ci"))
    try:
        await asyncio.to_thread(clock.asked.wait)
        receiving.cancel()
        for _ in range(10):  # event loop iterations in which the task could end
            await asyncio.sleep(0)
        assert not receiving.done()
        with pytest.raises(MistifyError, match="is being uploaded"):
            await uploads.receive(file, 0, pieces(CONTENT), "ci")
    finally:
        clock.released.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert uploads.state(file).complete


async def test_servers_of_one_store_receive_a_file_one_at_a_time(tmp_path: Path) -> None:
    one, other = (Uploads(tmp_path / "uploads", 10_000, set) for _ in range(2))
    file = digest_of(CONTENT)

    async def interrupted() -> AsyncIterator[bytes]:
        yield CONTENT[:500]
        with pytest.raises(MistifyError, match="is being uploaded") as caught:
            await other.receive(file, 0, pieces(CONTENT), "ci")
        assert caught.value.code is ErrorCode.UNAVAILABLE
        yield CONTENT[500:]

    await one.receive(file, 0, interrupted(), "ci")
    assert other.state(file).complete
    assert list((tmp_path / "uploads" / "arriving").iterdir()) == []


def test_a_server_does_not_collect_what_arrives_at_another(tmp_path: Path, clock: Clock) -> None:
    one, other = (Uploads(tmp_path / "uploads", 10_000, set, clock) for _ in range(2))

    async def slow() -> AsyncIterator[bytes]:
        yield CONTENT[:500]
        clock.seconds += KEPT_SECONDS + 1
        assert other.collect() == 0
        yield CONTENT[500:]

    file = digest_of(CONTENT)
    asyncio.run(one.receive(file, 0, slow(), "ci"))
    assert one.state(file).complete


@pytest.mark.parametrize("directory", [False, True])
def test_jobs_of_several_servers_can_use_an_upload_at_once(
    uploads: Uploads, tmp_path: Path, clock: Clock, directory: bool
) -> None:
    files = {f"{number}.png": bytes([number]) for number in range(50)}
    file = UploadName(send(uploads, CONTENT).sha256, "net.keras")
    name = directory_of(uploads, files) if directory else file
    other = Uploads(tmp_path / "uploads", 10_000, set, clock)
    start = Barrier(8)

    def find(number: int) -> Path:
        start.wait()
        return (uploads if number % 2 else other).find(name)

    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(find, range(8)))
    (path,) = paths
    assert len(list(path.iterdir())) == 50 if directory else path.read_bytes() == CONTENT
