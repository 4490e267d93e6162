"""A porting job as seen by server and client: its state, its goals, its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.budget import Costs
from mistify.costs.formats import AxisFormat
from mistify.jobs.package_spec import PackageSpec


class JobState(Enum):
    """The state of a job. A `PAUSED` one starts no steps until it is resumed."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the job will not change any more."""
        return self not in (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)


class JobPriority(Enum):
    """Which jobs go first: steps of a job start before those of jobs with a lower priority."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    @property
    def level(self) -> int:
        """A number that rises with the priority."""
        return list(JobPriority).index(self)


class GoalState(Enum):
    """The state of a goal. `UNMET` has a package (the best model found), `FAILED` has none."""

    WAITING = "waiting"
    RUNNING = "running"
    MET = "met"
    UNMET = "unmet"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the goal will not change any more."""
        return self not in (GoalState.WAITING, GoalState.RUNNING)


@dataclass(frozen=True)
class PackageFile:
    """A file of a package: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The model of a collective batch, as submitted.

    It is measured like a package, in LiteRT on the test data, after all packages: until then accuracies are
    None, and `measured` is empty.

    Attributes:
        costs: Axis -> cost of one inference.
        accuracy: By `metric`, in float32.
        batch: Number of the collective batch.
        model: The model's name in configs.
        formats: Formats of costs added by the server's plug-ins.
        tuned_accuracy: Accuracy of the source tuned on the training data, the teacher of all goals.
        output_scores: The score of each output by its own metric, in float32; empty until measured.
        tuned_output_scores: The same for the tuned source.
        measured: Latencies on the server's machine, as in `Goal`.
        steps: Training steps of the tuning.
        preparing_steps: Algorithm -> training steps of its preparation for all of its goals; 0 if another job
            had already made the same preparation.
    """

    costs: Costs
    accuracy: float | None = None
    batch: int = 0
    model: str = ""
    metric: Metric = Metric.ACCURACY
    formats: tuple[AxisFormat, ...] = ()
    tuned_accuracy: float | None = None
    output_scores: tuple[OutputScore, ...] = ()
    tuned_output_scores: tuple[OutputScore, ...] = ()
    measured: Costs = field(default_factory=dict)
    steps: int = 0
    preparing_steps: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchFigures:
    """A branch of a goal's package (paper 6), with a budget of `share` times the goal's.

    Attributes:
        share: The branch's budget, as a multiple of the goal's.
        achieved: Costs of the shared base and this branch alone, as in `Goal`.
        measured: Latencies of the package while it runs this branch, as in `Goal`.
        accuracy: Accuracy of the package while it runs this branch.
    """

    share: float
    achieved: Costs
    measured: Costs
    accuracy: float


@dataclass(frozen=True)
class Goal:
    """One goal of a job: the request, the parent goal, and the result.

    Attributes:
        id: The goal's name in the job.
        batch: Number of the collective batch (model, dataset, algorithm).
        spec: The requested package.
        parent: The id of the goal that it was adapted from; None for the (expanded) source.
        algorithm: The algorithm that adapts the network; empty if nothing can be adapted.
        choice: The reason for the algorithm; empty if nothing can be adapted.
        warning: Limits likely to be missed, as predicted at submission, for people.
        achieved: The package's costs as predicted by the cost model, and the measured result of its
            compression.
        measured: Axis -> latency measured in LiteRT on the server's machine.
        accuracy: The accuracy of the package, at its precision.
        output_scores: Output -> score of the package, by a metric of that output.
        reason: Why the goal was not met.
        note: Remarks: the precision gained nothing, the compression cost accuracy, the accuracy is lower than
            forecast, or TensorFlow ended a worker during the work.
        seconds: Total time of the work on this goal.
        steps: Training steps of the work on this goal.
        branch_figures: The results of the branches in the package, the cheapest first.
        precision_choice: Why the server chose the precision; empty if the config names it.
    """

    id: str
    batch: int
    spec: PackageSpec
    metric: Metric = Metric.ACCURACY
    parent: str | None = None
    algorithm: str = ""
    choice: str = ""
    warning: str = ""
    state: GoalState = GoalState.WAITING
    achieved: Costs = field(default_factory=dict)
    measured: Costs = field(default_factory=dict)
    accuracy: float | None = None
    reason: str = ""
    note: str = ""
    seconds: float = 0.0
    steps: int = 0
    files: tuple[PackageFile, ...] = ()
    branch_figures: tuple[BranchFigures, ...] = ()
    output_scores: tuple[OutputScore, ...] = ()
    precision_choice: str = ""


@dataclass(frozen=True)
class Job:
    """A submitted batch of configs.

    Attributes:
        id: The job's name on the server.
        goals: In the order of the configs.
        created_unix_ms: Time of submission, in milliseconds since 1970.
        sources: The sources whose costs are known, in the order of their batches.
        seconds: Time that the job has been running.
        spent: Seconds by activity, summed over all tasks; more than `seconds` if tasks ran in parallel.
        reason: Why the job failed; empty otherwise.
        submitted_by: Name of the caller who submitted it; empty if it is not known.
        name: A name for people, not necessarily unique; empty for none.
        tags: Words for people, in the order in which they were given.
        removed_unix_ms: When it was removed, in milliseconds since 1970; its files follow a day later, and
            until then it can be restored. None if it was not removed.
        priority: Jobs with a higher one go first.
    """

    id: str
    state: JobState
    goals: tuple[Goal, ...]
    created_unix_ms: int
    sources: tuple[Source, ...] = ()
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    submitted_by: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    removed_unix_ms: int | None = None
    priority: JobPriority = JobPriority.NORMAL

    def source_of(self, goal: Goal) -> Source | None:
        """Return the source of a goal; None until its costs are known."""
        return next((source for source in self.sources if source.batch == goal.batch), None)

    @property
    def formats(self) -> tuple[AxisFormat, ...]:
        """The formats of costs that plug-ins of the server have added."""
        return tuple({form.quantity: form for source in self.sources for form in source.formats}.values())


#: The stage when a worker has started on a task.
STARTING: Final = "starting"


@dataclass(frozen=True)
class ProgressUpdate:
    """The progress of a goal, or of its source.

    Attributes:
        stage: The current activity, for people.
        step: Training steps of the task so far, or another count in its stage.
        total_steps: The expected number of steps; 0 or 1 in stages without training.
        costs: The costs of the network at this step.
        accuracy: By `metric`, on validation data; None until measured.
        metric: The metric of `accuracy`.
        loss: The mean training loss since the previous update, including structure losses and distillation;
            None if nothing was trained.
        relative_costs: The costs that the goal limits, as multiples of their limits.
        structure_loss_weights: The weight of each limit in the structure losses while a network is adapted;
            they sum to 1 (paper 4.3).
        job_share: The share of the job's expected work that is done; None if it is unknown.
        seconds_left: The expected time until the job ends; None if it is unknown.
    """

    stage: str
    step: int
    total_steps: int
    costs: Costs = field(default_factory=dict)
    accuracy: float | None = None
    metric: Metric = Metric.ACCURACY
    loss: float | None = None
    relative_costs: Costs = field(default_factory=dict)
    structure_loss_weights: Mapping[str, float] = field(default_factory=dict)
    job_share: float | None = None
    seconds_left: float | None = None

    @property
    def on_curve(self) -> bool:
        """True if it belongs to adaptation or training of a network."""
        return bool(self.relative_costs) or self.loss is not None


@dataclass(frozen=True)
class JobEvent:
    """An event of a job, numbered 1, 2, ... without gaps.

    `goal_id` is None if the event concerns the whole job.
    """

    sequence: int
    unix_ms: int
    goal_id: str | None
    event: JobState | GoalState | ProgressUpdate
