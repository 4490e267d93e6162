"""The source is measured like its packages after these are made."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import GoalState, JobState
from tests.mistify_server.outcomes import goals

Config = Callable[..., dict[str, object]]


def reference_threads(site: Any) -> list[list[int]]:
    """Return the thread counts of all reference tasks, in order."""
    return [task["threads"] for task in site.tasks("reference")]


async def test_the_source_is_measured_once_after_all_packages(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-reference").touch()
    config = make_config("half", FLOP="0.5x"), {**make_config("tenth", FLOP="0.1x"), "threads": 4}
    job = await caller.submit(list(config))
    await wait_until(lambda: bool(site.tasks("reference")))
    held = await caller.job(job.id)
    assert set(goals(held).values()) == {GoalState.MET}
    assert (held.state, held.sources[0].accuracy, held.sources[0].measured) == (JobState.RUNNING, None, {})
    (site.control / "hold-reference").unlink()
    job = await caller.finished(job.id)
    (source,) = site.tasks("source")
    (reference,) = site.tasks("reference")
    made, taught = source["recipe"], reference["recipe"]
    assert (taught["model"], taught["data"]) == (made["model"], made["data"])
    assert taught["teacher"] == site.tasks("adapt")[0]["recipe"]["teacher"]
    assert (job.sources[0].accuracy, job.sources[0].tuned_accuracy) == (0.85, 0.86)
    assert job.sources[0].measured == {"latency_ms@host": 1.0, "latency_ms@host@4-threads": 1.0}


async def test_the_source_is_measured_again_for_goals_with_other_threads(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await caller.finished(job.id)
    for name, threads in (("same", 1), ("other", 2)):
        await caller.add(job.id, [{**make_config(name, FLOP="0.4x"), "threads": threads}])
        await caller.finished(job.id)
    assert reference_threads(site) == [[1], [1, 2]]


async def test_goals_added_while_the_source_is_measured_are_processed(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-reference").touch()
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await wait_until(lambda: bool(site.tasks("reference")))
    await caller.add(job.id, [{**make_config("late", FLOP="0.4x"), "threads": 2}])
    (site.control / "hold-reference").unlink()
    job = await caller.finished(job.id)
    assert goals(job) == {"half": GoalState.MET, "late": GoalState.MET}
    assert reference_threads(site) == [[1], [1, 2]]


async def test_a_failed_measurement_of_the_source_fails_no_goal(
    caller: Any, site: Any, make_config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    (site.control / "fail-reference").touch()
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    with caplog.at_level(logging.WARNING):
        job = await caller.finished(job.id)
    assert (job.state, goals(job)) == (JobState.DONE, {"half": GoalState.MET})
    assert (job.sources[0].accuracy, job.sources[0].tuned_accuracy, job.sources[0].measured) == (
        None,
        None,
        {},
    )
    assert "could not be measured: the source cannot be measured" in caplog.text
    assert reference_threads(site) == [[1]]


async def test_the_source_is_not_measured_without_a_package(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("bad", num_of_params=13)])
    assert (await caller.finished(job.id)).state is JobState.FAILED
    assert reference_threads(site) == []
