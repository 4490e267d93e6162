"""Expected costs of each branch, as the package's manifest states them."""

from dataclasses import dataclass

from mistify.config.metric import Metric
from mistify.costs.budget import at_threads, latency_axis, memory_axis
from mistify.costs.catalogue import HOST, is_host
from mistify.package.manifest import Branch, Manifest


@dataclass(frozen=True)
class BranchCosts:
    """Expected costs and accuracy of one branch.

    Attributes:
        latency_ms: milliseconds of one inference at batch size 1 on an otherwise idle device.
        accuracy: value of `metric` for the branch, on the data that networks are chosen by.
        metric: the package's metric.
        memory_bytes: bytes by the cost model; None if the manifest has no figure.
    """

    latency_ms: float
    accuracy: float
    metric: Metric = Metric.ACCURACY
    memory_bytes: float | None = None

    @property
    def merit(self) -> float:
        """Return the accuracy with the sign that makes higher values better for every metric."""
        return self.accuracy if self.metric.is_share else -self.accuracy


def expected_costs(manifest: Manifest, hardware: str = HOST.name) -> tuple[BranchCosts, ...]:
    """Return the costs of a package's branches; a package without branches counts as a single one.

    Args:
        manifest: the package's manifest.
        hardware: name of the hardware profile whose latencies are returned: the host's, with the package's
            own number of threads, or one that the package was made for (see `made_for`), where they were
            predicted.

    Returns:
        One entry per branch, in the order of the manifest.
    """
    return tuple(
        BranchCosts(
            latency_ms=_latency_ms(part, hardware),
            accuracy=part.validation_accuracy,
            metric=manifest.metric,
            memory_bytes=part.achieved.get(memory_axis(manifest.quantization)),
        )
        for part in _parts(manifest)
    )


def made_for(manifest: Manifest, hardware: str) -> bool:
    """Return True if a manifest has latencies for a hardware profile.

    Every manifest has the host's, with the number of threads that it was measured with.
    """
    if is_host(hardware):
        return hardware == own_host(manifest)
    return all(latency_axis(hardware) in part.achieved for part in _parts(manifest))


def own_host(manifest: Manifest) -> str:
    """Return the name of the host's profile with the number of threads that a package was measured with."""
    return at_threads(HOST.name, manifest.latency.threads)


def _parts(manifest: Manifest) -> tuple[Branch | Manifest, ...]:
    return manifest.branches or (manifest,)


def _latency_ms(part: Branch | Manifest, hardware: str) -> float:
    return part.latency.median_ms if is_host(hardware) else part.achieved[latency_axis(hardware)]
