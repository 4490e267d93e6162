"""What a store keeps, and how it is asked."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mistify.config.porting import DatasetConfig
from mistify.costs.profiles import Profile
from mistify.jobs.job import Goal, Job, JobEvent, JobState, ProgressUpdate
from mistify_server.forecast.cases import EdgeRecord
from mistify_server.forecast.known import Prospects
from mistify_server.messages import Message
from mistify_server.tasks import AdaptResult, BranchResult, DataSource, ModelSource, SourceResult


class NodePlan(Message):
    """A node of a goal tree, named by its index: one budget, with all the goals that have set it.

    `accuracy_target` is the largest of its goals'; `parent` is None for a child of the source. `algorithm`
    leads there from the parent, for the reason that `choice` gives; it is empty while none is chosen, and
    where nothing can be adapted.
    """

    index: int
    parent: int | None
    budget: dict[str, float]
    accuracy_target: float | None
    seed: int
    goals: tuple[str, ...]
    algorithm: str = ""
    choice: str = ""


class BatchPlan(Message):
    """A collective batch as it was settled at submission; later only its tree and its hardware grow.

    `model_name` and `dataset` are what configs call `model` and `data`. `source_costs` and `floor`, the
    least that the network can become, cover every axis of `hardware`; `inputs` are its, by name. It is
    `adaptable` unless it is a graph without Keras structure, and then has no `prospects`. `exceed` are the
    costs that the widened source has to reach; `nodes` come parents first. `algorithm` may be `auto`: each
    node has its own.
    """

    number: int
    model_name: str
    dataset: DatasetConfig
    model: ModelSource
    data: DataSource
    algorithm: str
    algorithm_config: dict[str, object]
    hardware: dict[str, Profile]
    source_costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    adaptable: bool = True
    prospects: Prospects | None = None
    exceed: dict[str, float]
    seed: int
    nodes: tuple[NodePlan, ...]


@dataclass(frozen=True)
class BatchState:
    """A collective batch and what has been made of it.

    Attributes:
        plan: What was settled at submission.
        root: The root of its goal tree.
        checkpoints: By node index.
        branches: Of multi-branch packages, by goal.
    """

    plan: BatchPlan
    root: SourceResult | None
    checkpoints: Mapping[int, AdaptResult]
    branches: Mapping[str, BranchResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Submission:
    """A job to be kept, with the text it came from. No idempotency key is None."""

    job: Job
    plans: Sequence[BatchPlan]
    config_text: str
    idempotency_key: str | None


@dataclass(frozen=True)
class Addition:
    """Goals to be added to a job, the plans that have grown by them, and the text they came from."""

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
class CheckpointSaved:
    """A node was adapted; `record` is what that teaches about edges to come, None where it is nothing."""

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
class GoalChanged:
    """A goal stands as given here; an event tells of a new state."""

    goal: Goal


@dataclass(frozen=True)
class JobChanged:
    """A job came to a state; an event tells of it."""

    state: JobState
    reason: str = ""


@dataclass(frozen=True)
class Advanced:
    """The work on a goal, or on the source (`goal_id` None), went on; an event tells of it."""

    goal_id: str | None
    update: ProgressUpdate


Change: TypeAlias = RootSaved | CheckpointSaved | BranchesSaved | GoalChanged | JobChanged | Advanced


class JobStore(ABC):
    """Keeps jobs, their checkpoints and their events.

    Every method is one transaction; what a writing method has done when it returns survives a crash of
    the machine. Calls take milliseconds. All of them raise `MistifyError` NOT_FOUND where there is no
    such job, and UNAVAILABLE where the disk is full, read-only or broken.
    """

    @abstractmethod
    def create(self, submission: Submission) -> Job:
        """Keep a new job and its first event; the job already kept where the idempotency key is known.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        """The job that was submitted under a key, None if there is none.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def add_goals(self, job_id: str, addition: Addition) -> None:
        """Keep goals that a job does not have yet; a job that has ended is queued again.

        Events tell of every goal, and of the job that is queued.
        """

    @abstractmethod
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        """Whether goals were added to a job under a key; keys of different jobs have nothing in common.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text.
        """

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """A job as it stands."""

    @abstractmethod
    def ended(self, job_id: str) -> bool:
        """Whether a job has ended."""

    @abstractmethod
    def jobs(self, limit: int) -> list[Job]:
        """Up to `limit` jobs, the newest first."""

    @abstractmethod
    def page(self, limit: int, most_goals: int, before: str | None = None) -> tuple[list[Job], bool]:
        """Some jobs, the newest first, and whether there are older ones. No others are read.

        Args:
            limit: the most jobs.
            most_goals: that they have together, unless the first alone has more.
            before: only jobs that were submitted before this one.
        """

    @abstractmethod
    def unfinished(self) -> list[str]:
        """The ids of the jobs that have not ended, the oldest first."""

    @abstractmethod
    def batches(self, job_id: str) -> list[BatchState]:
        """A job's collective batches with what has been made of them."""

    @abstractmethod
    def record(
        self, job_id: str, changes: Iterable[Change], seconds: float, spent: Mapping[str, float]
    ) -> None:
        """Make changes and tell of them in events, all or none.

        Args:
            job_id: of a job that has not ended.
            changes: in the order in which their events are numbered.
            seconds: of work on the job so far.
            spent: seconds by activity so far, summed over all tasks of the job.
        """

    @abstractmethod
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        """Up to `limit` of the latest edges of all jobs, the oldest first.

        Those of the same model and data (`subject`) come before others of that kind of network.
        """

    @abstractmethod
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Up to `limit` events numbered above `after`, in order."""

    @abstractmethod
    def remove(self, job_id: str) -> None:
        """Forget a job that has ended, with all that was made of it and what its edges have taught.

        Raises:
            MistifyError: CONFLICT, it has not ended, or a group tunes its packages.
        """

    @abstractmethod
    def mentioned(self) -> set[str]:
        """All SHA-256 digests that stand anywhere in the store: those of files that are still needed."""


@dataclass(frozen=True)
class NamedModel:
    """A model of the repository: its name as it was given, its artifact, the file it was added from."""

    name: str
    artifact: str
    file_name: str


class ModelStore(ABC):
    """Keeps which name means which model; names differ by more than upper and lower case."""

    @abstractmethod
    def add(self, model: NamedModel) -> None:
        """Keep a name.

        Raises:
            MistifyError: CONFLICT, the name is taken.
        """

    @abstractmethod
    def find(self, name: str) -> NamedModel | None:
        """The model of a name, None if there is none."""

    @abstractmethod
    def all(self) -> list[NamedModel]:
        """All models, by name."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Forget a name.

        Raises:
            MistifyError: NOT_FOUND, no model has the name.
        """
