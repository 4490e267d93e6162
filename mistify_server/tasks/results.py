"""Results of tasks."""

from typing import Final, Literal

from pydantic import Field

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Scores
from mistify.costs.profiles import Profile
from mistify.errors import Problem
from mistify.jobs.details import LayerTable
from mistify.jobs.job import BranchFigures
from mistify_server.tasks.base import Message
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.tasks.sources import DataSource


class TaskDone(Message):
    """The result of a task that has not failed.

    Attributes:
        spent: Seconds of the worker by activity.
        onednn: Whether TensorFlow ran with its oneDNN optimizations; it runs without them after it ended a
            worker.
    """

    spent: dict[str, float] = Field(default_factory=dict)
    onednn: bool = True

    @property
    def seconds(self) -> float:
        """The seconds of the worker."""
        return sum(self.spent.values())


class Inspection(TaskDone):
    """The result of an inspect task.

    Attributes:
        costs: Costs of the source by axis; empty if it could not be measured.
        floor: The least that the source can be cut to, by axis; its costs if it cannot be adapted.
        inputs: Names of the source's inputs.
        classes: Names of the classes of the source's only output, numbers where they have none; empty where
            it has no classes between which a task could choose, None where that is not known.
        adaptable: Whether the source's architecture can be changed.
        hardware: Profiles of the task, with this machine's profile calibrated by measuring the source.
        metric: The config's metric, or else one that suits the data; None if the data cannot be used.
        metrics: Output -> its metric, by the same rule.
        estimates: Estimates for the edges to come; None where nothing can be adapted.
        trial: The result of a trial of tuning the source; None where nothing can be adapted.
        class_counts: Examples of each class that has a name, by part: "dataset.train: 12 cat and 10 dog".
        left_out: Files that are not read, by part of the data: "dataset.train: 12 .heic in cat".
        problems: Problems with places in a config: `model`, `dataset.train`, `algorithm.config.NAME`.
    """

    kind: Literal["inspection"] = "inspection"
    costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    adaptable: bool = True
    hardware: dict[str, Profile] = Field(default_factory=dict)
    metric: Metric | None = None
    metrics: dict[str, Metric] = Field(default_factory=dict)
    estimates: EdgeEstimates | None = None
    trial: SourceTrial | None = None
    class_counts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SourceResult(TaskDone):
    """The result of a source task.

    Attributes:
        source_costs: Costs of the source before tuning, by axis.
        source_accuracy: Accuracy of the source before tuning, on the validation data, as all accuracies here.
        metric: The metric of the test data; the accuracies are agreement where the validation data have no
            labels.
        teacher: The artifact of the tuned source, the teacher of all goals.
        teacher_scores: Output -> score of the teacher, by a metric of its own.
        root: The artifact of the widened teacher, from which goals are adapted; the teacher if none is wider.
        root_costs: Costs of the root by axis.
        steps: Training steps of the teacher.
        data: The data that goals learn from, with files of the source's answers where parts have no labels,
            and with flips where these suit them; None for those of the task.
    """

    kind: Literal["source_result"] = "source_result"
    source_costs: dict[str, float]
    source_accuracy: float
    metric: Metric = Metric.ACCURACY
    teacher: str
    teacher_accuracy: float
    teacher_scores: tuple[OutputScore, ...] = ()
    root: str
    root_costs: dict[str, float]
    steps: int
    data: DataSource | None = None


class PrepareResult(TaskDone):
    """The result of a prepare task.

    Attributes:
        prepared: The artifact; None where there was nothing to prepare.
        steps: Number of steps by the algorithm's count, mostly training steps; 0 where another job had
            prepared the same.
    """

    kind: Literal["prepare_result"] = "prepare_result"
    prepared: str | None
    steps: int


class AdaptResult(TaskDone):
    """The result of an adapt task: the goal's checkpoint, or the best one on the way if it was not met.

    `accuracy` and `output_scores` are on the validation data.
    """

    kind: Literal["adapt_result"] = "adapt_result"
    checkpoint: str
    costs: dict[str, float]
    accuracy: float
    output_scores: tuple[OutputScore, ...] = ()
    met: bool
    reason: str
    steps: int

    @property
    def scores(self) -> Scores:
        """The scores of the checkpoint on the validation data."""
        return Scores(self.accuracy, self.output_scores)


class BranchCheckpoint(Message):
    """The network of a branch, and its costs; `share` is its budget as a multiple of the goal's."""

    share: float
    checkpoint: str
    costs: dict[str, float]


class BranchResult(TaskDone):
    """The result of a branch task: the networks between which a package can switch.

    Attributes:
        base: The layers that all of them share.
        branches: Ascending by their shares.
        steps: Training steps of all branches together.
        reason: Names the branches that missed their budgets; empty if none did.
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
        achieved: Costs by axis, with what the compression came to (`mistify.config.package.compression`).
        measured: Milliseconds by axis, of this machine and, estimated from it, of the task's other hardware.
        accuracy: Accuracy of the package on the test data, for the report, and to judge whether the goal is
            met.
        metric: Metric of `accuracy`; None stands for the goal's.
        validation_accuracy: Accuracy on the validation data, by which choices are made.
        validation_metric: Metric of `validation_accuracy`; None stands for the goal's.
        output_scores: Output -> score on the test data, by a metric of its own.
        validation_output_scores: Output -> score on the validation data, by a metric of its own.
        note: Gains that the precision did not bring, and losses through compression; may be empty.
        branches: The branches in the package, the cheapest first.
        layers: Layers of the goal's own network beside the source's; None where the source's cannot be told
            apart.
    """

    kind: Literal["package_result"] = "package_result"
    files: dict[str, str]
    achieved: dict[str, float]
    measured: dict[str, float]
    accuracy: float
    validation_accuracy: float
    validation_metric: Metric | None = None
    metric: Metric | None = None
    output_scores: tuple[OutputScore, ...] = ()
    validation_output_scores: tuple[OutputScore, ...] = ()
    note: str = ""
    branches: tuple[BranchFigures, ...] = ()
    layers: LayerTable | None = None

    @property
    def test_scores(self) -> Scores:
        """The scores on the test data, by which a goal is judged."""
        return Scores(self.accuracy, self.output_scores)

    @property
    def validation_scores(self) -> Scores:
        """The scores on the validation data, to choose by."""
        return Scores(self.validation_accuracy, self.validation_output_scores)


class ReferenceResult(TaskDone):
    """The result of a reference task: the source in float32, as LiteRT runs it, on the test data.

    Accuracies are None, and scores empty, where the data answer tasks: a source answers no single one.

    Attributes:
        accuracy: Accuracy of the source before tuning.
        tuned_accuracy: Accuracy of the tuned source.
        output_scores: Output -> score of the source before tuning, by a metric of its own.
        tuned_output_scores: Output -> score of the tuned source, by a metric of its own.
        measured: Milliseconds of the source on this machine, by axis.
    """

    kind: Literal["reference_result"] = "reference_result"
    accuracy: float | None
    tuned_accuracy: float | None
    output_scores: tuple[OutputScore, ...] = ()
    tuned_output_scores: tuple[OutputScore, ...] = ()
    measured: dict[str, float]


class TaskFailure(Message):
    """The failure of a task. `code` is the name of an `ErrorCode`."""

    kind: Literal["failure"] = "failure"
    code: str
    message: str
    problems: tuple[Problem, ...] = ()


Result = (
    Inspection
    | SourceResult
    | PrepareResult
    | AdaptResult
    | BranchResult
    | PackageResult
    | ReferenceResult
    | TaskFailure
)


#: What is said of goals and forecasts that were computed without oneDNN.
WITHOUT_ONEDNN: Final = (
    "computed without TensorFlow's oneDNN optimizations, with which TensorFlow crashes on this model"
)


def seconds_by_activity(result: Result, elapsed: float) -> dict[str, float]:
    """Return where the time went between the order of a task and its result.

    Time without a worker counts as waiting: for a free worker, for one to start, for attempts whose worker
    died, for the wire. The whole time of a failed task counts as failed.

    Args:
        elapsed: Seconds in all.
    """
    if isinstance(result, TaskFailure):
        return {"failed": elapsed}
    # Two clocks may disagree a little.
    return {**result.spent, "waiting": max(0.0, elapsed - result.seconds)}
