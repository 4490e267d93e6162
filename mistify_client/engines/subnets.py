"""Engines for the subnets of a pool, which are measured as they run after a while: as one network each."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mistify.package.block_files import BlockFiles
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.package.records import describe_file
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import MeasuredEngine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.made_networks import NetworkFile
from mistify_client.assembly.paged_engines import EngineFiles
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.assembly.stitching import stitch
from mistify_client.engines.measuring import measured_engines


class MeasuredEntry(NamedTuple):
    """An engine that was measured with a subnet.

    Attributes:
        entry: The subnet with this engine.
        measured: The costs of the engine.
        is_offered: Whether the engine is worth an option.
    """

    entry: PoolEntry
    measured: MeasuredEngine
    is_offered: bool


def measured_entries(
    version: Package,
    pool: SubnetPool,
    seconds: float,
    best: Callable[[list[MeasuredEngine]], list[MeasuredEngine]],
) -> Iterator[MeasuredEntry]:
    """Measure every subnet of a pool with its own engine, and with mapped weights; yield them in order.

    Latencies remain in proportion to those of the pool, so that subnets can be compared with each other.

    Args:
        seconds: Measuring time per engine.
        best: Returns the engines that are worth an option, given all that were measured.

    Raises:
        MistifyError: NOT_FOUND, the version does not have the blocks of the pool; INVALID_CONFIG, those of a
            subnet do not form a chain; STORE_VERSION, a newer version of Mistify wrote the version;
            CORRUPT_PACKAGE, a block is missing or damaged, or its engine cannot run a subnet.
        OSError: A temporary file cannot be written.
    """
    store = with_shipped(blocks_of(version), version)
    for entry in (entry for entry in pool.entries if not entry.engine.mapped_weights):
        blocks = store.network_of(entry.files)
        with TemporaryDirectory() as temporary, BlockFiles(version.directory) as files:
            path = Path(temporary) / NETWORK
            path.write_bytes(stitch(files, blocks) if len(blocks) > 1 else files.read(blocks[0]))
            network = NetworkFile(NETWORK, describe_file(path))
            opened = EngineFiles(path.parent, network, version.manifest.inputs, path.with_name("weights"))
            mapped = Engine(execution=Execution.COMPILED, threads=entry.engine.threads, mapped_weights=True)
            measured = measured_engines(opened, [entry.engine, mapped], seconds)
        offered = best(measured)
        slower = entry.latency_ms / measured[0].latency_ms
        for one in sorted(measured, key=lambda one: -one.latency_ms):
            costs = {"engine": one.engine, "latency_ms": slower * one.latency_ms}
            with_engine = entry.model_copy(update={**costs, "memory_bytes": one.memory_bytes})
            yield MeasuredEntry(with_engine, one, one in offered)
