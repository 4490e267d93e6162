"""The estimated end of a job."""

from dataclasses import replace
from statistics import median

import pytest

from executors.contract.profile import AlgorithmProfile
from mistify.jobs.job import Goal, GoalState, PackageFile, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.jobs.time_left import Part, TimeLeft, TimeLeftEstimator
from mistify_server.store.changes import CheckpointSaved, GoalChanged, GoalsFailed, ReferenceSaved, RootSaved
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.tasks.results import AdaptResult, ReferenceResult, SourceResult
from tests.support.recorded_progress import RECORDED_PROGRESS, recorded_progress, replayed

GOALS = [Goal(name, 0, PackageSpec({"flops": 1.0})) for name in ("a", "b")]
FILES = (PackageFile("serve.tflite", 1, "0" * 64),)
MET = [replace(goal, state=GoalState.MET, files=FILES) for goal in GOALS]

SOURCE, FIRST, SECOND = Part(0, "source"), Part(0, "adaptation", 0), Part(0, "adaptation", 1)
PACKAGES, REFERENCE = [Part(0, "packaging", goal.id) for goal in GOALS], Part(0, "packaging")
STARTING = ProgressUpdate("starting", 0, 0)


def chain_of(plan: BatchPlan) -> BatchPlan:
    """Return a plan with two goals, the second adapted from the first.

    It takes 20 seconds for the source, 90 for each goal, 10 for each package, and 10 to measure the source.
    """

    def node(index: int, parent: int | None, goal: str) -> NodePlan:
        return plan.nodes[0].model_copy(
            update={
                "index": index,
                "parent": parent,
                "goals": (goal,),
                "seconds": 90.0,
                "packaging_seconds": 10.0,
            }
        )

    return plan.model_copy(update={"nodes": (node(0, None, "a"), node(1, 0, "b")), "source_seconds": 20.0})


def estimator_of(plan: BatchPlan, slots: int = 1) -> TimeLeftEstimator:
    return TimeLeftEstimator([BatchState(plan, None, {})], GOALS, slots)


def steps(step: int, total: int) -> ProgressUpdate:
    return ProgressUpdate("training", step, total)


def estimated(estimator: TimeLeftEstimator, elapsed: float) -> TimeLeft:
    found = estimator.estimate(elapsed)
    assert found is not None
    return found


def source_result(seconds: float) -> RootSaved:
    result = SourceResult(
        source_costs={},
        source_accuracy=0.5,
        teacher="",
        teacher_accuracy=0.5,
        root="",
        root_costs={},
        steps=1,
        spent={"training": seconds},
    )
    return RootSaved(0, result)


def adapted(index: int, seconds: float) -> CheckpointSaved:
    spent = {"training": seconds}
    result = AdaptResult(checkpoint="", costs={}, accuracy=0.5, met=True, reason="", steps=9, spent=spent)
    return CheckpointSaved(0, index, result)


def tune_source(estimator: TimeLeftEstimator, seconds: float) -> None:
    estimator.advance(SOURCE, STARTING, 0.0)
    estimator.stop(SOURCE, seconds)
    estimator.apply(source_result(seconds))


def test_before_any_work_the_whole_plan_is_left(plan: BatchPlan) -> None:
    assert estimated(estimator_of(chain_of(plan)), 0.0) == (0.0, 230.0)


def test_work_at_the_planned_pace_leaves_the_rest_of_the_plan(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    estimator.advance(SOURCE, STARTING, 0.0)
    estimator.advance(SOURCE, steps(150, 450), 10.0)  # loading it takes as long as 150 steps
    assert estimated(estimator, 10.0) == (pytest.approx(10 / 230), pytest.approx(220.0))
    estimator.stop(SOURCE, 20.0)
    estimator.apply(source_result(20.0))
    estimator.advance(FIRST, STARTING, 20.0)
    estimator.advance(FIRST, steps(50, 450), 50.0)
    assert estimated(estimator, 50.0) == (pytest.approx(50 / 230), pytest.approx(180.0))
    estimator.stop(FIRST, 110.0)
    estimator.apply(adapted(0, 90.0))
    estimator.advance(PACKAGES[0], STARTING, 110.0)
    estimator.stop(PACKAGES[0], 120.0)
    estimator.apply(GoalChanged(MET[0]))
    assert estimated(estimator, 120.0) == (pytest.approx(120 / 230), pytest.approx(110.0))


def test_networks_are_expected_at_the_pace_of_the_source(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    tune_source(estimator, 60.0)
    assert estimated(estimator, 60.0).seconds_left == pytest.approx(3 * 180 + 30, rel=0.1)


def test_each_kind_of_work_has_its_own_pace(plan: BatchPlan) -> None:
    """Packages take six times as long as planned, networks a third."""
    estimator = estimator_of(chain_of(plan))
    tune_source(estimator, 20.0)
    estimator.advance(FIRST, STARTING, 20.0)
    estimator.stop(FIRST, 50.0)
    estimator.apply(adapted(0, 30.0))
    assert estimated(estimator, 50.0).seconds_left == pytest.approx(90 / 3 + 30, rel=0.25)
    estimator.advance(PACKAGES[0], STARTING, 50.0)
    estimator.stop(PACKAGES[0], 110.0)
    estimator.apply(GoalChanged(MET[0]))
    # One package says something about others, but not everything.
    left = estimated(estimator, 110.0).seconds_left
    assert 90 / 3 + 2 * 30 < left < 90 / 3 + 2 * 60


def test_a_part_without_steps_is_counted_down_and_then_tells_the_pace(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    tune_source(estimator, 20.0)
    estimator.apply(adapted(0, 90.0))
    estimator.apply(adapted(1, 90.0))
    estimator.advance(PACKAGES[0], STARTING, 20.0)
    assert estimated(estimator, 20.0).seconds_left == pytest.approx(30.0)
    assert estimated(estimator, 26.0).seconds_left == pytest.approx(24.0)
    # It takes 50 seconds instead of 10 so far, so that others are expected to take 30.
    assert estimated(estimator, 70.0).seconds_left == pytest.approx(60.0)


def test_the_steps_of_a_worker_count_more_than_those_of_the_plan(plan: BatchPlan) -> None:
    """A network that was expected to be tuned in 30 steps is tuned in 90; the rest takes as long as 10."""
    profile = AlgorithmProfile(edge_overhead=10, adaptation=(0,), tune_steps=1, max_steps=1)
    features = NetworkFeatures(model="", kind="convolutional", blocks=0)
    estimates = EdgeEstimates(features=features, source_steps=1, profiles={"own": profile}, scaled=())
    chain = chain_of(plan)
    nodes = tuple(node.model_copy(update={"steps": 30, "algorithm": "own"}) for node in chain.nodes)
    estimator = estimator_of(chain.model_copy(update={"nodes": nodes, "estimates": estimates}))
    tune_source(estimator, 20.0)
    estimator.advance(FIRST, STARTING, 20.0)
    estimator.advance(FIRST, steps(0, 90), 42.5)
    assert estimated(estimator, 42.5).seconds_left == pytest.approx(90 * 90 / 40 + 90 + 30)
    estimator.advance(FIRST, steps(90, 90), 245.0)
    assert estimated(estimator, 245.0).seconds_left == pytest.approx(90 + 30)


def test_time_that_the_job_waits_for_others_is_expected_to_go_on(plan: BatchPlan) -> None:
    """A worker that serves another job half of the time."""
    estimator = estimator_of(chain_of(plan))
    estimator.advance(SOURCE, STARTING, 20.0)
    estimator.stop(SOURCE, 40.0)
    estimator.apply(source_result(20.0))
    estimator.advance(FIRST, STARTING, 130.0)
    estimator.stop(FIRST, 220.0)
    estimator.apply(adapted(0, 90.0))
    share, left = estimated(estimator, 220.0)
    assert left == pytest.approx(2 * 120, rel=0.1)
    assert share == pytest.approx(110 / 230)


def test_stages_without_steps_change_nothing(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    tune_source(estimator, 20.0)
    estimator.advance(FIRST, STARTING, 20.0)
    estimator.advance(FIRST, steps(45, 90), 65.0)
    before = estimated(estimator, 65.0)
    estimator.advance(FIRST, ProgressUpdate("waiting: the disk is full", 0, 0), 65.0)
    assert estimated(estimator, 65.0) == before


def test_the_share_never_falls_unless_goals_are_added(plan: BatchPlan) -> None:
    chain = chain_of(plan)
    node = chain.nodes[0].model_copy(update={"steps": 30})
    estimator = estimator_of(chain.model_copy(update={"nodes": (node,)}))
    tune_source(estimator, 20.0)
    share = estimated(estimator, 20.0).share
    estimator.advance(FIRST, STARTING, 20.0)
    estimator.advance(FIRST, steps(0, 900), 21.0)
    assert estimated(estimator, 21.0).share == share > 0
    estimator.grow([chain])
    assert estimated(estimator, 21.0).share < share


def test_nothing_is_left_of_goals_that_have_failed(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    estimator.apply(GoalsFailed(["b"], "because"))
    assert estimated(estimator, 0.0).seconds_left == pytest.approx(130.0)
    estimator.apply(GoalsFailed(["a"], "because"))
    assert estimated(estimator, 9.0) == (1.0, 0.0)


def test_the_source_is_measured_once_goals_have_packages(plan: BatchPlan) -> None:
    estimator = estimator_of(chain_of(plan))
    tune_source(estimator, 20.0)
    for goal in MET:
        estimator.apply(GoalChanged(goal))
    assert estimated(estimator, 20.0).seconds_left == pytest.approx(10.0)
    estimator.apply(ReferenceSaved(0, ReferenceResult(accuracy=0.5, tuned_accuracy=0.5, measured={})))
    assert estimated(estimator, 230.0) == (1.0, 0.0)


def test_a_restarted_job_continues_its_estimate(plan: BatchPlan) -> None:
    chain, root, first = chain_of(plan), source_result(30.0), adapted(0, 120.0)
    running = estimator_of(chain)
    tune_source(running, 30.0)
    running.advance(FIRST, STARTING, 30.0)
    running.stop(FIRST, 150.0)
    running.apply(first)
    running.apply(GoalChanged(MET[0]))
    state = BatchState(chain, root.result, {0: first.result})
    restarted = TimeLeftEstimator([state], [MET[0], GOALS[1]], 1, 150.0)
    running.advance(SECOND, STARTING, 150.0)
    restarted.advance(SECOND, STARTING, 150.0)
    assert estimated(restarted, 160.0) == estimated(running, 160.0)


def test_goals_on_two_paths_are_adapted_at_the_same_time(plan: BatchPlan) -> None:
    chain = chain_of(plan)
    split = chain.model_copy(
        update={"nodes": tuple(node.model_copy(update={"parent": None}) for node in chain.nodes)}
    )
    assert estimated(estimator_of(split, slots=2), 0.0) == (0.0, 130.0)


def test_added_goals_lengthen_a_job(plan: BatchPlan) -> None:
    chain = chain_of(plan)
    estimator = estimator_of(chain.model_copy(update={"nodes": chain.nodes[:1]}))
    assert estimated(estimator, 0.0) == (0.0, 130.0)
    estimator.grow([chain])
    assert estimated(estimator, 0.0) == (0.0, 230.0)


def test_without_expected_times_there_is_no_estimate(plan: BatchPlan) -> None:
    assert estimator_of(plan).estimate(5.0) is None


@pytest.mark.parametrize("name", recorded_progress())
def test_the_time_left_of_real_jobs_is_seldom_off_by_more_than_a_third(plan: BatchPlan, name: str) -> None:
    """From the first fifth of a job on; in its last tenth, seconds count more than shares.

    How often networks are tuned until they reach a target is hard to foresee.
    """
    recorded = RECORDED_PROGRESS.validate_json(recorded_progress()[name].read_bytes())
    errors = [
        abs(estimate.seconds_left / (recorded.seconds - at) - 1)
        for at, estimate in replayed(recorded, plan)
        if 0.2 * recorded.seconds <= at <= 0.9 * recorded.seconds
    ]
    within = sum(error <= 1 / 3 for error in errors) / len(errors)
    assert within >= (0.45 if name == "targets" else 0.85)
    assert median(errors) <= (0.4 if name == "targets" else 0.3)
