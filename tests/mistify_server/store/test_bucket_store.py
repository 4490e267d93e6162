"""Commands for a store with its artifacts in a bucket."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState
from mistify_server.cli import app
from mistify_server.store.artifacts import artifacts_of
from mistify_server.store.directory import open_store
from mistify_server.store.objects.binding import BINDING, OWNER
from tests.support.buckets import BucketServer
from tests.support.stored import jobs_in

Config = Callable[..., dict[str, object]]


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def key_of(site: Any, file_name: str) -> str:
    """Return the key of a file of the only goal's package."""
    with open_store(site.store) as store:
        (stored,) = jobs_in(store)
    (file,) = [file for file in stored.goals[0].files if file.name == file_name]
    return f"{file.sha256[:2]}/{file.sha256}{Path(file_name).suffix}"


@pytest.fixture
def address(bucket_server: BucketServer) -> str:
    return bucket_server.new_bucket()


@pytest.fixture
async def job(site: Any, address: str, make_config: Config, serving_at: Any) -> str:
    """Return the id of a job of a store with its artifacts in a bucket."""
    async with serving_at(site.settings(artifacts=address)) as caller:
        return str((await caller.finished((await caller.submit([make_config("a", FLOP="0.5x")])).id)).id)


async def test_a_server_on_another_machine_continues_with_the_artifacts(
    site: Any,
    job: str,
    address: str,
    bucket_server: BucketServer,
    *,
    make_config: Config,
    serving_at: Any,
) -> None:
    async with serving_at(site.settings()) as caller:  # the store knows its bucket
        whole, network = await caller.job(job), await caller.fetch(job, "a", "serve.tflite")
    stored = {key[3:67] for key in bucket_server.objects(address)}
    assert {file.sha256 for file in whole.goals[0].files} <= stored
    shutil.rmtree(site.store / "artifacts")  # another disk
    async with serving_at(site.settings()) as caller:
        assert await caller.job(job) == whole
        assert await caller.fetch(job, "a", "serve.tflite") == network
        grown = await caller.add(job, [make_config("b", FLOP="0.3x")])
        assert {goal.state for goal in (await caller.finished(grown.id)).goals} == {GoalState.MET}


async def test_a_check_reads_the_objects(
    site: Any, job: str, address: str, bucket_server: BucketServer
) -> None:
    where = ("--store", site.store)
    shutil.rmtree(site.store / "artifacts")
    objects = bucket_server.objects(address)
    assert f"read {len(objects) - 1} files" in run("check", *where)
    network, manifest = key_of(site, "serve.tflite"), key_of(site, "manifest.json")
    bucket_server.replace(address, network, b"damaged")
    bucket_server.remove(address, manifest)
    output = run("check", *where, code=ErrorCode.CORRUPT_PACKAGE.exit_code)
    assert f"the artifact {network[3:]} is damaged; it is used by serve.tflite of the goal" in output
    assert f"the artifact {manifest[3:]} is missing; it is used by manifest.json of the goal" in output
    with bucket_server.away():
        output = run("check", *where, code=ErrorCode.UNAVAILABLE.exit_code)
    assert "the bucket with the server's artifacts cannot be reached; check the network" in output


async def test_a_backup_has_the_artifacts_and_does_not_know_the_bucket(
    site: Any,
    job: str,
    address: str,
    bucket_server: BucketServer,
    *,
    tmp_path: Path,
    serving_at: Any,
) -> None:
    shutil.rmtree(site.store / "artifacts")
    target = tmp_path / "backup"
    output = run("backup", target, "--store", site.store)
    assert f"the copy has the artifacts of {address} in its own directory" in output
    assert "copied the database and 0 new files" in run("backup", target, "--store", site.store)
    assert not (site.store / "artifacts").exists()  # nothing is copied twice
    objects = bucket_server.objects(address)
    copied = artifacts_of(target)
    assert {f"{name[:2]}/{name}" for name in copied.names()} == objects.keys() - {OWNER}
    assert not (target / BINDING).exists()
    async with serving_at(site.settings()) as caller:
        whole, network = await caller.job(job), await caller.fetch(job, "a", "serve.tflite")
    site.store.rename(tmp_path / "lost")
    target.rename(site.store)
    with pytest.raises(MistifyError, match="has the artifacts of another store"):
        async with serving_at(site.settings(artifacts=address)):
            pass
    restored = bucket_server.new_bucket()
    async with serving_at(site.settings(artifacts=restored)) as caller:
        assert await caller.job(job) == whole
        assert await caller.fetch(job, "a", "serve.tflite") == network
    assert bucket_server.objects(restored).keys() == objects.keys()


async def test_a_backup_names_damaged_objects(
    site: Any, job: str, address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    key = key_of(site, "serve.tflite")
    bucket_server.replace(address, key, b"damaged")
    output = run(
        "backup", tmp_path / "backup", "--store", site.store, code=ErrorCode.CORRUPT_PACKAGE.exit_code
    )
    assert f"the artifact {key[3:]} is damaged or missing" in output
    with bucket_server.away():
        run("backup", tmp_path / "other", "--store", site.store, code=ErrorCode.UNAVAILABLE.exit_code)


async def test_removed_jobs_leave_no_objects(
    site: Any, job: str, address: str, bucket_server: BucketServer
) -> None:
    assert len(bucket_server.objects(address)) > 3
    assert "freed" in run("jobs", "remove", job, "--store", site.store)
    assert bucket_server.objects(address).keys() == {OWNER}
    with open_store(site.store) as store:
        assert (jobs_in(store), store.artifacts.names()) == ([], [])


async def test_named_models_are_in_the_bucket(
    site: Any, job: str, address: str, bucket_server: BucketServer
) -> None:
    import h5py

    model = site.base / "model.h5"
    with h5py.File(model, "w") as file:
        file.attrs["model_config"] = "{}"
    before = bucket_server.objects(address).keys()
    run("models", "add", "mine", model, "--store", site.store)
    (added,) = bucket_server.objects(address).keys() - before
    assert bucket_server.objects(address)[added] == model.read_bytes()
