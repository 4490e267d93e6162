"""Stored training curves and layers of goals, bounded however long they train."""

from itertools import pairwise
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import LayerChange, LayerFigures, LayerTable
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.changes import Advanced, GraphSaved, JobChanged, LayersSaved, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.plans import BatchPlan
from mistify_server.store.sql.details import MOST_POINTS

GOALS = tuple(Goal(id=name, batch=0, spec=PackageSpec({"flops": 1.0})) for name in "ab")
LAYERS = LayerTable(
    "host", (LayerChange("stem", "Conv2D", ("stem",), LayerFigures(16, 160, 9_216, 0.25), None),)
)

GRAPH = NetworkGraph(
    "main",
    "host",
    (
        GraphNode(INPUT, None, "image", (), (1, 4), "FLOAT32", 16, error=0.0),
        GraphNode("FULLY_CONNECTED", 0, "head", (0,), (1, 2), "INT8", 2, "INT8", 10, 16, 8, 0.25, 0.03, "y"),
        GraphNode("WHILE", 1, "", (1,), (), "INT8", 0, multiply_adds=None),
    ),
    64,
)


def update(step: int, accuracy: float | None = None, **figures: object) -> ProgressUpdate:
    return ProgressUpdate("tuning", step, 9, {"flops": 5.0}, accuracy, loss=1 / (step + 1), **figures)  # type: ignore[arg-type]


@pytest.fixture
def jobs(store: Store, plan: BatchPlan) -> Store:
    store.jobs.create(Submission(Job("j", JobState.QUEUED, GOALS, created_unix_ms=0), [plan], "[]", None))
    return store


def advance(store: Store, step: int, accuracy: float | None = None, goal_id: str | None = "a") -> None:
    store.jobs.record("j", [Advanced(goal_id, update(step, accuracy))], 0.0, {})


@pytest.mark.parametrize("count", [1, MOST_POINTS, MOST_POINTS + 1, 5 * MOST_POINTS + 3])
def test_a_curve_is_thinned_evenly(jobs: Store, count: int) -> None:
    for step in range(count):
        advance(jobs, step)
    steps = [point.step for point in jobs.jobs.details("j", "a").curve]
    assert (steps[0], steps[-1]) == (0, count - 1)
    assert min(count, MOST_POINTS // 2) <= len(steps) <= MOST_POINTS + 1
    apart = {later - earlier for earlier, later in pairwise(steps[:-1])}
    assert len(apart) <= 1
    assert count > MOST_POINTS or len(steps) == count


def test_accuracies_are_not_thinned_together_with_losses(jobs: Store) -> None:
    """Only every third of many points has an accuracy; these are too few to be thinned."""
    for step in range(2 * MOST_POINTS):
        advance(jobs, step, 0.5 if step % 3 == 2 else None)
    curve = jobs.jobs.details("j", "a").curve
    assert [point.step for point in curve] == sorted(point.step for point in curve)
    measured = [point.step for point in curve if point.accuracy is not None]
    assert measured == list(range(2, 2 * MOST_POINTS, 3))
    assert len(curve) - len(measured) <= MOST_POINTS + 1


def test_points_of_several_goals_in_one_change_are_kept_separately(jobs: Store) -> None:
    both = [Advanced(goal, update(step)) for step in range(3) for goal in ("a", "b")]
    jobs.jobs.record("j", both[:5], 0.0, {})
    jobs.jobs.record("j", both[5:], 0.0, {})
    for goal in ("a", "b"):
        assert [point.step for point in jobs.jobs.details("j", goal).curve] == [0, 1, 2]


def test_a_point_is_stored_without_the_costs_of_the_update(jobs: Store) -> None:
    kept = update(3, 0.75, relative_costs={"flops": 1.5}, structure_loss_weights={"flops": 1.0})
    packaging, source = ProgressUpdate("packaging", 0, 1, {"flops": 5.0}, 0.5), update(1)
    changes = [Advanced("a", kept), Advanced("a", packaging), Advanced(None, source)]
    jobs.jobs.record("j", changes, 0.0, {})
    details = jobs.jobs.details("j", "a")
    expected = update(3, 0.75, relative_costs={"flops": 1.5}, structure_loss_weights={"flops": 1.0})
    assert details.curve == (ProgressUpdate(**{**vars(expected), "costs": {}}),)
    assert details.sequence == jobs.jobs.events("j", 0, 99)[-1].sequence


def test_curves_layers_and_operators_survive_a_restart(plan: BatchPlan, directory: Path) -> None:
    with open_store(directory) as store:
        store.jobs.create(Submission(Job("j", JobState.QUEUED, GOALS, created_unix_ms=0), [plan], "[]", None))
        assert (store.jobs.details("j", "a").layers, store.jobs.details("j", "a").graph) == (None, None)
        for step in range(3):
            advance(store, step)
        for layers in (LayerTable("host", ()), LAYERS):  # a goal may be packaged more than once
            store.jobs.record("j", [LayersSaved("a", layers)], 0.0, {})
        for graph in (NetworkGraph("other", "host", ()), GRAPH):
            store.jobs.record("j", [GraphSaved("a", graph)], 0.0, {})
        before = store.jobs.details("j", "a")
    with open_store(directory) as store:
        after = store.jobs.details("j", "a")
        assert (after, after.layers, after.graph, len(after.curve)) == (before, LAYERS, GRAPH, 3)
        advance(store, 3)
        assert [point.step for point in store.jobs.details("j", "a").curve] == [0, 1, 2, 3]
        assert store.jobs.details("j", "b").curve == ()


def test_details_are_removed_with_their_job(jobs: Store) -> None:
    advance(jobs, 0)
    jobs.jobs.record(
        "j", [LayersSaved("a", LAYERS), GraphSaved("a", GRAPH), JobChanged(JobState.DONE)], 0.0, {}
    )
    jobs.jobs.remove("j")
    with pytest.raises(MistifyError, match='no job "j"'):
        jobs.jobs.details("j", "a")


@pytest.mark.parametrize(("job", "goal"), [("j", "c"), ("k", "a")])
def test_unknown_jobs_and_goals_have_no_details(jobs: Store, job: str, goal: str) -> None:
    with pytest.raises(MistifyError) as raised:
        jobs.jobs.details(job, goal)
    assert raised.value.code is ErrorCode.NOT_FOUND
