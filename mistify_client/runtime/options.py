"""The options of a package, with their latency and costs (paper 6, AdaptiveNet 5.3)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mistify.config.data.metric import Metric
from mistify.costs.budget import HOST_NAME, at_threads, memory_axis, size_axis
from mistify.errors import MistifyError
from mistify.package.blocks import BlockStore
from mistify.package.manifest import Branch, Manifest
from mistify.package.opened import Package
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped

#: The name of the hardware whose latencies a pool has.
THIS_DEVICE: Final = "this device"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Option:
    """A network that a package can run, and how: a branch of its network, or a subnet of its blocks.

    Attributes:
        name: A name for people, such as "branch 2".
        latency_ms: Milliseconds of one inference at batch size 1 on an otherwise idle device, the median.
        accuracy: Value of `metric`, on the data that networks are chosen by.
        metric: The metric of the accuracy.
        p95_ms: The latency that one inference in twenty exceeds; None if not known.
        memory_bytes: Bytes by the cost model; for a subnet, those of its blocks alone; None if unknown.
        size_bytes: Bytes on disk; for a branch, by the cost model; None if unknown.
        achieved: Axis -> cost from the manifest, such as the energy counted by a plug-in; empty for a subnet.
        blocks: The blocks of a subnet with their execution; None for a branch, which LiteRT's `Interpreter`
            runs.
    """

    name: str
    latency_ms: float
    accuracy: float
    metric: Metric = Metric.ACCURACY
    p95_ms: float | None = None
    memory_bytes: float | None = None
    size_bytes: float | None = None
    achieved: Mapping[str, float] = field(default_factory=dict)
    blocks: ChosenBlocks | None = None

    @property
    def kind(self) -> str:
        """Return "branch" or "subnet"."""
        return "branch" if self.blocks is None else "subnet"

    @property
    def merit(self) -> float:
        """Return the accuracy with the sign that makes higher values better for every metric."""
        return self.accuracy if self.metric.is_share else -self.accuracy


@dataclass(frozen=True)
class PackageOptions:
    """The options of one version of a package.

    Attributes:
        options: In the order of their numbers, by which the switchboard, statistics and policies name them.
        default: Number of the option that runs until another one is chosen.
        threads: Number of threads that latencies are for.
        hardware: The profile that latencies are for, or `THIS_DEVICE`.
        pool: The pool whose subnets are the options; None if they are branches.
    """

    options: tuple[Option, ...]
    default: int
    threads: int
    hardware: str
    pool: SubnetPool | None = None

    @property
    def of_blocks(self) -> bool:
        """Return True if the options are subnets of blocks."""
        return self.pool is not None

    @property
    def measured_by(self) -> tuple[str, int]:
        """Return the key by which latencies are comparable: the hardware, and the number of threads."""
        return self.hardware, self.threads

    @property
    def fastest(self) -> int:
        """Return the number of the option with the lowest latency."""
        return min(range(len(self.options)), key=lambda number: self.options[number].latency_ms)

    def chosen(self, number: int) -> int:
        """Return an option that was chosen by its number; the default one if there is no such option."""
        return number if 0 <= number < len(self.options) else self.default


def options_of(package: Package, state: Path) -> PackageOptions:
    """Return the options of a package.

    They are the subnets in the pool, if there is one of the package's block store: the fastest first.
    Otherwise they are the branches; a package without branches has its network as the only option. The same
    holds for a package that was tuned, since its blocks were not, or whose pool is damaged, which is logged.

    Args:
        package: The package's version.
        state: The state directory of the package.
    """
    manifest = package.manifest
    if manifest.tuned_from:
        return _branches(manifest)
    try:
        pool = SubnetPool.load(state, package)
        return _branches(manifest) if pool is None or not pool.entries else _subnets(package, pool)
    except MistifyError as error:
        message = "%s runs as it was shipped, without subnets of its blocks: %s"
        logger.warning(message, package.directory, error)
        return _branches(manifest)


def own_host(manifest: Manifest) -> str:
    """Return the name of the host's profile with the number of threads that a package was measured with."""
    return at_threads(HOST_NAME, manifest.latency.threads)


def parts(manifest: Manifest) -> tuple[Branch | Manifest, ...]:
    """Return the branches of a package; a package without branches counts as a single one."""
    return manifest.branches or (manifest,)


def _branches(manifest: Manifest) -> PackageOptions:
    memory, size = memory_axis(manifest.quantization), size_axis(manifest.quantization)
    options = tuple(
        Option(
            name=f"branch {number}",
            latency_ms=part.latency.median_ms,
            accuracy=part.validation_accuracy,
            metric=manifest.metric,
            p95_ms=part.latency.p95_ms,
            memory_bytes=part.achieved.get(memory),
            size_bytes=part.achieved.get(size),
            achieved=part.achieved,
        )
        for number, part in enumerate(parts(manifest))
    )
    return PackageOptions(options, manifest.default_branch, manifest.latency.threads, own_host(manifest))


def _subnets(package: Package, pool: SubnetPool) -> PackageOptions:
    store, best = with_shipped(blocks_of(package), package), pool.best()
    return PackageOptions(
        tuple(_subnet(number, entry, pool, store) for number, entry in enumerate(pool.entries)),
        0 if best is None else pool.entries.index(best),
        pool.threads,
        THIS_DEVICE,
        pool,
    )


def _subnet(number: int, entry: PoolEntry, pool: SubnetPool, store: BlockStore) -> Option:
    size = float(sum(variant.content.size for variant in store.network_of(entry.files)))
    return Option(
        name=f"subnet {number}",
        latency_ms=entry.latency_ms,
        accuracy=entry.accuracy,
        metric=pool.metric,
        memory_bytes=size,
        size_bytes=size,
        blocks=ChosenBlocks(files=entry.files, execution=pool.execution),
    )
