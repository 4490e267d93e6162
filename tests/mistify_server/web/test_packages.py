"""Archives of packages leave no files on the server, whatever is requested and whatever fails."""

import asyncio
import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify_server.identity.callers import ADMINISTRATOR, LOCAL
from mistify_server.jobs.package_files import MOST_ARCHIVES, PackageFiles
from mistify_server.store.directory import open_store
from tests.mistify_server.web.conftest import Serve
from tests.support.callers import called_by
from tests.support.disks import files_limited_to

TOKEN = "0123456789abcdef" * 4

Config = Callable[..., dict[str, object]]
WaitUntil = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
async def archive(web: httpx.AsyncClient, make_config: Config) -> str:
    """Return the address of a package's archive."""
    return await archive_of(web, make_config)


async def archive_of(web: httpx.AsyncClient, make_config: Config) -> str:
    answer = await web.post("/v1/jobs", json=[make_config("half", FLOP="0.5x")])
    job = answer.json()["job"]["id"]
    await web.get(f"/v1/jobs/{job}/events")
    return f"/v1/jobs/{job}/goals/half/package.zip"


@pytest.fixture
def temporary(archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of temporary files, which is empty."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def files_in(directory: Path) -> list[str]:
    """Return the files in a directory, including unlinked files that this process has open."""
    targets = [path.name for path in directory.iterdir()]
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets += [target for target in [os.readlink(descriptor)] if target.startswith(str(directory))]
    return targets


async def test_an_archive_is_sent_completely_even_for_a_range_request(
    web: httpx.AsyncClient, archive: str, temporary: Path, wait_until: WaitUntil
) -> None:
    for asked in ("bytes=1-", "bytes=999999999-", "bytes=x", "lines=1-2"):
        answer = await web.get(archive, headers={"range": asked})
        assert answer.status_code == 200
        assert answer.headers["content-length"] == str(len(answer.content))
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"] == 'attachment; filename="half.zip"'
        assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
        await wait_until(lambda: not files_in(temporary))  # the last byte arrives before the end of the call


async def test_a_damaged_package_is_refused_until_it_is_made_again(
    web: httpx.AsyncClient, archive: str, site: Any, make_config: Config
) -> None:
    """Another job makes the same network, and thereby the same file."""
    network = archive.replace("package.zip", "files/serve.tflite")
    manifest = archive.replace("package.zip", "files/manifest.json")
    content = (await web.get(network)).content
    (stored,) = (site.store / "artifacts").glob(f"??/{hashlib.sha256(content).hexdigest()}.tflite")
    stored.write_bytes(b"X" + content[1:])
    for address in (network, archive):
        answer = await web.get(address)
        assert (answer.status_code, answer.json()["code"]) == (500, "CORRUPT_PACKAGE")
        assert 'serve.tflite of the goal "half"' in answer.json()["detail"]
        assert "port its config again" in answer.json()["detail"]
    assert (await web.get(manifest)).status_code == 200
    again = (await web.post("/v1/jobs", json=[make_config("half", FLOP="0.5x")])).json()["job"]["id"]
    await web.get(f"/v1/jobs/{again}/events")
    assert (await web.get(network)).content == content
    assert (await web.get(archive)).status_code == 200


@pytest.mark.sampled
@pytest.mark.parametrize("damage", ["first bit", "last bit", "half", "everything"])
async def test_content_that_changes_after_the_check_is_never_complete(
    web: httpx.AsyncClient, archive: str, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    network = archive.replace("package.zip", "files/serve.tflite")
    content = (await web.get(network)).content
    assert len(content) > 2**20  # it is sent in several pieces
    changed = {
        "first bit": bytes([content[0] ^ 1]) + content[1:],
        "last bit": content[:-1] + bytes([content[-1] ^ 1]),
        "half": content[: len(content) // 2],
        "everything": b"",
    }[damage]
    intact = PackageFiles._intact

    def then_damaged(stored: PackageFiles, goal_id: str, file: PackageFile) -> Path:
        path = intact(stored, goal_id, file)
        if file.name == "serve.tflite":
            path.write_bytes(changed)
        return path

    monkeypatch.setattr(PackageFiles, "_intact", then_damaged)
    with suppress(httpx.RemoteProtocolError):  # the connection is closed before the end
        assert (await web.get(network)).status_code == 500
    monkeypatch.undo()
    assert (await web.get(network)).status_code == 500


async def test_content_that_changes_while_it_is_packed_is_refused(
    web: httpx.AsyncClient, archive: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intact = PackageFiles._intact

    def then_damaged(stored: PackageFiles, goal_id: str, file: PackageFile) -> Path:
        path = intact(stored, goal_id, file)
        path.write_bytes(path.read_bytes()[:-1] + b"X")
        return path

    monkeypatch.setattr(PackageFiles, "_intact", then_damaged)
    answer = await web.get(archive)
    assert (answer.status_code, answer.json()["code"]) == (500, "CORRUPT_PACKAGE")
    assert files_in(temporary) == []


@pytest.mark.parametrize("asked", ["package.zip", "files/manifest.json"])
async def test_a_file_that_is_removed_after_the_check_is_reported_as_missing(
    web: httpx.AsyncClient, archive: str, temporary: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    intact = PackageFiles._intact

    def then_removed(stored: PackageFiles, goal_id: str, file: PackageFile) -> Path:
        path = intact(stored, goal_id, file)
        if file.name == "manifest.json":
            path.unlink()
        return path

    monkeypatch.setattr(PackageFiles, "_intact", then_removed)
    answer = await web.get(archive.replace("package.zip", asked))
    assert (answer.status_code, answer.json()["code"]) == (500, "CORRUPT_PACKAGE")
    assert "manifest.json of the goal" in answer.json()["detail"]
    assert files_in(temporary) == []


async def test_an_archive_too_large_for_the_disk_leaves_no_files(
    web: httpx.AsyncClient, archive: str, temporary: Path
) -> None:
    with files_limited_to(10):
        answer = await web.get(archive)
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "free space for its temporary files, or download single files" in answer.json()["detail"]
    assert files_in(temporary) == []
    assert (await web.get(archive)).status_code == 200


async def test_archives_of_a_caller_are_limited_and_cost_no_other_caller_any(
    serve: Serve, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate, files = Semaphore(0), Event(), PackageFiles.files

    def held(stored: PackageFiles, job_id: str, goal_id: str) -> list[tuple[PackageFile, Path]]:
        begun.release()
        assert gate.wait(60)
        return files(stored, job_id, goal_id)

    async with serve(token=TOKEN) as web:
        web.headers["authorization"] = f"Bearer {TOKEN}"
        made = await web.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]})
        other = {"authorization": f"Bearer {made.json()['token']}"}
        address = await archive_of(web, make_config)
        monkeypatch.setattr(PackageFiles, "files", held)
        calls = [asyncio.create_task(web.get(address)) for _ in range(MOST_ARCHIVES)]
        for _ in calls:
            await asyncio.to_thread(begun.acquire)
        refused = await web.get(address)
        assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
        assert 'the token "administrator" has 2 archives in progress' in refused.json()["detail"]
        calls.append(asyncio.create_task(web.get(address, headers=other)))
        await asyncio.to_thread(begun.acquire)
        gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * 3
        for _ in range(2 * MOST_ARCHIVES):
            assert (await web.get(address)).status_code == 200


async def test_an_archive_that_a_caller_has_received_no_longer_counts(
    serve: Serve, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has not ended the last responses when the next request arrives."""
    ended, respond = asyncio.Event(), StreamingResponse.__call__

    async def respond_late(response: StreamingResponse, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(response, scope, receive, send)
        await ended.wait()

    async with serve(token=TOKEN) as web:
        web.headers.update({"authorization": f"Bearer {TOKEN}", "connection": "close"})
        address = await archive_of(web, make_config)
        monkeypatch.setattr(StreamingResponse, "__call__", respond_late)
        for _ in range(MOST_ARCHIVES + 1):
            assert (await web.get(address)).status_code == 200
        ended.set()


async def test_downloads_of_a_caller_are_limited(
    web: httpx.AsyncClient, site: Any, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = archive.split("/")[3]
    monkeypatch.setattr("mistify_server.jobs.package_files.most_downloads", lambda: 1)
    with open_store(site.store) as store, called_by(LOCAL):
        stored = PackageFiles(store)
        first, second = (stored.fetch(job, "half", "manifest.json", 0) for _ in range(2))
        await anext(first)
        with pytest.raises(MistifyError, match='"local" has 1 downloads in progress') as raised:
            await anext(second)
        assert raised.value.code is ErrorCode.QUOTA_EXCEEDED
        with called_by(ADMINISTRATOR):
            other = stored.fetch(job, "half", "manifest.json", 0)
            assert await anext(other)
            await other.aclose()
        await first.aclose()
        assert await anext(stored.fetch(job, "half", "manifest.json", 0))
