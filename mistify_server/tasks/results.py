"""Results of tasks."""

from typing import Literal

from pydantic import Field

from mistify.config.metric import Metric
from mistify.costs.profiles import Profile
from mistify.errors import Problem
from mistify.jobs.job import BranchFigures
from mistify_server.tasks.base import Message
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.sources import DataSource


class TaskDone(Message):
    """The result of a task that has not failed; `spent` is the worker's time, seconds by activity."""

    spent: dict[str, float] = Field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The seconds of the worker."""
        return sum(self.spent.values())


class Inspection(TaskDone):
    """The source's costs, the least that it can become, and every problem found.

    `inputs` are the source's, by name. `adaptable` says whether its architecture can be changed; where it
    cannot, `floor` is what it costs.
    `metric` is the one that was asked for, or that suits the data. `hardware` is the task's, with this
    machine's own profile calibrated by measuring the source. `estimates` are None where nothing can be
    adapted.

    The place of a problem is one in a config: `model`, `dataset.train`, `algorithm.config.NAME`.
    """

    kind: Literal["inspection"] = "inspection"
    costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    adaptable: bool = True
    hardware: dict[str, Profile] = Field(default_factory=dict)
    metric: Metric | None = None
    estimates: EdgeEstimates | None = None
    problems: tuple[Problem, ...] = ()


class SourceResult(TaskDone):
    """The tuned source (the teacher of every goal) and the root, the same where nothing was widened.

    `data` are those that were generated for it, None where there were some. `prepared` is what algorithms
    have computed for all goals, by their names; those that compute nothing are not there.
    """

    kind: Literal["source_result"] = "source_result"
    source_costs: dict[str, float]
    source_accuracy: float
    metric: Metric = Metric.ACCURACY
    teacher: str
    teacher_accuracy: float
    root: str
    root_costs: dict[str, float]
    steps: int
    data: DataSource | None = None
    prepared: dict[str, str] = Field(default_factory=dict)


class AdaptResult(TaskDone):
    """The goal's checkpoint, or the best model found where the goal was not met."""

    kind: Literal["adapt_result"] = "adapt_result"
    checkpoint: str
    costs: dict[str, float]
    accuracy: float
    met: bool
    reason: str
    steps: int


class BranchCheckpoint(Message):
    """The network of a branch, and its costs; `share` is its budget as a multiple of the goal's."""

    share: float
    checkpoint: str
    costs: dict[str, float]


class BranchResult(TaskDone):
    """The networks between which a package can switch, ascending by their shares.

    `base` are the layers that all of them share. `reason` says which did not come within their budgets.
    """

    kind: Literal["branch_result"] = "branch_result"
    base: tuple[str, ...]
    branches: tuple[BranchCheckpoint, ...]
    steps: int
    reason: str = ""


class PackageResult(TaskDone):
    """A package: its files, its costs, and the latency and accuracy that LiteRT measured.

    Attributes:
        files: Name -> digest of the artifact.
        achieved: Costs by axis, with what the compression came to (`mistify.config.compression`).
        measured: Milliseconds by axis, of this machine and, estimated from it, of the task's other hardware.
        accuracy: Of the package on the test data.
        note: What was not gained by the precision, or lost by the compression; may be empty.
        branches: Those in the package, the cheapest first.
    """

    kind: Literal["package_result"] = "package_result"
    files: dict[str, str]
    achieved: dict[str, float]
    measured: dict[str, float]
    accuracy: float
    note: str = ""
    branches: tuple[BranchFigures, ...] = ()


class TaskFailure(Message):
    """Why a task failed. `code` is the name of an `ErrorCode`."""

    kind: Literal["failure"] = "failure"
    code: str
    message: str
    problems: tuple[Problem, ...] = ()


Result = Inspection | SourceResult | AdaptResult | BranchResult | PackageResult | TaskFailure
