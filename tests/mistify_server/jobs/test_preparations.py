"""Preparations of algorithms as steps of a job with scripted workers."""

from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import GoalState, Job, JobState, ProgressUpdate
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES

Config = Callable[..., dict[str, object]]

SOURCE = {"flops": 10_000.0, "params": 1_000.0, "memory_bytes": 8_000.0, "size_bytes": 6_000.0}

#: Better than the other algorithm, except for goals with targets.
NESTED = PROFILES["morphnet"].model_copy(
    update={
        "loss_per_halving": 0.01,
        "preparation": tuple(range(100, 133)),
        "shared_steps": 600,
        "adaptation": (0,) * 33,
        "tune_steps": 0,
    }
)
ESTIMATES = {
    "features": FEATURES.model_dump(),
    "source_steps": 200,
    "profiles": {"morphnet": PROFILES["morphnet"].model_dump(), "nested": NESTED.model_dump()},
    "scaled": [{axis: cost * 4.0**place for axis, cost in SOURCE.items()} for place in range(-4, 2)],
    "accuracy": 0.8,
    "step_seconds": 0.01,
}
AUTO = {"name": "auto"}


@pytest.fixture(autouse=True)
def foreseeable(site: Any) -> None:
    site.write(
        "model.json",
        {
            "costs": SOURCE,
            "floor": {axis: cost / 200 for axis, cost in SOURCE.items()},
            "estimates": ESTIMATES,
        },
    )


@pytest.fixture
def configs(make_config: Config) -> list[dict[str, object]]:
    """Return a path of four goals; the second has a target, and therefore another algorithm."""
    return [
        make_config("wide", algorithm=AUTO, FLOP="0.8x"),
        make_config("aimed", algorithm=AUTO, FLOP="0.7x", accuracy="0.7"),
        make_config("narrow", algorithm=AUTO, FLOP="0.5x"),
        make_config("few", algorithm=AUTO, num_of_params="0.3x"),
    ]


def algorithms(job: Job) -> list[str]:
    return [goal.algorithm for goal in job.goals]


async def test_an_algorithm_prepares_once_before_its_first_goal(caller: Any, site: Any, configs: Any) -> None:
    job = await caller.finished((await caller.submit(configs)).id)
    assert algorithms(job) == ["nested", "morphnet", "nested", "nested"]
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    (prepare,) = site.tasks("prepare")
    assert (prepare["recipe"]["algorithm"], prepare["least"]) == ("nested", {"flops": 5_000, "params": 300})
    given = {task["recipe"]["algorithm"]: task["recipe"]["prepared"] for task in site.tasks("adapt")}
    assert given["morphnet"] is None
    assert given["nested"] is not None
    assert {task["recipe"]["prepared"] for task in site.tasks("adapt")} == set(given.values())
    assert job.sources[0].preparing_steps == {"nested": 40}
    assert job.sources[0].steps == 10
    assert job.spent["training"] == 0.5 + 0.5 + 4 * 1.5


async def test_progress_follows_the_plan(caller: Any, site: Any, configs: Any) -> None:
    """Edges know their planned steps, and the job's time left begins with the planned time."""
    (batch,) = (await caller.plan(configs)).batches
    planned = {min(edge.budget.values()): edge.steps for edge in batch.edges}
    job = await caller.submit(configs)
    updates = [of.event for of in await caller.events(job.id) if isinstance(of.event, ProgressUpdate)]
    adapt = site.tasks("adapt")
    assert {min(task["budget"].values()): task["planned_steps"] for task in adapt} == planned
    assert sum(planned.values()) > 0
    assert updates[0].job_share == pytest.approx(0, abs=0.05)
    assert updates[0].seconds_left == pytest.approx(batch.seconds, rel=0.2)
    assert updates[-1].job_share > updates[0].job_share
    assert updates[-1].seconds_left < updates[0].seconds_left


async def test_progress_of_a_preparation_is_reported_like_that_of_the_source(
    caller: Any, configs: Any
) -> None:
    job = await caller.submit(configs)
    updates = [
        event.event
        for event in await caller.events(job.id)
        if event.goal_id is None and isinstance(event.event, ProgressUpdate)
    ]
    (update,) = (update for update in updates if update.stage == "preparing nested")
    assert (update.step, update.total_steps, update.loss) == (20, 40, 0.5)


async def test_edges_of_other_algorithms_and_packages_do_not_wait_for_a_preparation(
    site: Any, make_config: Config, serving_at: Any, wait_until: Any
) -> None:
    (site.control / "hold-prepare").touch()
    async with serving_at(site.settings(slots=2)) as caller:
        job = await caller.submit(
            [
                make_config("wide", algorithm=AUTO, FLOP="0.8x", accuracy="0.7"),
                make_config("narrow", algorithm=AUTO, FLOP="0.5x", accuracy="0.7"),
                make_config("cut", algorithm=AUTO, FLOP="0.4x"),
            ]
        )
        await wait_until(lambda: len(site.tasks("package")) == 2)
        assert [task["recipe"]["algorithm"] for task in site.tasks("adapt")] == ["morphnet"] * 2
        (site.control / "hold-prepare").unlink()
        assert (await caller.finished(job.id)).state is JobState.DONE
    assert [task["recipe"]["algorithm"] for task in site.tasks("adapt")] == ["morphnet", "morphnet", "nested"]


async def test_a_restarted_server_does_not_repeat_a_preparation(
    site: Any, configs: Any, serving_at: Any, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as caller:
        job = await caller.submit(configs)
        await wait_until(lambda: site.tasks("adapt"))
    (site.control / "hold-adapt").unlink()
    async with serving_at(site.settings()) as caller:
        job = await caller.finished(job.id)
    assert (job.state, job.sources[0].preparing_steps) == (JobState.DONE, {"nested": 40})
    assert len(site.tasks("prepare")) == 1
    recipes = [task["recipe"] for task in site.tasks("adapt")]
    assert len({recipe["prepared"] for recipe in recipes if recipe["algorithm"] == "nested"}) == 1


async def test_a_preparation_interrupted_by_a_stop_runs_after_the_restart(
    site: Any, configs: Any, serving_at: Any, wait_until: Any
) -> None:
    (site.control / "hold-prepare").touch()
    async with serving_at(site.settings()) as caller:
        job = await caller.submit(configs)
        await wait_until(lambda: site.tasks("prepare"))
    (site.control / "hold-prepare").unlink()
    async with serving_at(site.settings()) as caller:
        assert (await caller.finished(job.id)).state is JobState.DONE
    assert (len(site.tasks("source")), len(site.tasks("prepare"))) == (1, 2)


async def test_a_worker_that_dies_during_a_preparation_fails_no_goal(
    caller: Any, site: Any, configs: Any
) -> None:
    (site.control / "crash-prepare").write_text("1")
    job = await caller.finished((await caller.submit(configs)).id)
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    assert len(site.tasks("prepare")) == 2


async def test_a_failed_preparation_fails_only_its_goals_and_those_below(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit(
        [
            make_config("above", algorithm=AUTO, FLOP="0.8x", accuracy="0.7"),
            make_config("bad", algorithm=AUTO, FLOP="0.7x", num_of_params=11),
            make_config("below", algorithm=AUTO, FLOP="0.6x", num_of_params=10, accuracy="0.7"),
        ]
    )
    above, bad, below = (await caller.finished(job.id)).goals
    reason = "the preparation of nested failed: 11 parameters cannot be prepared for"
    assert (above.state, bad.state, below.state) == (GoalState.MET, GoalState.FAILED, GoalState.FAILED)
    assert (bad.reason, below.reason) == (reason, reason)


async def test_a_goal_added_later_uses_the_existing_preparation(
    caller: Any, site: Any, configs: Any, make_config: Config
) -> None:
    job = await caller.submit(configs)
    await caller.finished(job.id)
    await caller.add(job.id, [make_config("later", algorithm=AUTO, FLOP="0.6x")])
    job = await caller.finished(job.id)
    assert (algorithms(job)[-1], job.goals[-1].state) == ("nested", GoalState.MET)
    assert len(site.tasks("prepare")) == 1
    assert site.tasks("adapt")[-1]["recipe"]["prepared"] == site.tasks("adapt")[0]["recipe"]["prepared"]


async def test_a_goal_below_the_prepared_range_gets_another_algorithm(
    caller: Any, site: Any, configs: Any, make_config: Config
) -> None:
    job = await caller.submit(configs)
    await caller.finished(job.id)
    added = await caller.add(job.id, [make_config("later", algorithm=AUTO, num_of_params="0.1x")])
    assert algorithms(added)[-1] == "morphnet"


TASKS = [{"classes": ["cat", "dog"]}, {"classes": ["dog", "frog"]}]


def of_tasks(make_config: Config) -> list[dict[str, object]]:
    """Two goals of one task, and one of another."""
    goals = (("a", 0, "0.5x"), ("b", 1, "0.5x"), ("c", 0, "0.4x"))
    return [make_config(name, algorithm={"name": "nested"}, FLOP=limit) | {"task": TASKS[task]}
            for name, task, limit in goals]  # fmt: skip


async def test_an_algorithm_prepares_for_each_task_apart(caller: Any, site: Any, make_config: Config) -> None:
    job = await caller.finished((await caller.submit(of_tasks(make_config))).id)
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    assert [goal.parent for goal in job.goals] == [None, None, "a"]
    prepared = {str(task["task"]["classes"]): task["least"] for task in site.tasks("prepare")}
    assert prepared == {"['cat', 'dog']": {"flops": 4_000}, "['dog', 'frog']": {"flops": 5_000}}
    assert [task["task"] for task in site.tasks("adapt")].count(TASKS[0]) == 2
    assert {str(task["spec"]["task"]) for task in site.tasks("package")} == set(map(str, TASKS))
    assert job.sources[0].preparing_steps == {
        "nested for classes cat, dog": 40,
        "nested for classes dog, frog": 40,
    }


async def test_an_algorithm_that_serves_tasks_prepares_for_all_at_once(
    caller: Any, site: Any, make_config: Config
) -> None:
    profiles = {"nested": NESTED.model_copy(update={"serves_tasks": True}).model_dump()}
    inspection = {"costs": SOURCE, "floor": {axis: cost / 200 for axis, cost in SOURCE.items()}}
    site.write("model.json", {**inspection, "estimates": {**ESTIMATES, "profiles": profiles}})
    job = await caller.finished((await caller.submit(of_tasks(make_config))).id)
    (prepare,) = site.tasks("prepare")
    assert (prepare["task"], prepare["least"]) == (None, {"flops": 4_000})
    assert [task["task"] for task in site.tasks("adapt")].count(TASKS[1]) == 1
    assert job.sources[0].preparing_steps == {"nested": 40}
    assert {goal.state for goal in job.goals} == {GoalState.MET}
