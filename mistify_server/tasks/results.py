"""Results of tasks."""

from typing import Final, Literal

from pydantic import Field

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Scores
from mistify.costs.profiles import Profile
from mistify.errors import Problem
from mistify.jobs.details import LayerTable
from mistify.jobs.job import BranchFigures
from mistify.jobs.network_graph import NetworkGraph
from mistify_server.tasks.base import Message
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.tasks.sources import DataSource


class TaskDone(Message):
    """The result of a successful task.

    Attributes:
        spent: Activity -> seconds that the worker spent on it.
        onednn: Whether TensorFlow ran with its oneDNN optimizations, which are disabled after they crashed a
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
        costs: Costs of the source by axis; empty if they could not be measured.
        floor: Minimum costs to which the source can be cut, by axis; its own costs if it cannot be adapted.
        inputs: Names of the source's inputs.
        channels_first: Names of the inputs whose data may have channels first.
        classes: Names of the classes of the source's only output, or their numbers if they have no names;
            empty if a task cannot choose between classes, None if that is unknown.
        adaptable: Whether the source's architecture can be changed.
        hardware: Profiles from the task, with this machine's profile calibrated by measurements of the
            source.
        metric: The configured metric, or else one that suits the data; None if the data cannot be used.
        metrics: Output -> its metric, chosen by the same rule.
        estimates: Estimates for future edges; None if nothing can be adapted.
        trial: The result of a trial of tuning the source; None if nothing can be adapted.
        class_counts: Number of examples per named class, by part of the data: "dataset.train: 12 cat and 10
            dog".
        left_out: Ignored files, by part of the data: "dataset.train: 12 .heic in cat".
        problems: Problems with their places in a config, such as `model`, `dataset.train` or
            `algorithm.config.NAME`.
    """

    kind: Literal["inspection"] = "inspection"
    costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    channels_first: tuple[str, ...] = ()
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
        source_accuracy: Accuracy of the source before tuning, on the validation data, like all accuracies
            here.
        metric: The metric of the test data. Without validation labels, the accuracies are agreement instead.
        teacher: The artifact of the tuned source, the teacher of all goals.
        teacher_scores: Output -> score of the teacher by that output's metric.
        root: The artifact of the widened teacher, from which goals are adapted; the teacher itself if it was
            not widened.
        root_costs: Costs of the root by axis.
        steps: Training steps of the teacher.
        data: The training data for goals, with pseudo-labels for parts without labels, and with flips if
            these suit the data; None for the data of the task.
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
        prepared: The artifact of the preparation; None if there was nothing to prepare.
        steps: Number of steps as counted by the algorithm, mostly training steps; 0 if the preparation of
            another job was reused.
        served: The artifact with the tasks (`mistify.scenarios.served.ServedTasks`) that goals can have; None
            unless the algorithm serves tasks.
    """

    kind: Literal["prepare_result"] = "prepare_result"
    prepared: str | None
    steps: int
    served: str | None = None


class AdaptResult(TaskDone):
    """The result of an adapt task: the goal's checkpoint, or the best one so far if the goal was missed.

    `accuracy` and `output_scores` are on the validation data. `spared` is the number of steps of tuning that
    the network did not need.
    """

    kind: Literal["adapt_result"] = "adapt_result"
    checkpoint: str
    costs: dict[str, float]
    accuracy: float
    output_scores: tuple[OutputScore, ...] = ()
    met: bool
    reason: str
    steps: int
    spared: int = 0

    @property
    def scores(self) -> Scores:
        """The scores of the checkpoint on the validation data."""
        return Scores(self.accuracy, self.output_scores)


class BranchCheckpoint(Message):
    """The network of a branch and its costs; `share` is its budget as a multiple of the goal's."""

    share: float
    checkpoint: str
    costs: dict[str, float]


class BranchResult(TaskDone):
    """The result of a branch task: the networks that a package can switch between.

    Attributes:
        base: The layers that all branches share.
        branches: The branches by ascending share.
        steps: Total training steps of all branches.
        reason: Description of the branches that missed their budgets; empty if none did.
    """

    kind: Literal["branch_result"] = "branch_result"
    base: tuple[str, ...]
    branches: tuple[BranchCheckpoint, ...]
    steps: int
    reason: str = ""


class PackageResult(TaskDone):
    """A package: its files, its costs, and its latency and accuracy measured in LiteRT.

    Attributes:
        files: Name -> digest of the artifact.
        achieved: Costs by axis, and the achieved compression (`mistify.config.package.compression`).
        measured: Latencies in milliseconds by axis: measured on this machine, and estimated for the task's
            other hardware.
        accuracy: Accuracy of the package on the test data, for the report and the outcome of the goal.
        metric: Metric of `accuracy`; None for the goal's metric.
        validation_accuracy: Accuracy on the validation data, for model selection.
        validation_metric: Metric of `validation_accuracy`; None for the goal's metric.
        output_scores: Output -> score on the test data by that output's metric.
        validation_output_scores: Output -> score on the validation data by that output's metric.
        note: Remarks on missing gains from the precision and losses from compression; may be empty.
        branches: The branches in the package, cheapest first.
        layers: Comparison of the network's layers with the source's; None if the source's layers cannot be
            identified.
        graph: The operators of the network; None if there are too many.
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
    graph: NetworkGraph | None = None

    @property
    def test_scores(self) -> Scores:
        """The scores on the test data, which decide whether a goal is met."""
        return Scores(self.accuracy, self.output_scores)

    @property
    def validation_scores(self) -> Scores:
        """The scores on the validation data, for model selection."""
        return Scores(self.validation_accuracy, self.validation_output_scores)


class ReferenceResult(TaskDone):
    """The result of a reference task: the float32 source, evaluated in LiteRT on the test data.

    Accuracies are None, and scores empty, where the data answer tasks: a source answers no single one.

    Attributes:
        accuracy: Accuracy of the source before tuning.
        tuned_accuracy: Accuracy of the tuned source.
        output_scores: Output -> score of the source before tuning, by that output's metric.
        tuned_output_scores: Output -> score of the tuned source, by that output's metric.
        measured: Latency of the source on this machine in milliseconds, by axis.
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


#: Note on goals and forecasts that were computed without oneDNN.
WITHOUT_ONEDNN: Final = (
    "computed without TensorFlow's oneDNN optimizations, with which TensorFlow crashes on this model"
)


def seconds_by_activity(result: Result, elapsed: float) -> dict[str, float]:
    """Return the time between the order of a task and its result, in seconds by activity.

    Time without a worker counts as waiting: for a free worker, for a worker to start, for attempts with
    crashed workers, and for communication. The entire time of a failed task counts as failed.

    Args:
        elapsed: Total seconds.
    """
    if isinstance(result, TaskFailure):
        return {"failed": elapsed}
    # The two clocks may disagree slightly.
    return {**result.spent, "waiting": max(0.0, elapsed - result.seconds)}
