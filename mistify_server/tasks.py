"""What the server asks of a worker process, and what comes back: the wire between the two.

A worker reads one `Order` per line (JSON) and answers with any number of `Progress` lines and then one
result line, all under the order's ticket; in between it says with heartbeats that it is alive. Checkpoints
and packages never travel on this wire: they are artifacts, named by digest.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from mistify.config.compression import CompressionConfig
from mistify.config.dataset import DataSettings
from mistify.config.metric import Metric
from mistify.config.quantization import QuantizationConfig
from mistify.config.tuning import TuningConfig
from mistify.costs.profiles import Profile
from mistify.jobs.job import BranchFigures
from mistify_server.forecast.known import Prospects
from mistify_server.messages import Message


class ModelSource(Message):
    """Where the source model comes from: one of `path`, `builtin` and `application`, and its options.

    Attributes:
        path: A file or directory.
        builtin: The name of a built-in model.
        application: The name of an architecture of `keras.applications`.
        classes: The classes that the model is given, where its file does not say.
        input: Height and width of the images that an architecture of `keras.applications` takes.
        weights: A file with the weights of such an architecture.
        sequence: Tokens of the texts that a preset of keras_hub takes.
    """

    path: str | None = None
    builtin: str | None = None
    application: str | None = None
    classes: int | None = None
    input: int | None = None
    weights: str | None = None
    sequence: int | None = None


class DataSource(Message):
    """Train and test data: files, directories, or `builtin:digits-train`; and how they are used."""

    train: str
    test: str
    settings: DataSettings = DataSettings()

    @property
    def metric(self) -> Metric:
        """What is measured, once the data were inspected."""
        return self.settings.metric or Metric.ACCURACY


class TaskDone(Message):
    """The result of a task that was done; `spent` says where the worker's time went: seconds by activity."""

    spent: dict[str, float] = Field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """What the worker took."""
        return sum(self.spent.values())


#: Of the source, as it comes: what it reaches, and what a training step takes.
Measure: TypeAlias = Literal["accuracy", "step"]


class InspectTask(Message):
    """Look at a model and its data before anything is started.

    `measures` is what is found out by running the source.
    """

    kind: Literal["inspect"] = "inspect"
    model: ModelSource
    data: DataSource
    algorithm: str
    algorithm_config: dict[str, object]
    hardware: dict[str, Profile]
    measures: tuple[Measure, ...] = ()


class Inspection(TaskDone):
    """The source's costs, the least that it can become, and every problem found.

    `inputs` are the source's, by name. `adaptable` says whether its architecture can be changed; where it
    cannot, `floor` is what it costs.
    `metric` is the one that was asked for, or that suits the data. `hardware` is the task's, with this
    machine's own profile calibrated by measuring the source. `prospects` are None where nothing can be
    adapted.

    A problem is (subject, given, expected, fix); subject is `model`, `dataset.train`, `dataset.test`
    or `algorithm.config.NAME`, to be prefixed with the place in the config.
    """

    kind: Literal["inspection"] = "inspection"
    costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    adaptable: bool = True
    hardware: dict[str, Profile] = Field(default_factory=dict)
    metric: Metric | None = None
    prospects: Prospects | None = None
    problems: list[tuple[str, str, str, str]] = Field(default_factory=list)


class SourceTask(Message):
    """Make the root of a goal tree: the source tuned on the data, and widened where goals ask for it.

    `algorithm` says whose settings there are; `prepare` which algorithms prepare for the edges to come.
    """

    kind: Literal["source"] = "source"
    model: ModelSource
    data: DataSource
    algorithm: str
    algorithm_config: dict[str, object]
    hardware: dict[str, Profile]
    exceed: dict[str, float]
    seed: int
    prepare: tuple[str, ...] = ()


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


class Adaptation(Message):
    """What edges have in common: from a parent's checkpoint to a budget, taught by the source.

    `quantizations` are what the networks are packaged as: where latency is limited it is measured so.
    `prepared` is the source result's for the algorithm.
    """

    parent: str
    teacher: str
    data: DataSource
    algorithm: str
    algorithm_config: dict[str, object]
    hardware: dict[str, Profile]
    budget: dict[str, float]
    seed: int
    quantizations: tuple[QuantizationConfig, ...] = (QuantizationConfig(),)
    prepared: str | None = None


class AdaptTask(Adaptation):
    """One edge of a goal tree: from the parent's checkpoint to a goal."""

    kind: Literal["adapt"] = "adapt"
    accuracy_target: float | None


class BranchTask(Adaptation):
    """The branches of a goal's package (paper 6): from the goal's checkpoint to multiples of its budget.

    `shares` are the multiples, ascending, the goal's own 1 among them; `costs` are the checkpoint's.
    """

    kind: Literal["branch"] = "branch"
    shares: tuple[float, ...]
    costs: dict[str, float]


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


class PackageTask(Message):
    """Turn a checkpoint into `serve.tflite`, `train.tflite` and `manifest.json`.

    `costs` and `accuracy` are the checkpoint's; `hardware` is as it was calibrated with the source.
    `branches` are what the package can switch between, the checkpoint among them; None where it cannot.
    `saved_model` asks for them as a SavedModel, too.
    """

    kind: Literal["package"] = "package"
    checkpoint: str
    branches: BranchResult | None = None
    saved_model: bool = False
    teacher: str
    data: DataSource
    algorithm: str
    algorithm_config: dict[str, object]
    quantization: QuantizationConfig
    compression: CompressionConfig | None = None
    tuning: TuningConfig = Field(default_factory=TuningConfig)
    goal_id: str
    job_id: str
    budget: dict[str, float]
    accuracy_target: float | None
    costs: dict[str, float]
    accuracy: float
    hardware: dict[str, Profile]
    seed: int


class PackageResult(TaskDone):
    """The package's files (name -> digest), its costs, and what LiteRT measured: latencies and accuracy.

    `achieved` has what the compression came to as well (`mistify.compression`). `measured` are latencies by
    axis, of this machine and from there of the task's other hardware. `note` says what was not gained by the
    precision, or lost by the compression. `branches` are those in the package, the cheapest first.
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
    problems: list[tuple[str, str, str, str]] = Field(default_factory=list)


class Progress(Message):
    """How far a task is. `accuracy`, by `metric`, is None while it has not been measured."""

    kind: Literal["progress"] = "progress"
    stage: str
    step: int
    total_steps: int
    costs: dict[str, float] = Field(default_factory=dict)
    accuracy: float | None = None
    metric: Metric = Metric.ACCURACY


Task = InspectTask | SourceTask | AdaptTask | BranchTask | PackageTask
Result = Inspection | SourceResult | AdaptResult | BranchResult | PackageResult | TaskFailure


class Order(Message):
    """A task for a worker. `ticket` is different for every attempt at a task."""

    ticket: int
    task: Annotated[Task, Field(discriminator="kind")]


class Answer(Message):
    """What a worker says about an order; `ticket` is the order's, so that what comes late is told apart."""

    kind: Literal["answer"] = "answer"
    ticket: int
    content: Annotated[Result | Progress, Field(discriminator="kind")]


class Heartbeat(Message):
    """A worker with an order is alive, however long it has had nothing else to say."""

    kind: Literal["heartbeat"] = "heartbeat"


#: The stage of a task whose worker loads a model that a user gave: should it end the worker, that is the
#: model's fault.
LOADING = "loading the model"

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS = 5.0

SAID: TypeAdapter[Answer | Heartbeat] = TypeAdapter(
    Annotated[Answer | Heartbeat, Field(discriminator="kind")]
)
