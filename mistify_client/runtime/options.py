"""The options of a package, with their latency and costs (paper 6, AdaptiveNet 5.3)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mistify.config.data.metric import Metric
from mistify.costs.budget import HOST_NAME, at_threads, memory_axis, size_axis
from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore
from mistify.package.manifest import Branch, Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.wording import listed
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped

#: The hardware name for the latencies in a pool.
THIS_DEVICE: Final = "this device"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OptionCosts:
    """The costs of one inference of an option at batch size 1.

    Attributes:
        latency_ms: The median in milliseconds on an otherwise idle device.
        p95_ms: The 95th percentile of the latency; None if unknown.
        memory_bytes: Bytes by the cost model; for a subnet, of its blocks alone; None if unknown.
        size_bytes: Bytes on disk; for a branch, by the cost model; None if unknown.
        axes: Axis -> cost from the manifest, such as the energy from a plug-in; empty for a subnet.
    """

    latency_ms: float
    p95_ms: float | None = None
    memory_bytes: float | None = None
    size_bytes: float | None = None
    axes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OptionScore:
    """The quality of an option.

    Attributes:
        value: By the metric, on the data for choosing networks.
    """

    value: float
    metric: Metric = Metric.ACCURACY

    @property
    def merit(self) -> float:
        """Return the value, negated for errors, so that higher is better for every metric."""
        return self.value if self.metric.is_share else -self.value


@dataclass(frozen=True)
class Option:
    """A network that a package can run: a branch of its network, or a subnet of its blocks.

    Attributes:
        id: Unique in its package, such as "branch-2".
        costs: Costs of an inference with the engine.
        blocks: Files of a subnet's blocks, from the inputs of the network to its outputs; none for a branch.
    """

    kind: OptionKind
    id: str
    engine: Engine
    costs: OptionCosts
    score: OptionScore
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackageOptions:
    """The options of one version of a package.

    Attributes:
        options: In a fixed order: the switchboard and recorders, files of numbers, refer to them by index.
        default: Index of the option that runs until another one is chosen.
        hardware: The profile of the latencies, or `THIS_DEVICE`.
        generation: The switchboard's generation from which on a package runs options that a device found;
            None for those of its manifest.
        pool: The pool whose subnets are the options; None if they are branches.
    """

    options: tuple[Option, ...]
    default: int
    hardware: str
    generation: int | None = None
    pool: SubnetPool | None = None

    @property
    def of_blocks(self) -> bool:
        """Return True if the options are subnets of blocks."""
        return self.pool is not None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the options in order."""
        return tuple(option.id for option in self.options)

    @property
    def threads(self) -> int:
        """The number of threads of the default option, and so of all others."""
        return self.options[self.default].engine.threads

    @property
    def measured_by(self) -> tuple[str, int]:
        """The key that comparable latencies share: the hardware, and the number of threads."""
        return self.hardware, self.threads

    @property
    def fastest(self) -> int:
        """The index of the option with the lowest latency."""
        return min(range(len(self.options)), key=lambda place: self.options[place].costs.latency_ms)

    def at_or_default(self, place: int) -> Option:
        """Return the option at an index; the default one if there is no such index."""
        return self.options[self.chosen(place)]

    def chosen(self, place: int) -> int:
        """Return a chosen index; the default option's if there is no such index."""
        return place if 0 <= place < len(self.options) else self.default

    def place_of(self, option: str) -> int:
        """Return the index of an option, given its id.

        Raises:
            MistifyError: NOT_FOUND, no option has this id.
        """
        try:
            return self.ids.index(option)
        except ValueError:
            message = f'the package has no option "{option}"; it has {listed(self.ids)}'
            raise MistifyError(ErrorCode.NOT_FOUND, message) from None


def options_of(package: Package, state: Path) -> PackageOptions:
    """Return the options of a package.

    They are the subnets in the pool, the fastest first, if there is a pool for the package's block store.
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
    """Return the name of the host's profile with the number of threads of a package's measurement."""
    return at_threads(HOST_NAME, manifest.latency.threads)


def parts(manifest: Manifest) -> tuple[Branch | Manifest, ...]:
    """Return the branches of a package; a package without branches counts as a single one."""
    return manifest.branches or (manifest,)


def _branches(manifest: Manifest) -> PackageOptions:
    memory, size = memory_axis(manifest.quantization), size_axis(manifest.quantization)
    options = tuple(
        Option(
            kind=OptionKind.BRANCH,
            id=option_id(OptionKind.BRANCH, number),
            engine=Engine(threads=manifest.latency.threads),
            costs=OptionCosts(
                latency_ms=part.latency.median_ms,
                p95_ms=part.latency.p95_ms,
                memory_bytes=part.achieved.get(memory),
                size_bytes=part.achieved.get(size),
                axes=part.achieved,
            ),
            score=OptionScore(part.validation_accuracy, manifest.metric),
        )
        for number, part in enumerate(parts(manifest))
    )
    return PackageOptions(options, manifest.default_branch, own_host(manifest))


def _subnets(package: Package, pool: SubnetPool) -> PackageOptions:
    store, best = with_shipped(blocks_of(package), package), pool.best()
    return PackageOptions(
        tuple(_subnet(number, entry, pool.metric, store) for number, entry in enumerate(pool.entries)),
        0 if best is None else pool.entries.index(best),
        THIS_DEVICE,
        pool.generation,
        pool,
    )


def _subnet(number: int, entry: PoolEntry, metric: Metric, store: BlockStore) -> Option:
    size = float(sum(variant.content.size for variant in store.network_of(entry.files)))
    return Option(
        kind=OptionKind.SUBNET,
        id=option_id(OptionKind.SUBNET, number),
        engine=entry.engine,
        costs=OptionCosts(entry.latency_ms, memory_bytes=size, size_bytes=size),
        score=OptionScore(entry.accuracy, metric),
        blocks=entry.files,
    )
