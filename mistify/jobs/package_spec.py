"""The specification of a goal's package."""

from dataclasses import dataclass, field, replace

from mistify.config.data.targets import Target
from mistify.config.package.branches import BranchesConfig
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.task import TaskConfig
from mistify.costs.axes import at_precision
from mistify.costs.budget import Budget
from mistify.costs.quantization import Quantization


@dataclass(frozen=True)
class PackageSpec:
    """The specification of a package: its requirements, and how it is made.

    Attributes:
        budget: Limits on its costs, by axis.
        targets: Accuracies to reach on the test data.
        threads: Number of threads for running it in LiteRT, and for measured and predicted latencies.
        branches: The branches of the package; None for a single network.
        exits: Places at which its network may answer early; None for none.
        compression: The compression of its kernels; None for no compression.
        tuning: How it is trained on the device.
        task: The task that it serves; None for everything that the data teach.
    """

    budget: Budget
    targets: tuple[Target, ...] = ()
    quantization: QuantizationConfig = field(default_factory=QuantizationConfig)
    threads: int = 1
    branches: BranchesConfig | None = None
    exits: ExitsConfig | None = None
    compression: CompressionConfig | None = None
    tuning: TuningConfig = field(default_factory=TuningConfig)
    task: TaskConfig | None = None

    @property
    def needs_training(self) -> bool:
        """True if packaging includes training."""
        return self.compression is not None or self.quantization.precision is Quantization.INT8_QAT

    @property
    def saved_model(self) -> bool:
        """True if the package also has its branches as a SavedModel."""
        return self.branches is not None and self.branches.saved_model

    def with_precision(self, precision: Quantization) -> "PackageSpec":
        """Return the specification at another precision, with the same limits."""
        return replace(
            self,
            quantization=self.quantization.model_copy(update={"precision": precision}),
            budget={at_precision(axis, precision): limit for axis, limit in self.budget.items()},
        )
