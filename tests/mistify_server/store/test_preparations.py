"""Stored preparations and their lifetime."""

import os
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify.jobs.job import Job, JobState
from mistify_server.store.artifacts import Artifacts, artifacts_of, digest_of
from mistify_server.store.changes import JobChanged, Submission
from mistify_server.store.directory import open_store
from mistify_server.store.plans import BatchPlan
from mistify_server.store.preparations import Preparations
from mistify_server.store.removal import remove_jobs
from tests.support.buckets import BucketServer, in_bucket

KEY, OTHER = 64 * "a", 64 * "b"
FOREVER = float("inf")


@pytest.fixture(params=["directory", "bucket"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    if request.param == "directory":
        return artifacts_of(tmp_path)
    server = request.getfixturevalue("bucket_server")
    return in_bucket(server.new_bucket(), tmp_path / "artifacts")


@pytest.fixture
def preparations(artifacts: Artifacts) -> Preparations:
    return Preparations(artifacts)


def test_the_last_part_with_a_key_is_found(preparations: Preparations) -> None:
    assert preparations.part(KEY, "segment-0") == b""
    for content in (b"first", b"second"):
        preparations.keep(KEY, "segment-0", content)
    assert preparations.part(KEY, "segment-0") == b"second"
    assert preparations.part(OTHER, "segment-0") == preparations.part(KEY, "segment-1") == b""
    assert preparations.artifact(KEY) is None


def test_a_finished_preparation_replaces_its_parts(preparations: Preparations, artifacts: Artifacts) -> None:
    preparations.keep(KEY, "segment-0", b"part")
    made = preparations.finish(KEY, b"whole")
    assert artifacts.path(made).read_bytes() == b"whole"
    assert preparations.part(KEY, "segment-0") == b""
    assert (preparations.artifact(KEY), preparations.artifact(OTHER)) == (made, None)
    artifacts.remove(made)
    assert preparations.artifact(KEY) is None


def test_the_same_preparation_is_made_by_one_worker_at_a_time(
    preparations: Preparations, artifacts: Artifacts
) -> None:
    with preparations.held(OTHER):
        (directory,) = artifacts.directory.glob(f"*/{OTHER}")
        with preparations.held(KEY):
            handle = os.open(directory, os.O_RDONLY)
            assert not try_lock(handle)
    assert try_lock(handle)
    os.close(handle)


def test_finding_a_preparation_marks_it_as_used(preparations: Preparations, artifacts: Artifacts) -> None:
    path = artifacts.path(preparations.finish(KEY, b"whole"))
    os.utime(path, (1.0, 1.0))
    preparations.artifact(KEY)
    assert path.stat().st_mtime > 1


def test_referenced_and_new_preparations_are_not_removed(preparations: Preparations) -> None:
    made = digest_of(preparations.finish(KEY, b"whole"))
    preparations.keep(OTHER, "segment-0", b"part")
    assert preparations.remove_unused({made}, FOREVER, with_parts=False) == 0
    assert preparations.remove_unused(set(), 0.0, with_parts=True) == 0
    assert preparations.remove_unused({made}, FOREVER, with_parts=True) == len(b"part")
    assert preparations.part(OTHER, "segment-0") == b""
    assert preparations.artifact(KEY) is not None
    assert preparations.remove_unused(set(), FOREVER, with_parts=False) > 0
    assert preparations.artifact(KEY) is None


def test_a_machine_continues_the_preparation_of_another(bucket_server: BucketServer, tmp_path: Path) -> None:
    address = bucket_server.new_bucket()
    one, other = (Preparations(in_bucket(address, tmp_path / name)) for name in ("one", "other"))
    one.keep(KEY, "segment-0", b"part")
    assert other.part(KEY, "segment-0") == b"part"
    assert other.artifact(KEY) is None
    made = other.finish(KEY, b"whole")
    assert (one.artifact(KEY), one.part(KEY, "segment-0")) == (made, b"")
    beside = one.beside(made)
    one.keep(beside, "converted", b"network")
    assert other.part(beside, "converted") == b"network"
    with bucket_server.away(), pytest.raises(MistifyError) as raised:
        other.artifact(KEY)
    assert raised.value.code is ErrorCode.UNAVAILABLE  # it is not made again


def test_parts_that_an_unfinished_job_may_resume_are_kept(tmp_path: Path, plan: BatchPlan) -> None:
    with open_store(tmp_path) as store:
        job = Job("j", JobState.QUEUED, (), 1)
        store.jobs.create(Submission(job, [plan], "[]", None))
        Preparations(store.artifacts).keep(KEY, "segment-0", b"part")
    remove_jobs(tmp_path, [])
    preparations = Preparations(artifacts_of(tmp_path))
    assert preparations.part(KEY, "segment-0") == b"part"
    with open_store(tmp_path) as store:
        store.jobs.end("j", JobChanged(JobState.CANCELLED))
    assert remove_jobs(tmp_path, []) == len(b"part")
    assert preparations.part(KEY, "segment-0") == b""


def test_what_is_derived_from_a_preparation_lives_as_long(
    preparations: Preparations, artifacts: Artifacts
) -> None:
    made = preparations.finish(KEY, b"whole")
    beside = preparations.beside(made)
    preparations.keep(beside, "converted", b"network")
    assert Preparations(artifacts).beside(made) == beside != preparations.beside(64 * "c" + ".prepared")
    assert preparations.part(beside, "converted") == b"network"
    preparations.remove_unused({digest_of(made)}, FOREVER, with_parts=True)
    assert preparations.part(beside, "converted") == b"network"
    preparations.remove_unused(set(), FOREVER, with_parts=False)
    assert preparations.part(beside, "converted") == b""
