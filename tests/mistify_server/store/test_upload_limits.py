"""The uploads of a caller take no more space than the caller's limit, which concerns nobody else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import FileDigest
from mistify_server.store.uploads import KEPT_SECONDS, Uploads
from tests.support.sent import digest_of

LIMITS = {"ci": 1_000, "lab": 5_000}


class Site:
    """A directory of uploads, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seconds = 2e9  # later than any file that the tests create
        self.uploads = self.open()

    def open(self) -> Uploads:
        """Open the directory, as the next server does."""
        return Uploads(self.directory, 1e6, set, lambda: self.seconds, most_sent=LIMITS.get)

    def send(self, content: bytes, sender: str, *, arrived: int | None = None) -> FileDigest:
        """Send a file, or only its first bytes."""
        file = digest_of(content)

        async def chunks() -> AsyncIterator[bytes]:
            yield content[:arrived]
            if arrived is not None:
                raise asyncio.CancelledError

        try:
            asyncio.run(self.uploads.receive(file, 0, chunks(), sender))
        except asyncio.CancelledError:
            assert arrived is not None
        return file

    def kept(self) -> tuple[int, int]:
        """Return the bytes that are kept for each of the two callers."""
        return self.uploads.kept_for("ci"), self.uploads.kept_for("lab")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "uploads")


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


def test_a_file_beyond_the_limit_is_refused_and_leaves_nothing(site: Site) -> None:
    site.send(b"a" * 700, "ci")
    before = files_below(site.directory)
    with pytest.raises(MistifyError) as caught:
        site.send(b"b" * 400, "ci")
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    assert str(caught.value).startswith(
        'the uploads of the token "ci" take 700B, and may take 1KB; these need 400B more; remove jobs'
    )
    assert files_below(site.directory) == before
    site.send(b"c" * 300, "ci")
    site.send(b"d" * 5_000, "lab")
    site.send(b"e" * 50_000, "administrator")
    assert site.kept() == (1_000, 5_000)
    assert site.uploads.kept == 56_000
    assert site.uploads.kept_for("nobody") == 0


def test_the_bytes_of_a_caller_are_known_to_the_next_server(site: Site) -> None:
    site.send(b"a" * 700, "ci")
    site.send(b"b" * 200, "ci", arrived=150)
    site.send(b"c" * 3_000, "lab")
    assert site.kept() == (850, 3_000)
    site.uploads = site.open()
    assert site.kept() == (850, 3_000)
    with pytest.raises(MistifyError):
        site.send(b"d" * 151, "ci")


def test_content_counts_for_the_one_who_sent_it(site: Site) -> None:
    file = site.send(b"a" * 700, "lab")
    site.send(b"a" * 700, "ci")
    assert site.kept() == (0, 700)
    site.uploads.check_room([file, digest_of(b"b" * 1_000)], "ci")


def test_whoever_completes_an_upload_has_sent_it(site: Site) -> None:
    site.send(b"a" * 900, "ci", arrived=400)
    assert site.kept() == (400, 0)
    site.send(b"a" * 900, "lab")
    assert site.kept() == (0, 900)
    assert len(files_below(site.directory / "senders")) == 1


def test_a_damaged_file_that_is_sent_again_changes_hands(site: Site) -> None:
    file = site.send(b"a" * 900, "lab")
    (stored,) = (site.directory / "files").glob("*/*")
    stored.write_bytes(b"b" * 900)
    site.send(b"a" * 900, "ci")
    assert site.kept() == (900, 0)
    assert site.uploads.kept == 900
    assert site.uploads.state(file).complete


def test_removed_files_make_room_for_their_sender(site: Site) -> None:
    used, unused = site.send(b"a" * 600, "ci"), site.send(b"b" * 400, "ci")
    site.seconds += KEPT_SECONDS + 1
    site.uploads.state(used)  # somebody asks for it
    site.send(b"c" * 400, "ci")
    assert site.kept() == (1_000, 0)
    assert not site.uploads.state(unused).complete
    assert {path.name for path in files_below(site.directory / "senders")} == {
        used.sha256,
        digest_of(b"c" * 400).sha256,
    }


def test_files_are_refused_before_any_of_them_is_sent(site: Site) -> None:
    present = site.send(b"a" * 500, "ci")
    begun = site.send(b"b" * 400, "ci", arrived=300)
    site.uploads.check_room([present, begun, digest_of(b"c" * 100), digest_of(b"c" * 100)], "ci")
    with pytest.raises(MistifyError, match="take 800B, and may take 1KB; these need 201B more") as caught:
        site.uploads.check_room([begun, digest_of(b"c" * 101)], "ci")
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    site.uploads.check_room([digest_of(b"c" * 10**6)], "administrator")


def test_a_lower_limit_refuses_no_files_that_are_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    present = site.send(b"a" * 500, "ci")
    monkeypatch.setitem(LIMITS, "ci", 10)
    site.uploads.check_room([present], "ci")
    site.send(b"a" * 500, "ci")
    with pytest.raises(MistifyError):
        site.send(b"b", "ci")


def test_senders_of_files_that_are_gone_are_forgotten(site: Site) -> None:
    site.send(b"a" * 500, "ci")
    (stored,) = (site.directory / "files").glob("*/*")
    stored.unlink()
    site.uploads = site.open()
    assert site.kept() == (0, 0)
    assert files_below(site.directory / "senders") == set()
