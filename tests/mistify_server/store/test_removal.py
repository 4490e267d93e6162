"""Removing jobs from a store together with files that nothing else needs."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import h5py
import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode, MistifyError
from mistify_server.cli import app
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.store.directory import Store, open_store, serving
from mistify_server.store.models import NamedModel
from mistify_server.store.removal import remove_jobs
from mistify_server.store.sql.models import SqlModelStore
from mistify_server.store.tuning import Group
from tests.support.stored import jobs_in

Config = Callable[..., dict[str, object]]


def contents(store: Store) -> dict[str, bytes]:
    """Return the content of every file of every package."""
    return {
        f"{job.id} {goal.id} {file.name}": store.artifacts.path(f"{file.sha256}{suffix}").read_bytes()
        for job in jobs_in(store)
        for goal in job.goals
        for file in goal.files
        for suffix in [file.name[file.name.rindex(".") :]]
    }


@pytest.fixture
async def two_jobs(site: Any, make_config: Config, serving_at: Any) -> list[str]:
    """Return the ids of two ended jobs that share the source and one network."""
    actual = []
    async with serving_at(site.settings()) as caller:
        for goals in ({"a": "0.5x", "b": "0.3x"}, {"c": "0.5x"}):
            job = await caller.submit([make_config(name, FLOP=limit) for name, limit in goals.items()])
            actual.append((await caller.finished(job.id)).id)
    return actual


def test_files_of_other_jobs_are_kept_and_all_others_removed(two_jobs: list[str], site: Any) -> None:
    first, second = two_jobs
    with open_store(site.store) as store:
        kept = {name: content for name, content in contents(store).items() if name.startswith(second)}
        files = {name: store.artifacts.size(name) for name in store.artifacts.names()}
    result = CliRunner().invoke(app, ["jobs", "remove", first, "--store", str(site.store)])
    assert (result.exit_code, "freed " in result.output) == (0, True)
    with open_store(site.store) as store:
        assert [job.id for job in jobs_in(store)] == [second]
        assert contents(store) == kept
        (batch,) = store.jobs.batches(second)
        assert batch.root is not None
        needed = {
            batch.root.root,
            batch.root.teacher,
            *(made.checkpoint for made in batch.checkpoints.values()),
        }
        assert needed <= set(store.artifacts.names()) < files.keys()
        with pytest.raises(MistifyError, match=first):
            store.jobs.job(first)
    assert remove_jobs(site.store, [second]) > 0
    with open_store(site.store) as store:
        assert store.artifacts.names() == []


def test_jobs_are_listed_newest_first(two_jobs: list[str], site: Any) -> None:
    output = CliRunner().invoke(app, ["jobs", "list", "--store", str(site.store)]).output
    assert output.index(two_jobs[1]) < output.index(two_jobs[0])


def test_a_job_of_a_newer_version_does_not_prevent_that_others_are_listed(
    two_jobs: list[str], site: Any
) -> None:
    with closing(sqlite3.connect(site.store / "mistify.db")) as connection, connection:
        connection.execute("UPDATE jobs SET state = 'held' WHERE id = ?", two_jobs[:1])
    listed = CliRunner().invoke(app, ["jobs", "list", "--store", str(site.store)])
    assert (two_jobs[1] in listed.stdout, two_jobs[0] in listed.stdout) == (True, False)
    assert f"the job {two_jobs[0]} was written by another version of Mistify" in listed.stderr


def test_named_models_are_kept(site: Any) -> None:
    orphan = b"of a removal that was broken off"
    with open_store(site.store) as store:
        model = store.artifacts.put(b"a model", ".keras")
        store.models.add(NamedModel("net", model, "net.keras"))
        store.artifacts.put(orphan, ".keras")
        assert remove_jobs(site.store, []) == len(orphan)
        assert store.artifacts.names() == [model]


async def test_a_running_job_is_kept(site: Any, make_config: Config, serving_at: Any) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
    with pytest.raises(MistifyError, match=f"the job {job.id} is (queued|running)") as caught:
        remove_jobs(site.store, [job.id])
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_job_with_packages_tuned_by_a_group_is_kept(two_jobs: list[str], site: Any) -> None:
    with open_store(site.store) as store:
        store.tuning.add_group(Group("cameras", two_jobs[0], 0, "spatiotemporal", {}))
    with pytest.raises(MistifyError, match='"cameras" tunes packages') as caught:
        remove_jobs(site.store, two_jobs)
    assert caught.value.code is ErrorCode.CONFLICT
    with open_store(site.store) as store:
        assert len(jobs_in(store)) == 2
        assert len(contents(store)) == 9


def test_nothing_is_removed_while_a_server_uses_the_store(two_jobs: list[str], site: Any) -> None:
    with serving(site.store), pytest.raises(MistifyError, match="in use by another server") as caught:
        remove_jobs(site.store, two_jobs)
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_model_that_is_being_added_is_kept(site: Any) -> None:
    file = site.root / "net.h5"
    with h5py.File(file, "w") as content:
        content.attrs["model_config"] = '{"class_name": "Sequential", "config": {"layers": []}}'

    class SlowNames(SqlModelStore):
        """A model store that tries to remove jobs before each addition."""

        def add(self, model: NamedModel) -> None:
            with pytest.raises(MistifyError, match="a model is being added") as caught:
                remove_jobs(site.store, [])
            assert caught.value.code is ErrorCode.UNAVAILABLE
            super().add(model)

    with open_store(site.store) as store:
        model = ModelRepository(SlowNames(store.models._database), store.artifacts).add("net", file)
        assert remove_jobs(site.store, []) == 0
        assert store.artifacts.names() == [model.artifact]
