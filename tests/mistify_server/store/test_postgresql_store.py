"""Commands for a store with its database in PostgreSQL, and its backup with PostgreSQL's own programs."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode
from mistify_server.cli import app
from mistify_server.store.directory import open_store
from tests.support.postgresql import Cluster
from tests.support.postgresql import run as run_program
from tests.support.stored import jobs_in

Config = Callable[..., dict[str, object]]


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
async def job(site: Any, cluster: Cluster, make_config: Config, serving_at: Any) -> str:
    """Return the id of a job in the database "original"."""
    cluster.execute("CREATE DATABASE original")
    async with serving_at(site.settings(database=cluster.url("original"))) as caller:
        return str((await caller.finished((await caller.submit([make_config("a", FLOP="0.5x")])).id)).id)


@pytest.fixture(autouse=True)
def _databases(cluster: Cluster) -> Any:
    yield
    for name in ("original", "restored"):
        cluster.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def test_commands_find_the_database_of_a_store(
    site: Any, job: str, serving_at: Any, make_config: Config
) -> None:
    where = ("--store", site.store)
    assert not (site.store / "mistify.db").exists()
    assert "the store is intact" in run("check", *where)
    assert run("tokens", "add", "ci", "--scope", "read", *where).startswith("mistify_")
    assert "ci" in run("tokens", "list", *where)
    (site.base / "net.keras").write_bytes(b"network")
    assert "starts with" in run(
        "models", "add", "net", site.base / "net.keras", *where, code=ErrorCode.INVALID_MODEL.exit_code
    )
    assert job in run("jobs", "list", *where)
    damaged = min(site.store.glob("artifacts/??/*"))
    damaged.write_bytes(b"damaged")
    assert damaged.name in run("check", *where, code=ErrorCode.CORRUPT_PACKAGE.exit_code)
    async with serving_at(site.settings()) as caller:  # the store knows its database
        assert (await caller.page(9)).jobs[0].id == job
        assert "in use by another server" in run(
            "jobs", "remove", job, *where, code=ErrorCode.UNAVAILABLE.exit_code
        )
    assert "freed" in run("jobs", "remove", job, *where)
    with open_store(site.store) as store:
        assert (jobs_in(store), store.artifacts.names()) == ([], [])


async def test_a_backup_consists_of_a_dump_and_the_files(
    site: Any, job: str, cluster: Cluster, tmp_path: Path, serving_at: Any
) -> None:
    async with serving_at(site.settings()) as caller:
        whole, network = await caller.job(job), await caller.fetch(job, "a", "serve.tflite")
    target, dump = tmp_path / "backup", str(cluster.directory / "jobs.dump")
    output = run("backup", target, "--store", site.store)
    assert "the database is in PostgreSQL, dump it before the files of each backup" in output
    program, *options = shlex.split(output.splitlines()[-1])
    run_program(program, *(option.replace("jobs.dump", dump) for option in options))
    assert "copied 0 new files" in run("backup", target, "--store", site.store)

    cluster.execute("DROP DATABASE original WITH (FORCE)")
    cluster.execute("CREATE DATABASE restored")
    run_program("pg_restore", f"--dbname={cluster.url('restored')}", dump)
    site.store.rename(tmp_path / "lost")
    target.rename(site.store)
    async with serving_at(site.settings(database=cluster.url("restored"))) as caller:
        assert await caller.job(job) == whole
        assert await caller.fetch(job, "a", "serve.tflite") == network
    assert "the store is intact" in run("check", "--store", site.store)
