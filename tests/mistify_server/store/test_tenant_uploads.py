"""Uploads of tenants share nothing but the limit on their total size."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.uploads import UploadName
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.identity.tenants import ByTenant
from mistify_server.store.backup import back_up
from mistify_server.store.checking import check_store
from mistify_server.store.directory import Store, open_store
from mistify_server.store.tenant_uploads import collect_uploads, kept_bytes, open_uploads
from mistify_server.store.upload_directories import UPLOADS
from mistify_server.store.uploads import FileState, Uploads
from tests.support.sent import send

CONTENT = b"x" * 600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def uploads(store: Store, tmp_path: Path) -> ByTenant[Uploads]:
    return open_uploads(store, tmp_path / "store" / UPLOADS, 1_000)


def files_below(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}


def test_what_others_have_sent_is_neither_there_nor_usable(uploads: ByTenant[Uploads]) -> None:
    red, blue = uploads.of("red"), uploads.of("blue")
    file = send(red, CONTENT[:300])
    assert [own.state(file) for own in (red, blue)] == [FileState(True, 300), FileState(False, 0)]
    assert red.find(UploadName(file.sha256, "a.npz")).read_bytes() == CONTENT[:300]
    for _ in range(2):
        with pytest.raises(InvalidValue):
            blue.find(UploadName(file.sha256, "a.npz"))
    send(blue, CONTENT[:300])
    assert [own.kept_for("ci") for own in (red, blue, uploads.of("default"))] == [300, 300, 0]


def test_all_share_the_limit_on_the_total_size(
    uploads: ByTenant[Uploads], store: Store, tmp_path: Path
) -> None:
    send(uploads.of("red"), CONTENT)
    with pytest.raises(MistifyError, match="expected at most 400B") as caught:
        send(uploads.of("blue"), CONTENT)
    assert caught.value.code is ErrorCode.NO_ROOM
    again = open_uploads(store, tmp_path / "store" / UPLOADS, 1_000)
    assert kept_bytes(again) == 600
    with pytest.raises(MistifyError, match="expected at most 400B"):
        send(again.of("default"), CONTENT)


def test_limits_are_those_of_the_tenants_own_tokens(uploads: ByTenant[Uploads], store: Store) -> None:
    create_token(store.of("red").tokens, "ci", [Scope.SUBMIT], limits={"uploads": 100})
    with pytest.raises(MistifyError) as caught:
        send(uploads.of("red"), CONTENT[:200])
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    send(uploads.of("blue"), CONTENT[:200])


def test_uploads_of_all_tenants_are_collected_checked_and_copied(
    uploads: ByTenant[Uploads], tmp_path: Path
) -> None:
    for tenant in ("default", "red", "blue"):
        send(uploads.of(tenant), CONTENT[:100])
    directory = tmp_path / "store" / UPLOADS
    assert check_store(tmp_path / "store").files == 3
    assert back_up(tmp_path / "store", tmp_path / "copy").files == 3
    assert files_below(tmp_path / "copy" / UPLOADS) == files_below(directory)
    (damaged,) = (directory / "tenants" / "red" / "files").glob("*/*")
    damaged.write_bytes(b"y" * 100)
    assert len(check_store(tmp_path / "store").problems) == 1
    for path in directory.rglob("*"):
        if path.is_file():
            os.utime(path, (1e9, path.stat().st_mtime))
    assert collect_uploads(uploads) > 0
    assert kept_bytes(uploads) == 0


@pytest.mark.parametrize("error", [OSError("the file is immutable"), ZeroDivisionError()])
def test_uploads_of_other_tenants_are_collected_although_those_of_one_cannot_be(
    uploads: ByTenant[Uploads],
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing() -> int:
        raise error

    monkeypatch.setattr(uploads.of("default"), "collect", failing)
    monkeypatch.setattr(uploads.of("red"), "collect", lambda: 7)
    assert collect_uploads(uploads) == 7
    assert "unused uploads could not be removed" in caplog.text
