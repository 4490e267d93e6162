"""Adding goals to a job: where they start from, and which results are reused."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mistify.config.reading import read_batch
from mistify.errors import ErrorCode
from mistify.jobs.job import GoalState, JobState
from mistify_server.jobs.running_jobs import RunningJobs
from tests.mistify_server.outcomes import failure, goals, parents

Config = Callable[..., dict[str, object]]


def started_from(site: Any) -> dict[float, str]:
    """Map each adaptation's limit on multiply-adds to the checkpoint that it started from."""
    return {task["budget"]["flops"]: task["parent"] for task in site.tasks("adapt")}


async def job_states(caller: Any, job_id: str) -> list[JobState]:
    return [event.event for event in await caller.events(job_id) if isinstance(event.event, JobState)]


@pytest.mark.parametrize("held", ["source", "adapt", "package"])
async def test_a_running_job_accepts_a_goal(
    caller: Any, site: Any, make_config: Config, wait_until: Any, held: str
) -> None:
    (site.control / f"hold-{held}").touch()
    job = await caller.submit([make_config("large", FLOP="0.8x"), make_config("small", FLOP="0.4x")])
    await wait_until(lambda: bool(site.tasks(held)))
    grown = await caller.add(job.id, [make_config("between", FLOP="0.6x")])
    assert grown.state is JobState.RUNNING
    assert parents(grown) == {"large": None, "small": "large", "between": "large"}
    (site.control / f"hold-{held}").unlink()
    job = await caller.finished(job.id)
    assert goals(job) == dict.fromkeys(("large", "small", "between"), GoalState.MET)
    made = started_from(site)
    assert made[6_000] == made[4_000] != made[8_000]
    assert [len(site.tasks(kind)) for kind in ("inspect", "source", "adapt", "package")] == [1, 1, 3, 3]
    assert await job_states(caller, job.id) == [JobState.QUEUED, JobState.RUNNING, JobState.DONE]
    events = [event.event for event in await caller.events(job.id) if event.goal_id == "between"]
    assert [event for event in events if isinstance(event, GoalState)] == [
        GoalState.WAITING,
        GoalState.RUNNING,
        GoalState.MET,
    ]


async def test_added_goals_may_name_the_files_of_the_job_by_their_paths(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("large", FLOP="0.8x")])
    await caller.finished(job.id)
    dataset = {"train": str(site.root / "train.json"), "test": str(site.root / "test.json")}
    named = {**make_config("small", str(site.root / "model.json"), FLOP="0.4x"), "dataset": dataset}
    assert len((await caller.add(job.id, [named])).goals) == 2
    site.write("copy.json", json.loads((site.root / "model.json").read_text()))
    other = await failure(caller.add(job.id, [make_config("other", "copy.json", FLOP="0.2x")]))
    assert [problem.place for problem in other.problems] == ["[0].model"]


async def test_added_goals_inherit_model_data_and_algorithm_of_the_job(
    caller: Any, site: Any, make_config: Config
) -> None:
    algorithm = {"name": "chamnet", "config": {"tune_steps": 7}}
    job = await caller.submit([make_config("large", FLOP="0.8x", algorithm=algorithm)])
    await caller.finished(job.id)
    await caller.add(job.id, [{"id": "small", "adaptation_goal": {"FLOP": "0.4x"}}])
    job = await caller.finished(job.id)
    assert parents(job) == {"large": None, "small": "large"}
    large, small = site.tasks("adapt")
    for part in ("data", "teacher", "algorithm", "settings"):
        assert small["recipe"][part] == large["recipe"][part]


async def test_added_goals_have_to_specify_settings_that_differ_within_the_job(
    caller: Any, make_config: Config
) -> None:
    algorithms = {name: {"name": name} for name in ("morphnet", "chamnet")}
    job = await caller.submit(
        [make_config(name, FLOP="0.8x", algorithm=algorithm) for name, algorithm in algorithms.items()]
    )
    goal = {"id": "small", "adaptation_goal": {"FLOP": "0.4x"}}
    refused = await failure(caller.add(job.id, [goal]))
    (problem,) = refused.problems
    assert problem.place == "[0].algorithm"
    assert all(name in problem.expected for name in algorithms)
    grown = await caller.add(job.id, [{**goal, "algorithm": algorithms["chamnet"]}])
    assert parents(grown)["small"] == "chamnet"
    await caller.finished(job.id)


async def test_an_ended_job_runs_again_only_for_the_new_goals(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("large", FLOP="0.8x"), make_config("small", FLOP="0.4x")])
    before = await caller.finished(job.id)
    later = [make_config("smaller", FLOP="0.3x"), make_config("tiny", FLOP="0.2x")]
    grown = await caller.add(job.id, later)
    assert grown.state is JobState.QUEUED
    job = await caller.finished(job.id)
    assert (job.state, parents(job)["smaller"], parents(job)["tiny"]) == (JobState.DONE, "small", "smaller")
    assert job.goals[:2] == before.goals
    assert job.goals[2].achieved["flops"] == 3_000
    assert json.loads(await caller.fetch(job.id, "tiny", "manifest.json")) == {"goal": "tiny", "job": job.id}
    assert [len(site.tasks(kind)) for kind in ("inspect", "source", "adapt", "package")] == [1, 1, 4, 4]
    assert await job_states(caller, job.id) == [JobState.QUEUED, JobState.RUNNING, JobState.DONE] * 2
    events = await caller.events(job.id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert job.seconds >= before.seconds
    assert before.spent["training"] == 0.5 + 2 * 1.5
    assert job.spent["training"] == 0.5 + 4 * 1.5
    assert (before.spent["packaging"], job.spent["packaging"]) == (0.25, 0.5)


async def test_a_goal_with_an_existing_budget_is_only_packaged(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await caller.finished(job.id)
    await caller.add(job.id, [make_config("again", FLOP=5_000, accuracy="0.8")])
    job = await caller.finished(job.id)
    assert goals(job) == {"half": GoalState.MET, "again": GoalState.MET}
    assert parents(job) == {"half": None, "again": None}
    assert len(site.tasks("adapt")) == 1
    assert [task["goal_id"] for task in site.tasks("package")] == ["half", "again"]


async def test_more_accuracy_is_tuned_from_the_checkpoint_of_the_budget(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await caller.finished(job.id)
    await caller.add(job.id, [make_config("better", FLOP="0.5x", accuracy="0.9")])
    job = await caller.finished(job.id)
    assert goals(job) == {"half": GoalState.MET, "better": GoalState.UNMET}
    assert parents(job)["better"] == "half"
    first, second = site.tasks("adapt")
    assert second["budget"] == first["budget"]
    assert [target["value"] for target in second["targets"]] == [0.9]
    (packaged, _) = site.tasks("package")
    assert second["parent"] == packaged["checkpoint"]


async def test_a_goal_joins_a_running_adaptation_with_its_budget(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("half", FLOP="0.5x", accuracy="0.7")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    later = [
        make_config("same", FLOP="0.5x", accuracy="0.6"),
        make_config("more", FLOP="0.5x", accuracy="0.75"),
    ]
    await caller.add(job.id, later)
    (site.control / "hold-adapt").unlink()
    job = await caller.finished(job.id)
    assert set(goals(job).values()) == {GoalState.MET}
    assert [task["targets"][0]["value"] for task in site.tasks("adapt")] == [0.7, 0.75]
    assert parents(job) == {"half": None, "same": None, "more": "half"}


async def test_goals_above_the_root_start_from_the_unchanged_root(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("wide", FLOP="1.5x")])
    await caller.finished(job.id)
    await caller.add(job.id, [make_config("wider", FLOP="2x"), make_config("other", num_of_params="0.5x")])
    job = await caller.finished(job.id)
    assert parents(job) == {"wide": None, "wider": None, "other": None}
    assert goals(job)["wider"] is GoalState.MET
    assert job.goals[1].achieved["flops"] == 15_000
    assert len({task["parent"] for task in site.tasks("adapt")}) == 1
    assert len(site.tasks("source")) == 1


async def test_a_cancelled_job_continues_for_added_goals(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-package").touch()
    job = await caller.submit([make_config("a", FLOP="0.8x"), make_config("b", FLOP="0.6x")])
    await wait_until(lambda: bool(site.tasks("package")))
    (site.control / "hold-adapt").touch()
    (site.control / "hold-package").unlink()
    await wait_until(lambda: len(site.tasks("adapt")) == 2)
    await caller.cancel(job.id)
    (site.control / "hold-adapt").unlink()
    await caller.add(job.id, [make_config("b-again", FLOP="0.6x"), make_config("c", FLOP="0.4x")])
    job = await caller.finished(job.id)
    met, cancelled = GoalState.MET, GoalState.CANCELLED
    assert (job.state, job.reason) == (JobState.DONE, "")
    assert goals(job) == {"a": met, "b": cancelled, "b-again": met, "c": met}
    assert parents(job) == {"a": None, "b": "a", "b-again": "a", "c": "b-again"}


async def test_an_equal_goal_retries_a_failed_one(caller: Any, site: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("good", FLOP="0.5x"), make_config("bad", num_of_params=13)])
    await caller.finished(job.id)
    await caller.add(job.id, [make_config("bad-again", num_of_params=13)])
    job = await caller.finished(job.id)
    assert (job.state, goals(job)["bad-again"]) == (JobState.DONE, GoalState.FAILED)
    assert [task["budget"] for task in site.tasks("adapt")].count({"params": 13}) == 2


async def test_a_failed_source_is_retried(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    """This also works while another batch of the job is still running."""
    site.write("broken.json", {"costs": {"flops": 10.0, "broken": 1.0}, "floor": {}})
    (site.control / "hold-adapt").touch()
    batches = [make_config("a", model="broken.json", FLOP="0.5x"), make_config("b", FLOP="0.5x")]
    job = await caller.submit(batches)
    await wait_until(lambda: bool(site.tasks("adapt")))
    for name, repaired in (("still", False), ("fixed", True)):
        costs = {"flops": 10.0} if repaired else {"flops": 10.0, "broken": 1.0}
        site.write("broken.json", {"costs": costs, "floor": {}})
        await caller.add(job.id, [make_config(name, model="broken.json", FLOP="0.5x")])
        if not repaired:
            (site.control / "hold-adapt").unlink()
            await caller.finished(job.id)
    job = await caller.finished(job.id)
    failed, met = GoalState.FAILED, GoalState.MET
    assert goals(job) == {"a": failed, "b": met, "still": failed, "fixed": met}
    assert [task["recipe"]["model"]["path"].rpartition("/")[2] for task in site.tasks("source")] == [
        "broken.json",
        "model.json",
        "broken.json",
        "broken.json",
    ]


async def test_added_goals_are_assigned_to_their_batch(caller: Any, site: Any, make_config: Config) -> None:
    site.write("other.json", {"costs": {"flops": 500.0}, "floor": {}})
    batches = [
        make_config("a", FLOP="0.5x"),
        make_config("b", model="other.json", FLOP="0.5x"),
        make_config("c", algorithm={"name": "morphnet", "config": {"seed": 7}}, FLOP="0.5x"),
    ]
    job = await caller.submit(batches)
    await caller.finished(job.id)
    later = [{**config, "id": f"{config['id']}-2", "adaptation_goal": {"FLOP": "0.4x"}} for config in batches]
    one_more = {**batches[2], "id": "c-3", "adaptation_goal": {"FLOP": "0.3x"}}
    await caller.add(job.id, [*later[::-1], one_more])
    job = await caller.finished(job.id)
    assert [(goal.id, goal.batch, goal.parent) for goal in job.goals[3:]] == [
        ("c-2", 2, "c"),
        ("b-2", 1, "b"),
        ("a-2", 0, "a"),
        ("c-3", 2, "c-2"),
    ]
    assert [goal.spec.budget["flops"] for goal in job.goals[3:]] == [4_000, 200, 4_000, 3_000]
    assert {task["recipe"]["settings"].get("seed") for task in site.tasks("adapt")} == {None, 7}


async def test_a_repeated_key_does_not_add_goals_twice(caller: Any, site: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")], key="k")
    on_t4 = {**make_config("b", latency="1ms"), "hardware": "t4", "quantization": "none"}
    later = [on_t4, make_config("c", FLOP="0.3x")]
    answers = await asyncio.gather(*(caller.add(job.id, later, key="k") for _ in range(5)))
    assert {tuple(goals(answer)) for answer in answers} == {("a", "b", "c")}
    await caller.finished(job.id)
    assert (await caller.add(job.id, later, key="k")).state is JobState.DONE
    assert len(site.tasks("package")) == 3
    error = await failure(caller.add(job.id, [make_config("d", FLOP="0.2x")], key="k"))
    assert error.code is ErrorCode.CONFLICT
    other = await caller.submit([make_config("a", FLOP="0.5x")])
    assert len((await caller.add(other.id, later, key="k")).goals) == 3


async def test_a_repeated_key_during_the_first_call_does_not_add_goals_twice(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without an answer calls again while its first call is still in progress."""
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    later = [make_config("b", FLOP="0.3x")]
    reading, let_go, readings = threading.Event(), threading.Event(), itertools.count()

    def slow_at_first(text: str, **options: Any) -> Any:
        if next(readings) == 0:
            reading.set()
            assert let_go.wait(60)
        return read_batch(text, **options)

    monkeypatch.setattr("mistify_server.planning.lookup.reading.read_batch", slow_at_first)
    first = asyncio.create_task(caller.add(job.id, later, key="k"))
    await asyncio.to_thread(reading.wait, 60)
    second = asyncio.create_task(caller.add(job.id, later, key="k"))
    await caller.page(1)  # the second call has arrived by now
    let_go.set()
    assert list(goals(await first)) == list(goals(await second)) == ["a", "b"]
    assert next(readings) == 1


async def test_a_goal_added_while_the_job_is_cancelled_is_cancelled(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added between the end of the job's task and the marking of its goals."""
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    stop, late = RunningJobs._stop, [make_config("late", FLOP="0.4x")]

    async def stop_and_add(jobs: RunningJobs, job_id: str) -> None:
        await stop(jobs, job_id)
        if late:
            await caller.add(job_id, [late.pop()])

    with monkeypatch.context() as patched:
        patched.setattr(RunningJobs, "_stop", stop_and_add)
        job = await caller.cancel(job.id)
    assert (job.state, set(goals(job).values())) == (JobState.CANCELLED, {GoalState.CANCELLED})
    (site.control / "hold-adapt").unlink()
    await caller.add(job.id, [make_config("later", FLOP="0.3x")])
    job = await caller.finished(job.id)
    assert goals(job) == {"a": GoalState.CANCELLED, "late": GoalState.CANCELLED, "later": GoalState.MET}


@pytest.mark.parametrize("moment", ["_stop", "stop"])
async def test_a_goal_added_while_the_server_stops_is_left_to_the_next_server(
    site: Any,
    make_config: Config,
    serving_at: Any,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    moment: str,
) -> None:
    """It is added after one job has stopped, and after all jobs have stopped."""
    (site.control / "hold-adapt").touch()
    original, late = getattr(RunningJobs, moment), [make_config("late", FLOP="0.4x")]
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))

        async def stop_and_add(*arguments: Any) -> None:
            await original(*arguments)
            if late:
                await other.add(job.id, [late.pop()])

        monkeypatch.setattr(RunningJobs, moment, stop_and_add)
        other = type(caller)(caller.address)  # the caller's channel closes before the server stops
    assert not late
    assert job.id not in {task.get_name() for task in asyncio.all_tasks()}
    await other.channel.close()
    (site.control / "hold-adapt").unlink()
    async with serving_at(site.settings()) as caller:
        job = await caller.finished(job.id)
    assert goals(job) == {"a": GoalState.MET, "late": GoalState.MET}
    assert parents(job)["late"] == "a"
