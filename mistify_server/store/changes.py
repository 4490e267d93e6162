"""Changes to a job, one class per kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mistify.jobs.details import LayerTable
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify.jobs.network_graph import NetworkGraph
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.results import (
    AdaptResult,
    BranchResult,
    PrepareResult,
    ReferenceResult,
    SourceResult,
)


@dataclass(frozen=True)
class Submission:
    """A new job with its original config text. Without an idempotency key, the key is None.

    `traceparent` is the position of the call in a trace; empty if it is not traced.
    """

    job: Job
    plans: Sequence[BatchPlan]
    config_text: str
    idempotency_key: str | None
    traceparent: str = ""


@dataclass(frozen=True)
class Addition:
    """Goals to add to a job, the extended plans, and the original config text.

    `traceparent` is as in `Submission`.
    """

    goals: Sequence[Goal]
    plans: Sequence[BatchPlan]
    config_text: str
    idempotency_key: str | None
    traceparent: str = ""


@dataclass(frozen=True)
class RootSaved:
    """The root of a batch's goal tree is ready."""

    batch: int
    result: SourceResult


@dataclass(frozen=True)
class PreparationSaved:
    """The preparation `name` for the goals of a batch is ready (`BatchPlan.preparation_of`)."""

    batch: int
    name: str
    result: PrepareResult


@dataclass(frozen=True)
class ReferenceSaved:
    """The source of a batch has been measured in the same way as packages."""

    batch: int
    result: ReferenceResult


@dataclass(frozen=True)
class CheckpointSaved:
    """A node was adapted. `record` is for predicting later edges; None if nothing was trained."""

    batch: int
    node: int
    result: AdaptResult
    record: EdgeRecord | None = None


@dataclass(frozen=True)
class BranchesSaved:
    """The branches of a goal's package were adapted."""

    goal_id: str
    result: BranchResult


@dataclass(frozen=True)
class LayersSaved:
    """The layers of a goal's packaged network have been listed."""

    goal_id: str
    layers: LayerTable


@dataclass(frozen=True)
class GraphSaved:
    """The operators of a goal's packaged network have been listed."""

    goal_id: str
    graph: NetworkGraph


@dataclass(frozen=True)
class GoalChanged:
    """A goal has changed; a new state creates an event."""

    goal: Goal


@dataclass(frozen=True)
class GoalsFailed:
    """Unfinished goals have failed, all for one reason; each creates an event."""

    goal_ids: Sequence[str]
    reason: str


@dataclass(frozen=True)
class JobChanged:
    """A job has entered a state, which creates an event."""

    state: JobState
    reason: str = ""


@dataclass(frozen=True)
class Advanced:
    """Progress on a goal, or on the source (`goal_id` is None), which creates an event.

    For a goal in training, it also adds a point to the training curve.
    """

    goal_id: str | None
    update: ProgressUpdate


Change: TypeAlias = (
    RootSaved
    | PreparationSaved
    | ReferenceSaved
    | CheckpointSaved
    | BranchesSaved
    | LayersSaved
    | GraphSaved
    | GoalChanged
    | GoalsFailed
    | JobChanged
    | Advanced
)
