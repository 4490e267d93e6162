"""A porting job as server and client see it: its state, its goals, its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.budget import Costs
from mistify.costs.formats import AxisFormat
from mistify.jobs.package_spec import PackageSpec


class JobState(Enum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if nothing more will happen to the job."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


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
        """True if nothing more will happen to the goal."""
        return self not in (GoalState.WAITING, GoalState.RUNNING)


@dataclass(frozen=True)
class PackageFile:
    """A file of a package: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The model of a collective batch, as it came.

    It is measured like a package, in LiteRT on the test data, after all others: until then accuracies are
    None, and `measured` is empty.

    Attributes:
        costs: Axis -> cost of one inference.
        accuracy: By `metric`, in float32.
        batch: Number of the collective batch.
        model: The model's name in configs.
        formats: How to read costs added by the server's plug-ins.
        tuned_accuracy: Accuracy of the source tuned on the training data, the teacher of all goals.
        output_scores: The score of each output by a metric of its own, in float32; empty until measured.
        tuned_output_scores: The same for the tuned source.
        measured: Latencies on the server's machine, as in `Goal`.
        steps: Training steps that tuned it.
        preparing_steps: Algorithm -> steps in which it prepared for all of its goals; 0 where another job had
            prepared the same.
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
    """One goal of a job: the request, the goal that it was adapted from, and the result.

    Attributes:
        id: The goal's name in the job.
        batch: Number of the collective batch (model, dataset, algorithm).
        spec: The package that is asked for.
        parent: The id of the goal that it was adapted from, None for the (expanded) source.
        algorithm: The algorithm that adapts it, empty where nothing can be adapted.
        choice: The reason for the algorithm, empty where nothing can be adapted.
        warning: Limits likely to be missed, as predicted at submission, for people.
        achieved: The package's costs by the cost model; also the result of its compression, as measured.
        measured: Latencies that LiteRT measured: on this machine, and from these on other hardware.
        accuracy: The package's own, at its precision.
        output_scores: Output -> score of the package, by a metric of that output.
        reason: Why the goal was not met.
        note: Gains that the precision did not bring, losses through compression or beyond the forecast, and
            whether TensorFlow ended a worker on the way.
        seconds: Total time of the work on this goal.
        steps: Training steps of the work on this goal.
        branch_figures: The results of the branches in the package, the cheapest first.
        precision_choice: Why the server chose the precision, empty where the config names it.
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
        id: The job's name at the server.
        goals: In the order of the configs.
        created_unix_ms: Time of submission, in milliseconds since 1970.
        sources: The sources whose costs are known, in the order of their batches.
        seconds: Time for which the job has run.
        spent: Seconds by activity, summed over all tasks; more than `seconds` where tasks ran in parallel.
        reason: Why the job failed, empty otherwise.
    """

    id: str
    state: JobState
    goals: tuple[Goal, ...]
    created_unix_ms: int
    sources: tuple[Source, ...] = ()
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    def source_of(self, goal: Goal) -> Source | None:
        """Return the source that a goal is made from; None until its costs are known."""
        return next((source for source in self.sources if source.batch == goal.batch), None)

    @property
    def formats(self) -> tuple[AxisFormat, ...]:
        """How to read the costs that plug-ins of the server have added."""
        return tuple({form.quantity: form for source in self.sources for form in source.formats}.values())


#: The stage of work that a worker has taken up.
STARTING: Final = "starting"


@dataclass(frozen=True)
class ProgressUpdate:
    """The progress of a goal, or of its source.

    Attributes:
        stage: The present activity, for people.
        step: Training steps of the task so far, or another count of its stage.
        total_steps: The most steps there can be.
        costs: The costs of the network at this step.
        accuracy: By `metric`, on validation data; None while it has not been measured.
        metric: The metric of `accuracy`.
        loss: The mean training loss since the update before, structure losses and distillation included;
            None where nothing was trained.
        relative_costs: The costs that the goal limits, as multiples of their limits.
        structure_loss_weights: The weight of each limit in the structure losses while a network is adapted;
            they sum to 1 (paper 4.3).
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

    @property
    def on_curve(self) -> bool:
        """True if it is of a network that is adapted to limits, or trained."""
        return bool(self.relative_costs) or self.loss is not None


@dataclass(frozen=True)
class JobEvent:
    """An event of a job, numbered 1, 2, ... without gaps.

    `goal_id` is None where it concerns the whole job.
    """

    sequence: int
    unix_ms: int
    goal_id: str | None
    event: JobState | GoalState | ProgressUpdate
