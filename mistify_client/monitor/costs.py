"""What a package's manifest promises of each branch."""

from dataclasses import dataclass

from mistify.budget import Costs, latency_axis, memory_axis
from mistify.hardware import HOST
from mistify.manifest import Manifest, MeasuredLatency
from mistify.metric import Metric


@dataclass(frozen=True)
class BranchCosts:
    """What is expected of one branch.

    Attributes:
        latency_ms: of one inference at batch 1, where nothing else runs.
        accuracy: what `metric` says of the branch.
        metric: of the package.
        memory_bytes: as the cost model has it; None where the manifest does not say.
    """

    latency_ms: float
    accuracy: float
    metric: Metric = Metric.ACCURACY
    memory_bytes: float | None = None

    @property
    def merit(self) -> float:
        """The accuracy as a number that is the higher the better, whatever the metric."""
        return self.accuracy if self.metric.is_share else -self.accuracy


def expected_costs(manifest: Manifest, hardware: str = HOST.name) -> tuple[BranchCosts, ...]:
    """The costs of a package's branches; of the whole package, as the only one, where it has none.

    Args:
        manifest: of the package.
        hardware: the profile whose latencies are meant. Branches that were not measured for it have the
            latency of the machine that made the package.
    """

    def costs(latency: MeasuredLatency, measured: Costs, achieved: Costs, accuracy: float) -> BranchCosts:
        return BranchCosts(
            latency_ms=measured.get(latency_axis(hardware), latency.median_ms),
            accuracy=accuracy,
            metric=manifest.metric,
            memory_bytes=achieved.get(memory_axis(manifest.quantization)),
        )

    parts = manifest.branches or (manifest,)
    return tuple(costs(part.latency, part.measured, part.achieved, part.accuracy) for part in parts)
