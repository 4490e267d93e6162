"""A store can be checked and backed up while a server uses it."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import h5py
import httpx
import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode
from mistify_server.cli import app
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.server import running_server
from mistify_server.store import backup
from mistify_server.store.artifacts import sha256_of
from mistify_server.store.backup import back_up
from mistify_server.store.checking import check_store
from mistify_server.store.directory import open_store, serving
from mistify_server.store.upload_directories import UPLOADS
from mistify_server.store.uploads import place_of
from tests.support.stored import jobs_in

Config = Callable[..., dict[str, object]]


@pytest.fixture
async def job(site: Any, make_config: Config) -> str:
    """Return the id of a job of a store that also has a named model and an upload."""
    async with (
        running_server(site.settings(http="127.0.0.1:0")) as (_, url),
        httpx.AsyncClient(base_url=url, timeout=60) as web,
    ):
        (site.base / "data.csv").write_text("a,b")
        digest = sha256_of(site.base / "data.csv")
        assert (await web.put(f"/v1/files/{digest}", content=b"a,b")).status_code == 200
        made = await web.post("/v1/jobs", json=[make_config("a", FLOP="0.5x")])
        job_id = str(made.json()["job"]["id"])
        async with web.stream("GET", f"/v1/jobs/{job_id}/events") as events:
            async for _ in events.aiter_lines():
                pass
    model = site.base / "model.h5"
    with h5py.File(model, "w") as file:
        file.attrs["model_config"] = "{}"
    with open_store(site.store) as store:
        ModelRepository(store.models, store.artifacts).add("mine", model)
    return job_id


def files(directory: Path) -> dict[str, bytes]:
    """Return the files of a store's content, without its database, logs and locks."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for part in ("artifacts", "uploads")
        for path in sorted((directory / part).rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def artifact_of(site: Any, file_name: str) -> Path:
    """Return the path of a file of the only goal's package."""
    with open_store(site.store) as store:
        (stored,) = jobs_in(store)
        (file,) = [file for file in stored.goals[0].files if file.name == file_name]
        return store.artifacts.place(f"{file.sha256}{Path(file_name).suffix}")


async def test_a_backup_is_a_store_with_the_same_content(
    site: Any, job: str, tmp_path: Path, serving_at: Any
) -> None:
    target = tmp_path / "backup"
    async with serving_at(site.settings()) as caller:
        made = back_up(site.store, target)
        whole = await caller.job(job)
        network = await caller.fetch(job, "a", "serve.tflite")
    copied = files(target)
    assert copied == files(site.store)
    counted = [content for name, content in copied.items() if not name.startswith("uploads/senders/")]
    assert len(counted) == len(copied) - 1
    assert (made.files, made.size, made.damaged) == (len(counted), sum(map(len, counted)), ())
    shutil.rmtree(site.store)
    target.rename(site.store)
    async with serving_at(site.settings()) as caller:
        assert await caller.job(job) == whole
        assert await caller.fetch(job, "a", "serve.tflite") == network
    with open_store(site.store) as store:
        assert [model.name for model in store.models.all()] == ["mine"]


def test_a_backup_has_the_uploads_of_jobs_that_are_submitted_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job refers to its uploads, which have arrived before; the copied database may have the job."""
    store, target = tmp_path / "store", tmp_path / "backup"
    with open_store(store):
        pass
    content = b"a,b"
    arriving = place_of(store / UPLOADS, sha256(content).hexdigest())
    copy_database = backup._copy_database_with_files

    def after_arrival(*arguments: Any) -> Any:
        arriving.parent.mkdir(parents=True)
        arriving.write_bytes(content)
        return copy_database(*arguments)

    monkeypatch.setattr(backup, "_copy_database_with_files", after_arrival)
    back_up(store, target)
    assert (target / arriving.relative_to(store)).read_bytes() == content


async def test_a_second_backup_copies_only_what_is_new(
    site: Any, job: str, tmp_path: Path, make_config: Config, serving_at: Any
) -> None:
    target = tmp_path / "backup"
    first = back_up(site.store, target)
    assert first.files > 3
    assert back_up(site.store, target).files == 0
    async with serving_at(site.settings()) as caller:
        other = await caller.finished((await caller.submit([make_config("b", FLOP="0.3x")])).id)
    assert 0 < back_up(site.store, target).files < first.files
    assert files(target) == files(site.store)
    with open_store(target) as store:
        assert [stored.id for stored in jobs_in(store)] == [other.id, job]


@pytest.mark.parametrize("fault", ["damaged", "missing"])
def test_a_backup_says_what_it_could_not_copy(site: Any, job: str, tmp_path: Path, fault: str) -> None:
    path = artifact_of(site, "serve.tflite")
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(b"other")
    code, output = run("backup", tmp_path / "backup", "--store", site.store)
    assert (code, path.name in output) == (ErrorCode.CORRUPT_PACKAGE.exit_code, True)
    assert files(tmp_path / "backup") == {
        name: content for name, content in files(site.store).items() if path.name not in name
    }


@pytest.mark.parametrize("fault", ["damaged", "unreadable"])
def test_a_damaged_upload_is_copied_once_it_has_been_sent_again(tmp_path: Path, fault: str) -> None:
    store, target = tmp_path / "store", tmp_path / "backup"
    with open_store(store):
        pass
    uploads = [place_of(store / UPLOADS, sha256(content).hexdigest()) for content in (b"a,b", b"c,d")]
    damaged, intact = uploads
    names = [store / UPLOADS / "named" / upload.name / "data" / "data.csv" for upload in uploads]
    for path, content in ((damaged, b"a,x"), (intact, b"c,d")):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    for path, upload in zip(names, uploads, strict=True):
        path.parent.mkdir(parents=True)
        path.hardlink_to(upload)
    if fault == "unreadable":
        damaged.unlink()
        damaged.mkdir()  # reading it fails, as from a failing disk
    code, output = run("backup", target, "--store", store)
    assert (code, f"the upload {damaged.name} is damaged" in output) == (
        ErrorCode.CORRUPT_PACKAGE.exit_code,
        True,
    )
    assert files(target).keys() == {str(path.relative_to(store)) for path in (intact, names[1])}
    if fault == "unreadable":
        damaged.rmdir()
        damaged.hardlink_to(names[0])
    damaged.write_bytes(b"a,b")  # as a server does: its names are links to it
    assert run("backup", target, "--store", store)[0] == 0
    assert files(target) == files(store)
    for path, upload in zip(names, uploads, strict=True):
        assert (target / path.relative_to(store)).samefile(target / upload.relative_to(store))


def test_only_a_directory_of_its_own_takes_a_backup(site: Any, job: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "diary.txt").write_text("dear")
    for target, message in ((other, "contains other files"), (site.store, "is the store itself")):
        code, output = run("backup", target, "--store", site.store)
        assert (code, message in output) == (ErrorCode.CONFLICT.exit_code, True)
    assert [path.name for path in other.iterdir()] == ["diary.txt"]
    code, output = run("backup", tmp_path / "backup", "--store", tmp_path / "nothing")
    assert (code, "is not a store" in output) == (ErrorCode.NOT_FOUND.exit_code, True)
    assert not (tmp_path / "nothing").exists()
    code, output = run("backup", other / "diary.txt", "--store", site.store)
    assert (code, "Not a directory" in output) == (ErrorCode.UNAVAILABLE.exit_code, True)
    back_up(site.store, tmp_path / "backup")
    with serving(tmp_path / "backup"):
        code, output = run("backup", tmp_path / "backup", "--store", site.store)
    assert (code, "in use by another server" in output) == (ErrorCode.UNAVAILABLE.exit_code, True)


async def test_a_backup_does_not_overwrite_another_store(
    site: Any, job: str, tmp_path: Path, serving_at: Any
) -> None:
    target = tmp_path / "backup"
    back_up(site.store, target)
    code, output = run("backup", site.store, "--store", target)  # the wrong way round
    assert (code, "a store of its own" in output) == (ErrorCode.CONFLICT.exit_code, True)
    back_up(site.store, target)
    async with serving_at(replace(site.settings(), store=target)):
        pass  # from now on, it may have jobs of its own
    code, output = run("backup", target, "--store", site.store)
    assert (code, "a store of its own" in output) == (ErrorCode.CONFLICT.exit_code, True)


def test_a_backup_ends_while_a_server_writes(site: Any, job: str, tmp_path: Path) -> None:
    database, ended = site.store / "mistify.db", Event()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('ballast', ?)", ("x" * 20_000_000,))

    def write() -> None:
        with closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            while not ended.is_set():
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('beat', '')")

    writing = Thread(target=write, daemon=True)
    writing.start()
    try:
        assert back_up(site.store, tmp_path / "backup").damaged == ()
    finally:
        ended.set()
        writing.join()


def test_a_backup_on_a_full_disk_does_not_blame_the_store(site: Any, job: str, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    back_up(site.store, target)
    shutil.rmtree(target / "artifacts")
    (target / "artifacts").write_text("")  # so that nothing can be written there
    code, output = run("backup", target, "--store", site.store)
    assert (code, "artifacts cannot be written" in output) == (ErrorCode.UNAVAILABLE.exit_code, True)


def test_an_intact_store_is_found_intact(site: Any, job: str) -> None:
    checked = check_store(site.store)
    assert checked.problems == ()
    uploads = list((site.store / "uploads" / "files").glob("??/*"))
    artifacts = list((site.store / "artifacts").glob("??/*"))
    assert (checked.files, len(uploads)) == (len(artifacts) + 1, 1)
    code, output = run("check", "--store", site.store)
    assert (code, "the store is intact" in output) == (0, True)


def test_a_check_finds_everything_that_is_damaged_or_missing(site: Any, job: str) -> None:
    network, manifest = artifact_of(site, "serve.tflite"), artifact_of(site, "manifest.json")
    network.write_bytes(network.read_bytes()[:-1])
    manifest.unlink()
    (upload,) = (site.store / "uploads" / "files").glob("??/*")
    upload.write_bytes(b"a,c")
    unused = site.store / "artifacts" / "00" / f"{'0' * 64}.keras"
    unused.parent.mkdir(exist_ok=True)
    unused.write_bytes(b"x")
    with closing(sqlite3.connect(site.store / "mistify.db")) as database:
        database.execute("UPDATE models SET artifact = ?", (f"{'f' * 64}.h5",))
        database.execute("INSERT INTO branches VALUES ('gone', 'a', '{}')")
        database.commit()
    problems = sorted(check_store(site.store).problems)
    parts = sorted(
        [
            f'{network.name} is damaged; it is used by serve.tflite of the goal "a" of the job {job}',
            f'{manifest.name} is missing; it is used by manifest.json of the goal "a" of the job {job}',
            f'{"f" * 64}.h5 is missing; it is used by the model "mine"',
            f"{unused.name} is damaged; nothing uses it",
            f"the upload {upload.name} is damaged",
            "of branches refers to a missing row of goals",
        ],
        key=lambda part: next(number for number, problem in enumerate(problems) if part in problem),
    )
    assert len(problems) == len(parts)
    code, output = run("check", "--store", site.store)
    assert (code, "6 problems" in output) == (ErrorCode.CORRUPT_PACKAGE.exit_code, True)


def test_a_file_that_cannot_be_read_is_damaged(site: Any, job: str, tmp_path: Path) -> None:
    path = artifact_of(site, "serve.tflite")
    path.unlink()
    path.mkdir()  # reading it fails, as from a failing disk
    code, output = run("check", "--store", site.store)
    assert (code, f"{path.name} is damaged" in output) == (ErrorCode.CORRUPT_PACKAGE.exit_code, True)
    assert back_up(site.store, tmp_path / "backup").damaged == (path.name,)
