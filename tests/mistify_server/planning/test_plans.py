"""Plans and choices of a server with scripted workers, whose networks are just costs."""

from collections.abc import Callable
from typing import Any

import pytest

from mistify.errors import ErrorCode
from mistify.jobs.plan import OutOfReach
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.changes import CheckpointSaved
from mistify_server.store.directory import Store, open_store
from tests.mistify_server.outcomes import failure
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES, case, seen
from tests.support.stored import jobs_in

Config = Callable[..., dict[str, object]]
SOURCE = {"flops": 10_000.0, "params": 1_000.0, "memory_bytes": 8_000.0, "size_bytes": 6_000.0}
FLOOR = {axis: cost / 200 for axis, cost in SOURCE.items()}
SCALED = [{axis: cost * 4.0**place for axis, cost in SOURCE.items()} for place in range(-4, 2)]
PROSPECTS = {
    "features": FEATURES.model_dump(),
    "source_steps": 200,
    "profiles": {name: profile.model_dump() for name, profile in PROFILES.items()},
    "scaled": SCALED,
    "accuracy": 0.8,
    "step_seconds": 0.01,
}
AUTO = {"name": "auto"}


@pytest.fixture
def foreseeable(site: Any) -> Any:
    """Return a site whose inspections contain estimates."""
    site.write("model.json", {"costs": SOURCE, "floor": FLOOR, "estimates": PROSPECTS})
    return site


async def test_a_plan_lists_every_goal_and_starts_nothing(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    plan = await caller.plan(
        [
            make_config("half", algorithm=AUTO, FLOP="0.5x"),
            make_config("quarter", algorithm=AUTO, FLOP="0.25x"),
            make_config("same", algorithm=AUTO, FLOP=5_000),
            make_config("params", algorithm=AUTO, num_of_params="0.3x"),
        ],
    )
    (batch,) = plan.batches
    assert [(edge.goals, edge.parent) for edge in batch.edges] == [
        (("half", "same"), None),
        (("quarter",), "half"),
        (("params",), None),
    ]
    for edge in batch.edges:
        assert edge.algorithm == "morphnet"
        assert "chamnet" in edge.choice
        assert all(edge.costs[axis] <= limit * 1.0001 for axis, limit in edge.budget.items())
        assert edge.accuracy is not None
        assert 0.5 < edge.accuracy.middle < 0.85
        assert edge.accuracy.low < edge.accuracy.middle < edge.accuracy.high
        assert (edge.steps, edge.warning) == (700, "")
    half, quarter, _ = batch.edges
    assert quarter.costs["params"] == pytest.approx(250, rel=1e-3)
    assert quarter.accuracy.middle < half.accuracy.middle  # type: ignore[union-attr]
    # At least its 850 steps at half the source's size, at most 850 steps at the source's size.
    assert 5 < quarter.seconds - 1 < half.seconds - 2 < 8.5
    assert (
        plan.seconds
        == batch.seconds
        == pytest.approx(batch.source_seconds + sum(edge.seconds for edge in batch.edges))
    )
    assert batch.source_seconds >= 200 * 0.01
    assert not foreseeable.tasks("source")
    assert [task["measures"] for task in foreseeable.tasks("inspect")] == [["accuracy", "step", "trial"]]
    with open_store(foreseeable.store) as store:
        assert jobs_in(store) == []


async def test_without_estimates_nothing_is_chosen_or_predicted(
    site: Any, caller: Any, make_config: Config
) -> None:
    """For example, the inspection of a graph has no estimates."""
    configs = [make_config("as-it-is", algorithm=AUTO, FLOP="1x", accuracy="0.7")]
    ((edge,),) = [batch.edges for batch in (await caller.plan(configs)).batches]
    assert (edge.goals, edge.algorithm, edge.accuracy, edge.steps) == (("as-it-is",), "", None, 0)
    job = await caller.submit(configs)
    (goal,) = (await caller.finished(job.id)).goals
    assert (goal.algorithm, goal.choice, goal.warning) == ("", "", "")
    assert not site.tasks("prepare")


async def test_the_error_for_an_unreachable_goal_suggests_the_nearest_reachable_one(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    configs = [
        make_config("tiny", algorithm=AUTO, FLOP="0.001x", num_of_params="0.5x"),
        make_config("few", algorithm=AUTO, num_of_params=3),
        make_config("half", algorithm=AUTO, FLOP="0.5x"),
    ]
    plan = await caller.plan(configs)
    assert plan.out_of_reach == (
        OutOfReach("tiny", "FLOP", "0.001x", "0.005x"),
        OutOfReach("few", "num_of_params", "3", "5"),
    )
    assert [edge.goals for batch in plan.batches for edge in batch.edges] == [("half",)]
    error = await failure(caller.submit(configs))
    assert error.code is ErrorCode.INVALID_CONFIG
    for limit, problem in zip(plan.out_of_reach, error.problems, strict=True):
        assert f'write "{limit.nearest}"' in problem.fix
    nearest = [
        make_config("tiny", algorithm=AUTO, FLOP="0.005x", num_of_params="0.5x"),
        make_config("few", algorithm=AUTO, num_of_params="5"),
    ]
    assert not (await caller.plan(nearest)).out_of_reach
    assert len((await caller.submit(nearest)).goals) == 2
    nothing = await caller.plan(configs[:1])
    assert (nothing.batches, len(nothing.out_of_reach)) == ((), 1)


async def test_a_plan_is_refused_for_the_same_problems_as_a_submission(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    wrong = [
        make_config("a", model="none.json", FLOP="0.5x"),
        make_config("b", algorithm={"name": "x"}, FLOP=9),
    ]
    refused, submitted = await failure(caller.plan(wrong)), await failure(caller.submit(wrong))
    assert (refused.code, refused.problems) == (submitted.code, submitted.problems)


async def test_goals_and_edges_contain_the_choice_and_its_reason(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    job = await caller.submit(
        [
            make_config("half", algorithm=AUTO, FLOP="0.5x"),
            make_config("named", algorithm={"name": "chamnet"}, FLOP="0.5x"),
        ]
    )
    half, named = (await caller.finished(job.id)).goals
    assert (half.algorithm, "chamnet" in half.choice) == ("morphnet", True)
    assert (named.algorithm, named.choice) == ("chamnet", "the config names it")
    assert [task["recipe"]["algorithm"] for task in foreseeable.tasks("adapt")] == ["morphnet", "chamnet"]
    assert [task["recipe"]["algorithm"] for task in foreseeable.tasks("prepare")] == ["chamnet"]


async def test_forecasts_learn_from_adapted_edges(foreseeable: Any, caller: Any, make_config: Config) -> None:
    """The scripted worker loses 0.02 of the source's 0.82 in 100 steps, which take 2 seconds."""
    job = await caller.submit([make_config("half", algorithm=AUTO, FLOP="0.5x")])
    await caller.finished(job.id)
    with open_store(foreseeable.store) as store:
        subject = _only_subject(store)
        (record,) = store.jobs.edges(subject, "", 9)
    assert record.case == case(1.0, algorithm="morphnet", steps=100).model_copy(update={"subject": subject})
    assert (record.source, record.source_steps, record.seconds) == (0.82, 10, 2.0)
    assert record.lost == pytest.approx(1 - 0.8 / 0.82)
    (batch,) = (await caller.plan([make_config("again", algorithm=AUTO, FLOP="0.5x")])).batches
    assert batch.evidence == "based on 1 edge of this model and data"


async def test_results_in_the_store_change_the_choice(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    job = await caller.submit(
        [make_config(f"g{number}", algorithm=AUTO, FLOP=5_000 - number) for number in range(6)]
    )
    await caller.finished(job.id)
    with open_store(foreseeable.store) as store:
        subject = _only_subject(store)
        for node in range(6):
            better = seen(case(1.0, subject=subject, algorithm="chamnet"), -0.02)
            _remember(store, job.id, node, better)
    later = await caller.submit([make_config("later", algorithm=AUTO, FLOP="0.5x")])
    assert [goal.algorithm for goal in job.goals] == ["morphnet"] * 6
    assert [goal.algorithm for goal in later.goals] == ["chamnet"]
    added = await caller.add(job.id, [make_config("added", algorithm=AUTO, FLOP="0.3x")])
    assert added.goals[-1].algorithm == "morphnet"  # the other algorithm has no preparation for this tree


async def test_a_target_that_is_likely_to_be_missed_causes_a_warning(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    configs = [
        make_config("dream", algorithm=AUTO, FLOP="0.1x", accuracy="0.99"),
        make_config("fair", algorithm=AUTO, FLOP="0.5x", accuracy="0.7"),
    ]
    (batch,) = (await caller.plan(configs)).batches
    job = await caller.submit(configs)
    dream, fair = job.goals
    assert "accuracy 99.0% is likely to be missed" in dream.warning
    assert "after 3,000 steps" in dream.warning
    assert fair.warning == ""
    assert foreseeable.tasks("inspect")[-1]["measures"] == ["accuracy"]
    assert (await caller.finished(job.id)).goals[0].warning == dream.warning
    assert {edge.goals: edge.warning for edge in batch.edges} == {("dream",): dream.warning, ("fair",): ""}


def _only_subject(store: Store) -> str:
    (subject,) = {record.case.subject for record in store.jobs.edges("", FEATURES.kind, 99)}
    return subject


def _remember(store: Store, job_id: str, node: int, record: Any) -> None:
    (state,) = store.jobs.batches(job_id)
    job = store.jobs.job(job_id)
    store.jobs.record(
        job_id, [CheckpointSaved(0, node, state.checkpoints[node], record)], job.seconds, job.spent
    )


async def test_a_goal_on_new_hardware_starts_from_a_network_not_measured_there(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    first = await caller.submit([make_config("a", algorithm=AUTO, FLOP="0.5x")])
    await caller.finished(first.id)
    latency = "latency_ms@raspberry-pi"
    scaled = [{**costs, latency: costs["flops"] / 1_000} for costs in SCALED]
    actual = {
        "costs": {**SOURCE, latency: 10.0},
        "floor": {**FLOOR, latency: 0.05},
        "estimates": {**PROSPECTS, "scaled": scaled},
    }
    foreseeable.write("model.json", actual)
    config = {**make_config("b", algorithm=AUTO, latency="0.25x"), "hardware": "raspberry-pi"}
    await caller.add(first.id, [config])
    job = await caller.finished(first.id)
    assert [goal.state.value for goal in job.goals] == ["met", "met"], job
    with open_store(foreseeable.store) as store:
        subject, kind = subject_of(FEATURES, store.jobs.batches(job.id)[0].plan.recipe.data), FEATURES.kind
        distances = [record.case.distance for record in store.jobs.edges(subject, kind, 9)]
    assert distances == pytest.approx([1.0, 2.0])  # the root is predicted to take 10 ms


def within(time: object) -> dict[str, object]:
    return {"name": "auto", "config": {"time": time, "seed": 3}}


async def test_a_plan_within_a_time_says_what_fits_into_it(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    goals = {"half": "0.5x", "quarter": "0.25x"}
    usual = await caller.plan(
        [make_config(name, algorithm=AUTO, FLOP=limit) for name, limit in goals.items()]
    )
    plan = await caller.plan(
        [make_config(name, algorithm=within("30s"), FLOP=limit) for name, limit in goals.items()]
    )
    assert 27 <= plan.seconds <= 30 != usual.seconds
    (batch,) = plan.batches
    assert "times the usual training steps fit into 30 s" in batch.pacing
    assert "in twice the time" in batch.pacing
    assert usual.batches[0].pacing == ""
    first, second = foreseeable.tasks("inspect")
    assert first["recipe"]["settings"] == {}
    assert second["recipe"]["settings"] == {"seed": 3}


async def test_the_tasks_of_a_job_within_a_time_have_its_pace(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("half", algorithm=within("1min"), FLOP="0.5x")])
    await caller.finished(job.id)
    (inspected,) = foreseeable.tasks("inspect")
    assert {"accuracy", "step", "trial"} <= set(inspected["measures"])
    (source,), (edge,) = foreseeable.tasks("source"), foreseeable.tasks("adapt")
    assert source["recipe"]["pace"] == edge["recipe"]["pace"] != 1
    assert source["recipe"]["settings"] == {"time": "1min", "seed": 3}


async def test_a_time_that_is_too_short_is_refused_with_the_shortest(
    foreseeable: Any, caller: Any, make_config: Config
) -> None:
    configs = [make_config("half", algorithm=within("2s"), FLOP="0.5x")]
    for call in (caller.plan, caller.submit):
        error = await failure(call(configs))
        assert error.code is ErrorCode.INVALID_CONFIG
        (problem,) = error.problems
        assert (problem.place, problem.value) == ("[0].algorithm.config.time", '"2s"')
        assert problem.expected == "at least 10s for 1 goal with this model"
