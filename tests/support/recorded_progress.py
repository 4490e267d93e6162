"""The recorded progress of real jobs: their plans, and what their servers learned of them, and when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from executors.contract.profile import AlgorithmProfile
from mistify.jobs.job import Goal, GoalState, PackageFile, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.jobs.time_left import Part, TimeLeft, TimeLeftEstimator, Work
from mistify_server.store.changes import (
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    PreparationSaved,
    ReferenceSaved,
    RootSaved,
)
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.tasks.results import AdaptResult, PrepareResult, ReferenceResult, SourceResult

_FILES: Final = (PackageFile("serve.tflite", 1, "0" * 64),)


@dataclass(frozen=True)
class RecordedNode:
    """The planned work on a node of a goal tree."""

    index: int
    parent: int | None
    goals: tuple[str, ...]
    algorithm: str
    overhead: int
    steps: int
    seconds: float
    packaging_seconds: float


@dataclass(frozen=True)
class RecordedBatch:
    """The planned work on a batch."""

    number: int
    source_seconds: float
    preparing_seconds: Mapping[str, float]
    nodes: tuple[RecordedNode, ...]


@dataclass(frozen=True)
class ProgressEvent:
    """A change in a job: `step` of `total` of a part, the end of its task, or its result.

    Attributes:
        at: Seconds since the job began.
        kind: `step` in a stage, `stop`, `result` with its seconds, `goal` for a goal that has ended, in
            which case `work` is empty, and `total` tells whether it has a package.
    """

    at: float
    kind: str
    batch: int
    work: Work | str
    name: int | str = ""
    step: float = 0
    total: int = 0
    stage: str = ""


@dataclass(frozen=True)
class RecordedProgress:
    """The progress of a job that took `seconds`, with `slots` tasks at a time."""

    about: str
    slots: int
    seconds: float
    batches: tuple[RecordedBatch, ...]
    events: tuple[ProgressEvent, ...]


RECORDED_PROGRESS: Final = TypeAdapter(RecordedProgress)


def recorded_progress() -> dict[str, Path]:
    """Return the files of all records by name."""
    directory = Path(__file__).parents[1] / "data" / "job_progress"
    return {path.stem: path for path in sorted(directory.glob("*.json"))}


def replayed(recorded: RecordedProgress, plan: BatchPlan) -> Iterator[tuple[float, TimeLeft]]:
    """Yield the estimates during a job, each with its time.

    Args:
        plan: A plan for everything that is not recorded.
    """
    states = [BatchState(_plan(batch, plan), None, {}) for batch in recorded.batches]
    goals = [
        Goal(goal_id, batch.number, PackageSpec({}))
        for batch in recorded.batches
        for node in batch.nodes
        for goal_id in node.goals
    ]
    estimator = TimeLeftEstimator(states, goals, recorded.slots)
    for event in recorded.events:
        if event.kind == "step":
            update = ProgressUpdate(event.stage, int(event.step), event.total)
            estimator.advance(_part(event), update, event.at)
            estimated = estimator.estimate(event.at)
            assert estimated is not None
            yield event.at, estimated
        elif event.kind == "stop":
            estimator.stop(_part(event), event.at)
        else:
            estimator.apply(_change(event))


def recorded_batch(plan: BatchPlan) -> RecordedBatch:
    """Return the work that a plan has."""
    profiles = plan.estimates.profiles if plan.estimates else {}
    nodes = (
        RecordedNode(
            node.index,
            node.parent,
            node.goals,
            plan.preparation_of(node),
            profiles[node.algorithm].edge_overhead if node.algorithm in profiles else 0,
            node.steps,
            node.seconds,
            node.packaging_seconds,
        )
        for node in plan.nodes
    )
    return RecordedBatch(plan.number, plan.source_seconds, plan.preparing_seconds, tuple(nodes))


def change_events(change: Change, at: float, batch_of: Mapping[str, int]) -> Sequence[ProgressEvent]:
    """Return what a change says about the progress of a job."""
    events: list[ProgressEvent] = []
    match change:
        case RootSaved(batch, result):
            events = [ProgressEvent(at, "result", batch, "source", step=result.seconds)]
        case PreparationSaved(batch, name, prepared):
            events = [ProgressEvent(at, "result", batch, "preparation", name, prepared.seconds)]
        case CheckpointSaved(batch, node, adapted, _):
            events = [ProgressEvent(at, "result", batch, "adaptation", node, adapted.seconds)]
        case ReferenceSaved(batch, reference):
            events = [ProgressEvent(at, "result", batch, "packaging", step=reference.seconds)]
        case GoalChanged(goal) if goal.state.ended:
            events = [ProgressEvent(at, "goal", batch_of[goal.id], "", goal.id, total=int(bool(goal.files)))]
        case GoalsFailed(goal_ids, _):
            events = [ProgressEvent(at, "goal", batch_of[goal_id], "", goal_id) for goal_id in goal_ids]
    return events


def _part(event: ProgressEvent) -> Part:
    return Part(event.batch, event.work, event.name)  # type: ignore[arg-type]


def _plan(batch: RecordedBatch, like: BatchPlan) -> BatchPlan:
    profiles = {
        node.algorithm: AlgorithmProfile(
            edge_overhead=node.overhead, adaptation=(0,), tune_steps=0, max_steps=0
        )
        for node in batch.nodes
    }
    features = NetworkFeatures(model="", kind="convolutional", blocks=0)
    nodes = tuple(
        like.nodes[0].model_copy(
            update={
                "index": node.index,
                "parent": node.parent,
                "goals": node.goals,
                "algorithm": node.algorithm,
                "steps": node.steps,
                "seconds": node.seconds,
                "packaging_seconds": node.packaging_seconds,
            }
        )
        for node in batch.nodes
    )
    return like.model_copy(
        update={
            "number": batch.number,
            "source_seconds": batch.source_seconds,
            "preparing_seconds": dict(batch.preparing_seconds),
            "nodes": nodes,
            "estimates": EdgeEstimates(features=features, source_steps=0, profiles=profiles, scaled=()),
        }
    )


def _change(event: ProgressEvent) -> Change:
    batch, spent = event.batch, {"training": event.step}
    common: dict[str, Any] = {"spent": spent, "steps": 0}
    match event.work:
        case "source":
            costs: dict[str, Any] = {"source_costs": {}, "root_costs": {}, "teacher": "", "root": ""}
            return RootSaved(
                batch, SourceResult(source_accuracy=0.0, teacher_accuracy=0.0, **costs, **common)
            )
        case "preparation":
            return PreparationSaved(batch, str(event.name), PrepareResult(prepared=None, **common))
        case "adaptation":
            adapted = AdaptResult(checkpoint="", costs={}, accuracy=0.0, met=True, reason="", **common)
            return CheckpointSaved(batch, int(event.name), adapted)
        case "packaging":
            return ReferenceSaved(
                batch, ReferenceResult(accuracy=None, tuned_accuracy=None, measured={}, spent=spent)
            )
    state, files = (GoalState.MET, _FILES) if event.total else (GoalState.FAILED, ())
    return GoalChanged(Goal(str(event.name), batch, PackageSpec({}), state=state, files=files))
