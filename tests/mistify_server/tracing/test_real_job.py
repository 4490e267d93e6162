"""The trace of a real job: its activities are those of the job's own times."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mistify.jobs.job import JobState
from mistify_server.server import ServerSettings
from tests.support.collectors import Collector

CONFIG = [
    {
        "id": "half",
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {
            "name": "morphnet",
            "config": {"source_steps": 20, "adapt_steps": 10, "tune_steps": 10, "max_steps": 40},
        },
        "adaptation_goal": {"FLOP": "0.5x"},
    }
]

#: What a job spends outside of activities.
REST = {"other", "waiting"}


def own_seconds(collector: Collector) -> Counter[str]:
    """Return the seconds of each activity in a job's tasks, without those of activities within it."""
    seconds = Counter[str]()
    (job,) = collector.named("job")
    queue = collector.children(job)
    for span in queue:  # grows during the iteration
        within = collector.children(span)
        queue += within
        inner = sum(child.ended_ns - child.began_ns for child in within)
        seconds[span.name] += 1e-9 * (span.ended_ns - span.began_ns - inner)
    return seconds


async def test_activities_take_the_times_that_the_job_reports(
    tmp_path: Path, serving_at: Any, collector: Collector
) -> None:
    settings = ServerSettings(store=tmp_path / "store", listen="127.0.0.1:0", traces=collector.url)
    async with serving_at(settings) as caller:
        job = await caller.submit(CONFIG)
        job = await caller.finished(job.id)
    assert job.state is JobState.DONE
    collector.root()
    assert job.spent.keys() >= {"tracing", "training", "cutting", "measuring", "packaging", "saving"}
    seconds = own_seconds(collector)
    for activity in job.spent.keys() - REST:
        assert seconds[activity] == pytest.approx(job.spent[activity], rel=0.1, abs=0.1), activity
