"""Servers that share a database hear of each other's changes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mistify.jobs.job import Job, JobState
from mistify_server.store.changes import Submission
from mistify_server.store.directory import open_store
from mistify_server.store.jobs import NewJob
from tests.support.postgresql import Cluster, bound_to


def test_others_hear_of_a_new_job_that_is_offered_to_them(
    cluster: Cluster, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    path, heard = bound_to(cluster.new_database(), tmp_path / "store"), list[str]()
    with open_store(path) as store, open_store(path) as other, other.leases.announced(heard.append):
        wait_for(lambda: bool(heard))  # it is connected
        for job_id, offered in (("kept", False), ("offered", True)):
            job = Job(job_id, JobState.QUEUED, (), created_unix_ms=5)
            new = NewJob(Submission(job, [], "[]", None), owner=store.leases.server, offered=offered)
            assert store.jobs.create_all([new]) == [job]
        wait_for(lambda: "offered" in heard)
    assert "kept" not in heard


def test_changes_are_heard_after_an_internal_error(
    cluster: Cluster, tmp_path: Path, wait_for: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    path, heard = bound_to(cluster.new_database(), tmp_path / "store"), list[str]()

    def failing_at_first(job_id: str) -> None:
        heard.append(job_id)
        if len(heard) == 1:
            raise ValueError(job_id)

    with open_store(path) as store, store.leases.announced(failing_at_first):
        wait_for(lambda: len(heard) > 1)
    assert "the changes of other servers are missed because of an internal error" in caplog.text
