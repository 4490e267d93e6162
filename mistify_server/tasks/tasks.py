"""What the server asks of a worker."""

from typing import Literal, TypeAlias

from pydantic import Field

from mistify.config.compression import CompressionConfig
from mistify.config.quantization import QuantizationConfig
from mistify.config.tuning import TuningConfig
from mistify.costs.profiles import Profile
from mistify_server.tasks.base import Message
from mistify_server.tasks.results import BranchResult
from mistify_server.tasks.sources import DataSource, ModelSource

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


Task = InspectTask | SourceTask | AdaptTask | BranchTask | PackageTask
