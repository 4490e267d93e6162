"""The options of a package, with their latency and costs (paper 6, AdaptiveNet 5.3)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Final

from mistify.config.data.metric import Metric
from mistify.costs.budget import FLOPS, HOST_NAME, PARAMS, at_threads, memory_axis, size_axis
from mistify.costs.energy import Energy, published_energy
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore
from mistify.package.exits import EXIT_STAGES, ExitChoice, ExitStore
from mistify.package.manifest import Branch, Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.wording import listed
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import EngineTable, MeasuredEngine
from mistify_client.assembly.ladder import Rung, SliceLadder
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped

#: The share of inferences that take at most the 95th percentile.
_P95: Final = 0.95

#: The hardware name for the latencies in a pool or a ladder.
THIS_DEVICE: Final = "this device"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OptionCosts:
    """The costs of one inference of an option at batch size 1.

    Attributes:
        latency_ms: The median in milliseconds on an otherwise idle device; with exits, the expected value.
        p95_ms: The 95th percentile of the latency; None if unknown.
        memory_bytes: Bytes by the cost model; for networks on a ladder of slices, of constants and
            activations in their files; for engines, of a process that runs them, and for subnets as well, or
            of their blocks alone if no engine was measured; None if unknown.
        size_bytes: Bytes on disk; for a branch, by the cost model; None if unknown.
        energy: By equation 1 of CrowdHMTware; None if multiply-adds or weights are unknown, as for a slice.
        axes: Axis -> cost from the manifest, such as the energy from a plug-in; empty for a subnet or a
            slice.
    """

    latency_ms: float
    p95_ms: float | None = None
    memory_bytes: float | None = None
    size_bytes: float | None = None
    energy: Energy | None = None
    axes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OptionScore:
    """The quality of an option.

    Attributes:
        value: By the metric, on the data for choosing networks; for a slice, as expected.
    """

    value: float
    metric: Metric = Metric.ACCURACY

    @property
    def merit(self) -> float:
        """Return the value, negated for errors, so that higher is better for every metric."""
        return self.value if self.metric.is_share else -self.value


@dataclass(frozen=True)
class Option:
    """A network that a package can run: a branch, a subnet of its blocks, a slice, or one with exits.

    Attributes:
        id: Unique in its package, such as "branch-2".
        costs: Costs of an inference with the engine.
        blocks: Files of a subnet's blocks, from the inputs of the network to its outputs; none for others.
        exits: The confidence from which exits answer, and their rates; None for others.
        helped: Whether helpers may run some of its blocks; costs are those on this device alone.
    """

    kind: OptionKind
    id: str
    engine: Engine
    costs: OptionCosts
    score: OptionScore
    blocks: tuple[str, ...] = ()
    exits: ExitChoice | None = None
    helped: bool = False


@dataclass(frozen=True)
class PackageOptions:
    """The options of one version of a package.

    Attributes:
        options: In a fixed order: the switchboard and recorders, files of numbers, refer to them by index.
        default: Index of the option that runs until another one is chosen.
        hardware: The profile of the latencies, or `THIS_DEVICE`.
        generation: The switchboard's generation from which on a package runs options that a device found;
            None for those of its manifest.
        pool: The pool whose subnets are the options; None if they are others.
        ladder: The ladder of the version, whose slices are options beside its own network; None without one.
        exits: The exits of the version, which are the last options; None if no option has exits.
        engines: The engines of the options, in their order; None if they have no engines of their own.
    """

    options: tuple[Option, ...]
    default: int
    hardware: str
    generation: int | None = None
    pool: SubnetPool | None = None
    ladder: SliceLadder | None = None
    exits: ExitStore | None = None
    engines: EngineTable | None = None

    @property
    def paged(self) -> bool:
        """Return True if only the current option is in memory, and others are loaded in the background."""
        has_slices = self.ladder is not None and bool(self.ladder.rungs)
        return self.pool is not None or has_slices or self.engines is not None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the options in order."""
        return tuple(option.id for option in self.options)

    @property
    def threads(self) -> int:
        """The number of threads of the default option, and of all others except engines."""
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

    def with_latency(self, option: str, latency_ms: float) -> "PackageOptions":
        """Return the options with another latency of one of them."""
        options = (
            replace(each, costs=replace(each.costs, latency_ms=latency_ms)) if each.id == option else each
            for each in self.options
        )
        return replace(self, options=tuple(options))


def options_of(package: Package, state: Path) -> PackageOptions:
    """Return the options of a package.

    They are the subnets in the pool, the fastest first, if there is a pool for the package's block store.
    Otherwise they are the branches; a package without branches has its network as the only option. If a
    device has a ladder of slices for the task of this version, these follow, the smallest first; else other
    engines that the device has found for it; else the package's exits, by ascending loss. Pools, ladders and
    exits do not count if the package was tuned, since blocks, slices and heads were not. Nor do files that
    were made on the device and are damaged, which is logged.

    Args:
        package: The package's version.
        state: The state directory of the package.

    Raises:
        MistifyError: STORE_VERSION, a newer version of Mistify wrote the exits of the package;
            CORRUPT_PACKAGE, their description is missing or damaged, with every problem in it.
    """
    manifest = package.manifest
    branches = _branches(manifest)
    if manifest.tuned_from:
        return branches
    shipped = _with_exits(branches, ExitStore.of(package), manifest)
    try:
        pool = SubnetPool.load(state, package)
        if pool is not None and pool.entries:
            return _subnets(package, pool)
        ladder = SliceLadder.of(package, state)
        if ladder is not None:
            return _with_slices(branches, ladder)
        engines = EngineTable.of(package, state)
        return shipped if engines is None else _with_engines(branches, engines)
    except MistifyError as error:
        message = "%s runs as it was shipped, without options made on this device: %s"
        logger.warning(message, package.directory, error)
        return shipped


def own_host(manifest: Manifest) -> str:
    """Return the name of the host's profile with the number of threads of a package's measurement."""
    return at_threads(HOST_NAME, manifest.latency.threads)


def parts(manifest: Manifest) -> tuple[Branch | Manifest, ...]:
    """Return the branches of a package; a package without branches counts as a single one."""
    return manifest.branches or (manifest,)


def _memory_bytes(part: Branch | Manifest, precision: Quantization) -> float | None:
    """Return the memory of a network; None if it is unknown. Integer packages may have integer inputs."""
    axes = (memory_axis(precision, integer_inputs=integer_inputs) for integer_inputs in (False, True))
    return next((part.achieved[axis] for axis in axes if axis in part.achieved), None)


def _branches(manifest: Manifest) -> PackageOptions:
    size = size_axis(manifest.quantization)
    options = tuple(
        Option(
            kind=OptionKind.BRANCH,
            id=option_id(OptionKind.BRANCH, number),
            engine=Engine(threads=manifest.latency.threads),
            costs=OptionCosts(
                latency_ms=part.latency.median_ms,
                p95_ms=part.latency.p95_ms,
                memory_bytes=_memory_bytes(part, manifest.quantization),
                size_bytes=part.achieved.get(size),
                energy=_energy(part, part.achieved.get(FLOPS), manifest.quantization),
                axes=part.achieved,
            ),
            score=OptionScore(part.validation_accuracy, manifest.metric),
        )
        for number, part in enumerate(parts(manifest))
    )
    return PackageOptions(options, manifest.default_branch, own_host(manifest))


def _energy(part: Branch | Manifest, multiply_adds: float | None, precision: Quantization) -> Energy | None:
    """Return the energy of a branch with all of its weights; None if multiply-adds or weights are unknown."""
    weights = part.achieved.get(PARAMS)
    if multiply_adds is None or weights is None:
        return None
    return published_energy(multiply_adds, weights * precision.storage.weight, precision)


def _with_exits(own: PackageOptions, store: ExitStore | None, manifest: Manifest) -> PackageOptions:
    """Return the options followed by those with exits, if there are any."""
    if store is None:
        return own
    options = (_exit(choice, store, own.options[own.default], manifest) for choice in store.choices)
    return replace(own, options=(*own.options, *options), exits=store)


def _exit(choice: ExitChoice, store: ExitStore, network: Option, manifest: Manifest) -> Option:
    """Return the option for a choice. The stages are in memory beside the network."""
    size, alone = manifest.files[EXIT_STAGES].size, network.costs.memory_bytes
    usual = next(
        stage for stage, answered in zip(store.stages, accumulate(choice.rates), strict=True)
        if answered >= _P95 or stage is store.stages[-1]
    )  # fmt: skip
    return Option(
        kind=OptionKind.EXIT,
        id=option_id(OptionKind.EXIT, choice.loss),
        engine=network.engine,
        costs=OptionCosts(
            latency_ms=choice.latency_ms,
            p95_ms=usual.latency_ms,
            memory_bytes=None if alone is None else alone + size,
            size_bytes=size,
            energy=_energy(
                parts(manifest)[manifest.default_branch], choice.multiply_adds, manifest.quantization
            ),
            axes={FLOPS: choice.multiply_adds},
        ),
        score=OptionScore(choice.validation_accuracy, network.score.metric),
        exits=choice,
    )


def _with_slices(own: PackageOptions, ladder: SliceLadder) -> PackageOptions:
    """Return the options with those of a ladder; if it has no slice, those of the manifest do not change."""
    if not ladder.rungs:
        return replace(own, generation=ladder.generation, ladder=ladder)
    (network,) = own.options
    costs = replace(network.costs, latency_ms=ladder.own_ms, p95_ms=None, memory_bytes=ladder.own_bytes)
    network = replace(network, costs=costs)
    return PackageOptions(
        (network, *(_slice(rung, ladder.threads) for rung in ladder.rungs)),
        own.default,
        THIS_DEVICE,
        ladder.generation,
        ladder=ladder,
    )


def _slice(rung: Rung, threads: int) -> Option:
    return Option(
        kind=OptionKind.SLICE,
        id=rung.id,
        engine=Engine(threads=threads),
        costs=OptionCosts(rung.latency_ms, memory_bytes=rung.memory_bytes, size_bytes=rung.size_bytes),
        score=OptionScore(rung.quality, Metric.BALANCED_ACCURACY),
    )


def _with_engines(own: PackageOptions, table: EngineTable) -> PackageOptions:
    """Return the network of a package with each engine; the first one is that of the manifest."""
    (network,) = own.options
    options = (
        _with_engine(network, option, one) for option, one in zip(table.ids, table.engines, strict=True)
    )
    return PackageOptions(tuple(options), own.default, THIS_DEVICE, table.generation, engines=table)


def _with_engine(network: Option, option: str, measured: MeasuredEngine) -> Option:
    costs = replace(
        network.costs, latency_ms=measured.latency_ms, p95_ms=None, memory_bytes=measured.memory_bytes
    )
    kind = network.kind if option == network.id else OptionKind.ENGINE
    return replace(network, kind=kind, id=option, engine=measured.engine, costs=costs)


def _subnets(package: Package, pool: SubnetPool) -> PackageOptions:
    store, best = with_shipped(blocks_of(package), package), pool.best()
    options = [
        _subnet(number, entry, pool.metric, store, package.manifest.quantization)
        for number, entry in enumerate(pool.entries)
    ]
    return PackageOptions(
        tuple(_with_memory(options, pool.entries)),
        0 if best is None else pool.entries.index(best),
        THIS_DEVICE,
        pool.generation,
        pool,
    )


def _with_memory(options: Sequence[Option], entries: Sequence[PoolEntry]) -> Iterator[Option]:
    """Yield subnets with their measured memory; that of others follows from the size of their blocks."""
    sizes = [option.costs.size_bytes or 0.0 for option in options]
    ratios = [
        entry.memory_bytes / size
        for entry, size in zip(entries, sizes, strict=True)
        if entry.memory_bytes is not None and not entry.engine.mapped_weights
    ]
    ratio = median(ratios) if ratios else 1.0
    for option, entry, size in zip(options, entries, sizes, strict=True):
        memory = ratio * size if entry.memory_bytes is None else entry.memory_bytes
        yield replace(option, costs=replace(option.costs, memory_bytes=memory))


def _subnet(
    number: int, entry: PoolEntry, metric: Metric, store: BlockStore, precision: Quantization
) -> Option:
    blocks = store.network_of(entry.files)
    size = float(sum(block.content.size for block in blocks))
    estimates = [block.estimate for block in blocks if block.estimate is not None]
    energy = None
    if len(estimates) == len(blocks):
        energy = published_energy(sum(estimate.flops for estimate in estimates), size, precision)
    return Option(
        kind=OptionKind.SUBNET,
        id=option_id(OptionKind.SUBNET, number),
        engine=entry.engine,
        costs=OptionCosts(entry.latency_ms, size_bytes=size, energy=energy),
        score=OptionScore(entry.accuracy, metric),
        blocks=entry.files,
    )
