"""A porting job as server and client see it: its state, its goals, its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mistify.config.branches import BranchesConfig
from mistify.config.compression import CompressionConfig
from mistify.config.metric import Metric
from mistify.config.quantization import QuantizationConfig
from mistify.config.tuning import TuningConfig
from mistify.costs.budget import Budget, Costs
from mistify.costs.formats import AxisFormat


class JobState(Enum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class GoalState(Enum):
    """Where a goal stands. `UNMET` has a package (the best model found), `FAILED` has none."""

    WAITING = "waiting"
    RUNNING = "running"
    MET = "met"
    UNMET = "unmet"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the goal."""
        return self not in (GoalState.WAITING, GoalState.RUNNING)


@dataclass(frozen=True)
class PackageFile:
    """A file of a package: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The model that is ported, as it came. `accuracy` is what `metric` says of it.

    `formats` say how to read the costs that plug-ins of the server have added.
    """

    costs: Costs
    accuracy: float
    metric: Metric = Metric.ACCURACY
    formats: tuple[AxisFormat, ...] = ()


@dataclass(frozen=True)
class BranchFigures:
    """A branch of a goal's package (paper 6), with a budget of `share` times the goal's.

    `achieved` is of the shared base and this branch alone; `measured` and `accuracy` are of the package while
    it runs this branch. Their form is that of `Goal`.
    """

    share: float
    achieved: Costs
    measured: Costs
    accuracy: float


@dataclass(frozen=True)
class Goal:
    """One goal of a job: what was asked, from where it was adapted, what was achieved.

    `parent` is the id of the goal it was adapted from, None for the (expanded) source.
    `metric` says what `accuracy` is, and what its target limits.
    `batch` numbers the collective batch (model, dataset, algorithm) that the goal belongs to. `achieved` is
    what the cost model says, `measured` has the latencies that LiteRT measured: on this machine, and from
    there on the other hardware. What `compression` came to is achieved, too, as measured on the package
    (`mistify.compression`). `accuracy` is the package's own. `algorithm` adapts it, for the reason that
    `choice` gives; both are empty where nothing can be adapted. `warning` says what was likely to be missed
    when the goal was submitted. `note` says what was not gained by the
    precision, or lost by the compression; empty where there is nothing to say. `branch_figures` are of the
    branches in the package, the cheapest first. `precision_choice` says why the server chose the precision;
    empty where the config names it.
    """

    id: str
    batch: int
    budget: Budget
    accuracy_target: float | None = None
    metric: Metric = Metric.ACCURACY
    quantization: QuantizationConfig = field(default_factory=QuantizationConfig)
    branches: BranchesConfig | None = None
    compression: CompressionConfig | None = None
    tuning: TuningConfig = field(default_factory=TuningConfig)
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
    precision_choice: str = ""


@dataclass(frozen=True)
class Job:
    """A submitted batch of configs. `source` is None until the source was measured.

    `spent` says where the time went: seconds by activity, summed over all tasks. Where tasks ran at the same
    time that is more than `seconds`, which have passed while the job ran.
    """

    id: str
    state: JobState
    goals: tuple[Goal, ...]
    created_unix_ms: int
    source: Source | None = None
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class ProgressUpdate:
    """How far the work on a goal is. `accuracy`, by `metric`, is None while it has not been measured."""

    stage: str
    step: int
    total_steps: int
    costs: Costs = field(default_factory=dict)
    accuracy: float | None = None
    metric: Metric = Metric.ACCURACY


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job, numbered 1, 2, ... without gaps.

    `goal_id` is None where it concerns the whole job.
    """

    sequence: int
    unix_ms: int
    goal_id: str | None
    event: JobState | GoalState | ProgressUpdate
