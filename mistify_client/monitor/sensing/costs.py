"""What a package's manifest promises of each branch."""

from dataclasses import dataclass

from mistify.config.metric import Metric
from mistify.costs.budget import latency_axis, memory_axis
from mistify.costs.catalogue import HOST
from mistify.package.manifest import Branch, Manifest


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
        hardware: the profile whose latencies are meant, one that the package was made for.
    """
    return tuple(
        BranchCosts(
            latency_ms=_latency_ms(part, hardware),
            accuracy=part.accuracy,
            metric=manifest.metric,
            memory_bytes=part.achieved.get(memory_axis(manifest.quantization)),
        )
        for part in _parts(manifest)
    )


def made_for(manifest: Manifest, hardware: str) -> bool:
    """Whether a package's manifest has latencies of a profile; those of the host every one has."""
    return hardware == HOST.name or all(latency_axis(hardware) in part.measured for part in _parts(manifest))


def _parts(manifest: Manifest) -> tuple[Branch | Manifest, ...]:
    return manifest.branches or (manifest,)


def _latency_ms(part: Branch | Manifest, hardware: str) -> float:
    return part.latency.median_ms if hardware == HOST.name else part.measured[latency_axis(hardware)]
