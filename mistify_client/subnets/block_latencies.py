"""The latency of each block on this device; a subnet's is their sum (AdaptiveNet 5.1).

Blocks are timed as parts of subnets: a block that runs repeatedly on its own has its weights and inputs in
the processor's cache, which made sums for a network of 40 MB too small by a fifth.

Subnets run stitched into one network, in which blocks do not copy features to each other. The handover time
is the difference between the shipped network and the chain of its blocks.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from mistify.files.writing import write_json
from mistify.machine import machine, runtime
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.manifest import NETWORK
from mistify.package.records import Record, Sha256
from mistify.profiling.measuring import best_of_parts_ms, random_input
from mistify.wording import counted
from mistify_client.assembly.chaining import LoadedBlock
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.memory import return_memory
from mistify_client.subnets.space import Subnet, SubnetSpace

#: Measuring time per block, in several rounds.
SECONDS: Final = 0.15

#: Lower bound on the latency of a block in a stitched network, as a share of its latency in a chain.
_LEAST: Final = 0.1


class LatencyTable(Record):
    """The latencies of blocks at batch 1, and the conditions of their measurement.

    Attributes:
        format_version: The version of this file's format.
        machine: The machine of the measurements.
        runtime: Name and version of the runtime of the measurements.
        execution: The execution of the measurements.
        threads: Number of threads of LiteRT.
        latencies_ms: Digest of the block's file -> milliseconds, as measured in a chain.
        handover_ms: Milliseconds by which each block except the first takes longer in a chain than in a
            stitched network.
    """

    format_version: Literal[1] = 1
    machine: str
    runtime: str
    execution: Execution
    threads: Annotated[int, Field(ge=1)]
    latencies_ms: dict[Sha256, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    handover_ms: Annotated[float, Field(ge=0)] = 0.0

    @property
    def engine(self) -> Engine:
        """The engine of the measurements."""
        return Engine(execution=self.execution, threads=self.threads)

    def of(self, variant: BlockVariant) -> float:
        """Return the milliseconds of a block in a stitched network."""
        chained_ms = self.chained_ms([variant])
        return max(chained_ms - (self.handover_ms if variant.start else 0.0), _LEAST * chained_ms)

    def latency_ms(self, blocks: Iterable[BlockVariant]) -> float:
        """Return the milliseconds of stitched blocks, such as a subnet."""
        return sum(map(self.of, blocks))

    def chained_ms(self, blocks: Iterable[BlockVariant]) -> float:
        """Return the milliseconds of a chain of blocks."""
        return sum(self.latencies_ms[block.content.sha256] for block in blocks)

    def has(self, variant: BlockVariant) -> bool:
        """Check whether a block was measured."""
        return variant.content.sha256 in self.latencies_ms


def latency_table(
    files: BlockFiles,
    store: BlockStore,
    state: Path,
    threads: int,
    execution: Execution = Execution.INTERPRETER,
    *,
    seconds: float = SECONDS,
    on_progress: Callable[[str], None] = lambda line: None,
) -> LatencyTable:
    """Return the latency of every block in a store.

    Only blocks missing from the table in the state directory are measured; all of them if the table is from
    another runtime or machine. If the device has become busier, new blocks would look slow compared with old
    ones. To correct for this, some old blocks are measured again, and the new ones are scaled by the ratio.
    The table is written once it is complete.

    Args:
        files: The files of the block store.
        store: The manifest of the block store.
        state: The directory of the table.
        threads: Number of threads of LiteRT.
        seconds: Time for each missing block, unless a single run takes longer.
        on_progress: Called with a line of text if there is something to measure.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the file of a block that is missing or damaged, or that LiteRT
            cannot run.
        OSError: The table cannot be written.
    """
    file = state / f"latency-{execution}-{threads}.json"
    unmeasured = LatencyTable(machine=machine(), runtime=runtime(), execution=execution, threads=threads)
    table = _stored_table(file, unmeasured)
    space = SubnetSpace(store)
    missing = [variant for variant in space.variants if not table.has(variant)]
    if not missing:
        return _with_handover(table, store)
    on_progress(f"measuring {counted(len(missing), 'block')}")
    paths = list(_paths(space, missing))
    loads = [partial(_load, files, path, store, threads, execution) for path in paths]
    measured = defaultdict[BlockVariant, list[float]](list)
    for path, parts_ms in zip(paths, best_of_parts_ms(loads, seconds * len(missing)), strict=True):
        for one, ms in zip(path, parts_ms.tolist(), strict=True):
            measured[one].append(ms)
    now_ms = {one: mean(each) for one, each in measured.items()}
    known = [one for one in now_ms if table.has(one)]
    slower = sum(now_ms[one] for one in known) / table.chained_ms(known) if known else 1.0
    new_ms = {one.content.sha256: now_ms[one] / slower for one in missing}
    latencies_ms = {**table.latencies_ms, **new_ms}
    table = _with_handover(table.model_copy(update={"latencies_ms": latencies_ms}), store)
    write_json(file, table.model_dump(mode="json"), durable=True)
    return table


def _stored_table(path: Path, unmeasured: LatencyTable) -> LatencyTable:
    """Return the table in a file; an empty one if there is none, or its conditions differ."""
    try:
        table = LatencyTable.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):  # an unreadable table is measured again
        return unmeasured
    same = table.model_copy(update={"latencies_ms": {}, "handover_ms": 0.0}) == unmeasured
    return table if same else unmeasured


def _with_handover(table: LatencyTable, store: BlockStore) -> LatencyTable:
    """Return a table with the handover time, if it can be computed from the shipped network."""
    shipped = [variant for variant in store.variants if variant.file == NETWORK]
    if not shipped or len(store.served) < 2:
        return table
    longer_ms = table.chained_ms(store.network_of(store.served)) - table.chained_ms(shipped)
    return table.model_copy(update={"handover_ms": max(0.0, longer_ms / (len(store.served) - 1))})


def _paths(space: SubnetSpace, blocks: Iterable[BlockVariant]) -> Iterator[Subnet]:
    """Yield subnets that together contain all given blocks, completed with the original network's."""
    left = sorted(blocks, key=lambda one: one.start)
    while left:
        path, end = space.original, 0
        for one in left:
            if one.start >= end:
                path, end = space.replaced(path, one), one.end
        yield path
        left = [one for one in left if one not in path]


def _load(
    files: BlockFiles, path: Subnet, store: BlockStore, threads: int, execution: Execution
) -> Callable[[], Sequence[float]]:
    return_memory()  # of the previous subnet, because the largest one, the whole network, needs most of it
    blocks = [LoadedBlock(files, variant, threads, execution) for variant in path]
    inputs = {info.name: random_input(info.example_shape, info.dtype) for info in store.tensors_at(0)}

    def seconds() -> Sequence[float]:
        tensors, taken = inputs, []
        for block in blocks:
            began = time.perf_counter()
            tensors = block(tensors)
            taken.append(time.perf_counter() - began)
        return taken

    return seconds
