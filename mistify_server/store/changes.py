"""Changes of a job, a class for each kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mistify.jobs.details import LayerTable
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
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
    """A job to be kept, with the text it came from. No idempotency key is None."""

    job: Job
    plans: Sequence[BatchPlan]
    config_text: str
    idempotency_key: str | None


@dataclass(frozen=True)
class Addition:
    """Goals to be added to a job, the plans extended by them, and the text they came from."""

    goals: Sequence[Goal]
    plans: Sequence[BatchPlan]
    config_text: str
    idempotency_key: str | None


@dataclass(frozen=True)
class RootSaved:
    """The root of a batch's goal tree was made."""

    batch: int
    result: SourceResult


@dataclass(frozen=True)
class PreparationSaved:
    """An algorithm has prepared for goals of a batch; `name` is that of the preparation."""

    batch: int
    name: str
    result: PrepareResult


@dataclass(frozen=True)
class ReferenceSaved:
    """The source of a batch was measured as packages are."""

    batch: int
    result: ReferenceResult


@dataclass(frozen=True)
class CheckpointSaved:
    """A node was adapted; `record` is for predictions of later edges, None where nothing was trained."""

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
    """The layers of a goal's packaged network are known."""

    goal_id: str
    layers: LayerTable


@dataclass(frozen=True)
class GoalChanged:
    """A goal has changed; a new state becomes an event."""

    goal: Goal


@dataclass(frozen=True)
class GoalsFailed:
    """Goals that had not ended have failed, all for one reason; each state becomes an event."""

    goal_ids: Sequence[str]
    reason: str


@dataclass(frozen=True)
class JobChanged:
    """A job came to a state, which becomes an event."""

    state: JobState
    reason: str = ""


@dataclass(frozen=True)
class Advanced:
    """The work on a goal, or on the source (`goal_id` None), has advanced, which becomes an event.

    For a goal in training, it also becomes a point of its curve.
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
    | GoalChanged
    | GoalsFailed
    | JobChanged
    | Advanced
)
