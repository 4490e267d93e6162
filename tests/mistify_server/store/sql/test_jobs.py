from dataclasses import replace
from pathlib import Path

import pytest

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.catalogue import HOST
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import (
    BranchFigures,
    Goal,
    GoalState,
    Job,
    JobState,
    PackageFile,
    ProgressUpdate,
    Source,
)
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.changes import (
    Addition,
    Advanced,
    CheckpointSaved,
    GoalChanged,
    JobChanged,
    PreparationSaved,
    ReferenceSaved,
    RootSaved,
    Submission,
)
from mistify_server.store.directory import Store, open_store, serving
from mistify_server.store.edges import EdgeFeatures, EdgeRecord
from mistify_server.store.jobs import JobOrigin
from mistify_server.store.models import NamedModel
from mistify_server.store.plans import BatchInputs, BatchPlan, BatchState, NodePlan
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.results import AdaptResult, PrepareResult, ReferenceResult, SourceResult
from mistify_server.tasks.sources import DataSource, ModelSource
from tests.support.stored import jobs_in, unfinished
from tests.support.targets import overall

NODE = NodePlan(index=0, parent=None, budget={"flops": 5.0}, targets=overall(0.5), seed=1, goals=("a", "b"))
PLAN = BatchPlan(
    number=0,
    model_name="digits-resnet",
    dataset=DatasetConfig(train="builtin:digits-train", test="builtin:digits-test"),
    recipe=Recipe(
        model=ModelSource(builtin="digits-resnet"),
        data=DataSource(train="builtin:digits-train", test="builtin:digits-test"),
        algorithm="morphnet",
        settings={"threshold": 0.1, "nested": [1, {"x": None}]},
        hardware={"host": HOST},
        seed=7,
    ),
    source_costs={"flops": 10.0},
    floor={"flops": 1.0},
    exceed={},
    nodes=(NODE,),
)
ROOT = SourceResult(
    source_costs={"flops": 10.0},
    source_accuracy=0.9,
    teacher="t",
    teacher_accuracy=0.9,
    root="r",
    root_costs={"flops": 10.0},
    steps=1,
    spent={"training": 1.5, "other": 0.5},
)
ADAPTED = AdaptResult(
    checkpoint="c", costs={"flops": 4.0}, accuracy=0.8, met=True, reason="", steps=3, spent={"training": 4.0}
)
SCORES = (OutputScore("y", Metric.ACCURACY, 0.85),)
TUNED_SCORES = (OutputScore("y", Metric.ACCURACY, 0.86),)
REFERENCE = ReferenceResult(
    accuracy=0.85,
    tuned_accuracy=0.86,
    output_scores=SCORES,
    tuned_output_scores=TUNED_SCORES,
    measured={"latency_ms@host": 1.5},
)
PREPARED = PrepareResult(prepared=64 * "b" + ".prepared", steps=30)
SOURCE = Source(
    {"flops": 10.0},
    0.85,
    model=PLAN.model_name,
    tuned_accuracy=0.86,
    output_scores=SCORES,
    tuned_output_scores=TUNED_SCORES,
    measured={"latency_ms@host": 1.5},
    steps=ROOT.steps,
    preparing_steps={"nested": 30},
)
GOALS = (
    Goal(id="b", batch=0, spec=PackageSpec({"flops": 5.0})),
    Goal(id="a", batch=0, spec=PackageSpec({"flops": 5.0}), parent="b"),
)


def submission(job_id: str, key: str | None = None, text: str = "[]") -> Submission:
    return Submission(Job(job_id, JobState.QUEUED, GOALS, created_unix_ms=5), [PLAN], text, key)


def test_a_job_survives_storage(store: Store) -> None:
    kept = submission("j")
    assert store.jobs.create(kept) == kept.job
    assert store.jobs.job("j") == kept.job
    assert store.jobs.batches("j") == [BatchState(PLAN, None, {})]
    recipe = PLAN.recipe
    inputs = BatchInputs(PLAN.model_name, PLAN.dataset, recipe.algorithm, recipe.settings)
    assert store.jobs.inputs("j") == [inputs]


def record(subject: str, kind: str, lost: float) -> EdgeRecord:
    case = EdgeFeatures(
        subject=subject, kind=kind, algorithm="m", halvings=1.0, distance=1.0, share=1.0, steps=100
    )
    return EdgeRecord(case=case, source_steps=200, source=0.9, lost=lost, seconds=2.0)


def test_edges_of_the_same_model_are_listed_before_those_of_its_kind(store: Store) -> None:
    seen = [
        record("other", "dense", 0.1),
        record("own", "dense", 0.2),
        record("alien", "transformer", 0.3),
        record("other", "dense", 0.4),
        record("own", "dense", 0.5),
    ]
    for number, edge in enumerate(seen):
        store.jobs.create(submission(f"j{number}"))
        store.jobs.record(f"j{number}", [CheckpointSaved(0, 0, ADAPTED, edge)], 1.0, {})
    store.jobs.create(submission("without"))
    store.jobs.record("without", [CheckpointSaved(0, 0, ADAPTED)], 1.0, {})

    def lost(limit: int, subject: str = "own") -> list[float]:
        return [actual.lost for actual in store.jobs.edges(subject, "dense", limit)]

    assert store.jobs.edges("own", "dense", 9) == [seen[0], seen[1], seen[3], seen[4]]
    assert lost(3) == [0.2, 0.4, 0.5]
    assert lost(1) == [0.5]
    assert lost(9, "new") == [0.1, 0.2, 0.4, 0.5]
    assert store.jobs.edges("alien", "transformer", 9) == [seen[2]]


def test_changes_are_stored_with_their_events(store: Store) -> None:
    store.jobs.create(submission("j"))
    met = replace(
        GOALS[1],
        state=GoalState.MET,
        achieved={"flops": 4.0},
        accuracy=0.8,
        seconds=4.0,
        steps=3,
        files=(PackageFile("m", 1, "x"), PackageFile("s", 2, "y")),
        branch_figures=(
            BranchFigures(0.5, {"flops": 2.0}, {"latency_ms@host": 0.1}, 0.7),
            BranchFigures(1.0, {"flops": 4.0}, {"latency_ms@host": 0.2}, 0.8),
        ),
    )
    update = ProgressUpdate("adapting", 1, 2, {"flops": 4.0}, 0.5)
    root = [
        JobChanged(JobState.RUNNING),
        RootSaved(0, ROOT),
        PreparationSaved(0, "nested", PREPARED),
        Advanced(None, update),
    ]
    store.jobs.record("j", root, 1.0, {"training": 1.5, "other": 0.5})
    adapted = [CheckpointSaved(0, 0, ADAPTED), Advanced("a", update), GoalChanged(met)]
    store.jobs.record("j", adapted, 2.0, {"training": 5.5, "other": 0.5})
    spent = {"training": 5.5, "other": 0.5, "waiting": 0.25}
    assert store.jobs.job("j").sources[0] == Source(
        {"flops": 10.0}, model=PLAN.model_name, steps=ROOT.steps, preparing_steps={"nested": 30}
    )
    store.jobs.record(
        "j", [GoalChanged(met), ReferenceSaved(0, REFERENCE), JobChanged(JobState.DONE)], 3.0, spent
    )
    assert store.jobs.batches("j") == [
        BatchState(PLAN, ROOT, {0: ADAPTED}, reference=REFERENCE, preparations={"nested": PREPARED})
    ]
    assert store.jobs.job("j") == Job(
        "j", JobState.DONE, (GOALS[0], met), 5, sources=(SOURCE,), seconds=3.0, spent=spent
    )
    events = store.jobs.events("j", 0, 100)
    assert [(event.sequence, event.goal_id, event.event) for event in events] == [
        (1, None, JobState.QUEUED),
        (2, None, JobState.RUNNING),
        (3, None, update),
        (4, "a", update),
        (5, "a", GoalState.MET),
        (6, None, JobState.DONE),
    ]
    assert store.jobs.events("j", 2, 2) == events[2:4]


def test_each_batch_with_a_completed_root_has_a_source(store: Store) -> None:
    other = PLAN.model_copy(
        update={"number": 1, "model_name": "other.keras", "source_costs": {"flops": 30.0}}
    )
    first = submission("j")
    store.jobs.create(replace(first, plans=[*first.plans, other]))
    assert store.jobs.job("j").sources == ()
    store.jobs.record("j", [RootSaved(1, ROOT.model_copy(update={"source_costs": {"flops": 30.0}}))], 1.0, {})
    assert [(each.batch, each.model, each.costs) for each in store.jobs.job("j").sources] == [
        (1, "other.keras", {"flops": 30.0})
    ]
    store.jobs.record("j", [RootSaved(0, ROOT)], 1.0, {})
    assert [each.batch for each in store.jobs.job("j").sources] == [0, 1]


def test_changes_are_atomic(store: Store) -> None:
    store.jobs.create(submission("j"))
    stranger = GoalChanged(replace(GOALS[0], id="stranger"))
    with pytest.raises(Exception, match="No row"):
        store.jobs.record("j", [JobChanged(JobState.RUNNING), stranger], 1.0, {})
    assert not store.jobs.ended("j")
    assert store.jobs.job("j").state is JobState.QUEUED
    assert len(store.jobs.events("j", 0, 100)) == 1


def test_a_job_is_paused_and_resumed_with_one_event_each(store: Store) -> None:
    store.jobs.create(submission("j"))
    for paused, changed in ((False, False), (True, True), (True, False), (False, True)):
        assert store.jobs.set_paused("j", paused=paused) is changed
    assert [event.event for event in store.jobs.events("j", 0, 9)] == [
        JobState.QUEUED,
        JobState.PAUSED,
        JobState.RUNNING,
    ]
    store.jobs.set_paused("j", paused=True)
    assert unfinished(store) == ["j"]
    store.jobs.end("j", JobChanged(JobState.CANCELLED))
    assert not store.jobs.set_paused("j", paused=False)
    assert store.jobs.job("j").state is JobState.CANCELLED


def test_a_key_identifies_one_job(store: Store) -> None:
    store.jobs.create(submission("j", "key"))
    assert store.jobs.create(submission("other", "key")).id == "j"
    actual = store.jobs.find("key", "[]")
    assert actual is not None
    assert actual.id == "j"
    assert store.jobs.find("unknown", "[]") is None
    for conflicting in (
        lambda: store.jobs.find("key", "[{}]"),
        lambda: store.jobs.create(submission("other", "key", "[{}]")),
    ):
        with pytest.raises(MistifyError) as raised:
            conflicting()
        assert raised.value.code is ErrorCode.CONFLICT
    assert [job.id for job in jobs_in(store, 10)] == ["j"]


def test_the_origin_of_a_job_is_the_call_that_queued_it_last(store: Store) -> None:
    store.jobs.create(replace(submission("j"), traceparent="one"))
    (queued,) = store.jobs.events("j", 0, 1)
    assert store.jobs.origin("j") == JobOrigin("one", queued.unix_ms)
    later = Goal(id="0", batch=0, spec=PackageSpec({"flops": 2.0}))
    store.jobs.add_goals("j", Addition([later], [], "[0]", None, "two"))
    assert store.jobs.origin("j") == JobOrigin("one", queued.unix_ms)
    store.jobs.record("j", [JobChanged(JobState.DONE)], 3.0, {})
    store.jobs.add_goals("j", Addition([replace(later, id="1")], [], "[1]", None, "three"))
    again = [event for event in store.jobs.events("j", 2, 100) if event.event is JobState.QUEUED]
    assert store.jobs.origin("j") == JobOrigin("three", again[-1].unix_ms)


def test_added_goals_follow_the_others_with_their_plans(store: Store) -> None:
    store.jobs.create(submission("j"))
    store.jobs.record("j", [RootSaved(0, ROOT), JobChanged(JobState.FAILED, "why")], 3.0, {"failed": 3.0})
    later = Goal(id="0", batch=0, spec=PackageSpec({"flops": 2.0}, targets=overall(0.5)), parent="a")
    costs = {"flops": 10.0, "latency_ms@t4": 2.0}
    node = NODE.model_copy(update={"index": 1, "parent": 0, "goals": ("0",)})
    grown = PLAN.model_copy(update={"nodes": (NODE, node), "source_costs": costs})
    store.jobs.add_goals("j", Addition([later], [grown], "[0]", "key"))
    assert store.jobs.batches("j") == [BatchState(grown, ROOT, {})]
    assert store.jobs.job("j") == Job(
        "j",
        JobState.QUEUED,
        (*GOALS, later),
        5,
        sources=(Source(costs, model=PLAN.model_name, steps=ROOT.steps),),
        seconds=3.0,
        spent={"failed": 3.0},
    )
    assert unfinished(store) == ["j"]
    store.jobs.add_goals("j", Addition([replace(later, id="1")], [], "[1]", None))
    assert [(event.goal_id, event.event) for event in store.jobs.events("j", 2, 100)] == [
        (None, JobState.QUEUED),
        ("0", GoalState.WAITING),
        ("1", GoalState.WAITING),
    ]
    assert [goal.id for goal in store.jobs.job("j").goals] == ["b", "a", "0", "1"]


def test_adding_goals_is_atomic(store: Store) -> None:
    store.jobs.create(submission("j"))
    stranger = PLAN.model_copy(update={"number": 9})
    with pytest.raises(Exception, match="No row"):
        store.jobs.add_goals("j", Addition([replace(GOALS[0], id="c")], [stranger], "[]", "key"))
    assert store.jobs.job("j").goals == GOALS
    assert not store.jobs.added("j", "key", "[]")
    assert len(store.jobs.events("j", 0, 100)) == 1


def test_a_key_adds_goals_to_a_job_once(store: Store) -> None:
    for name in "jk":
        store.jobs.create(submission(name, name))
    store.jobs.add_goals("j", Addition([replace(GOALS[0], id="c")], [PLAN], "[c]", "key"))
    store.jobs.add_goals("j", Addition([replace(GOALS[0], id="d")], [PLAN], "[d]", None))
    store.jobs.add_goals("j", Addition([replace(GOALS[0], id="e")], [PLAN], "[e]", None))
    assert store.jobs.added("j", "key", "[c]")
    assert not store.jobs.added("j", "j", "[c]")
    assert not store.jobs.added("k", "key", "anything")
    with pytest.raises(MistifyError) as raised:
        store.jobs.added("j", "key", "[d]")
    assert raised.value.code is ErrorCode.CONFLICT


def test_jobs_are_listed_newest_first(store: Store) -> None:
    for name in "abc":
        store.jobs.create(submission(name))
    store.jobs.record("b", [JobChanged(JobState.FAILED, "why")], 0.0, {})
    assert [job.id for job in jobs_in(store, 2)] == ["c", "b"]
    assert [part.job.id for part in store.jobs.page(2, 9, before="b").jobs] == ["a"]
    assert unfinished(store) == ["a", "c"]
    assert store.jobs.job("b").reason == "why"


@pytest.mark.parametrize("ask", ["job", "batches", "with_batches"])
def test_an_unknown_job_is_not_found(store: Store, ask: str) -> None:
    with pytest.raises(MistifyError) as raised:
        getattr(store.jobs, ask)("nowhere")
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_goals_cannot_be_added_to_an_unknown_job(store: Store) -> None:
    for ask in (
        lambda: store.jobs.added("nowhere", "key", "[]"),
        lambda: store.jobs.origin("nowhere"),
        lambda: store.jobs.add_goals("nowhere", Addition([], [], "[]", None)),
    ):
        with pytest.raises(MistifyError) as raised:
            ask()
        assert raised.value.code is ErrorCode.NOT_FOUND


def test_a_store_survives_being_closed_and_reopened(directory: Path) -> None:
    with open_store(directory) as first:
        first.jobs.create(submission("j"))
        first.models.add(NamedModel("Resnet", "artifact", "file.h5"))
    with open_store(directory) as second:
        assert second.jobs.job("j").goals == GOALS
        assert second.models.find("RESNET") == NamedModel("Resnet", "artifact", "file.h5")


def test_model_names_differ_by_more_than_case(store: Store) -> None:
    store.models.add(NamedModel("Resnet", "x", "f"))
    with pytest.raises(MistifyError) as raised:
        store.models.add(NamedModel("resnet", "y", "f"))
    assert raised.value.code is ErrorCode.CONFLICT
    store.models.remove("rESNET")
    assert store.models.all() == []
    with pytest.raises(MistifyError) as raised:
        store.models.remove("resnet")
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_only_one_server_can_use_a_store(directory: Path) -> None:
    with serving(directory):
        with pytest.raises(MistifyError, match="another server") as raised, serving(directory):
            pass
        assert raised.value.code is ErrorCode.UNAVAILABLE
    with serving(directory):
        pass
