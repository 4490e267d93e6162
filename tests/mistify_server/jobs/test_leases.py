"""A job that another server takes from a running one."""

from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import JobState
from mistify_server.store.directory import open_store

Config = Callable[..., dict[str, object]]


async def test_late_results_of_a_job_that_was_taken_over_are_refused(
    site: Any,
    serving_at: Any,
    make_config: Config,
    wait_until: Any,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        with open_store(site.store) as other:
            assert other.leases.take(job.id) is not None
            before = other.jobs.latest_events(job.id, 99)
        (site.control / "hold-adapt").unlink()
        await wait_until(lambda: f"the job {job.id} was ended or taken over by another server" in caplog.text)
        next_job = await caller.submit([make_config("b", FLOP="0.4x")])
        assert (await caller.finished(next_job.id)).state is JobState.DONE
        with open_store(site.store) as other:
            assert other.jobs.latest_events(job.id, 99) == before
            assert other.jobs.batches(job.id)[0].checkpoints == {}
    assert not [record for record in caplog.records if record.exc_info]
    async with serving_at(site.settings()) as caller:
        assert (await caller.finished(job.id)).state is JobState.DONE
