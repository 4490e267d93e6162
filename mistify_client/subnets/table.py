"""The latency of each block on this device; that of a subnet is their sum (AdaptiveNet 5.1)."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from mistify.files import write_json
from mistify.machine import machine, runtime
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.records import Record, Sha256
from mistify.profiling.measuring import best_of_each_ms, random_input
from mistify.wording import counted
from mistify_client.assembly.chaining import LoadedBlock
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paging import return_memory

#: The time of measuring a block, in several rounds.
SECONDS: Final = 0.15

#: Blocks of the table that are measured again beside new ones; fewer would tell too little.
_COMPARED: Final = 3


class LatencyTable(Record):
    """The latencies of blocks at batch 1, and what they were measured with.

    Attributes:
        format_version: Of this file.
        machine: That they were measured on.
        runtime: What ran them, with its version.
        execution: By which they ran.
        threads: The number of threads of LiteRT.
        latencies_ms: By the digest of the block's file.
    """

    format_version: Literal[1] = 1
    machine: str
    runtime: str
    execution: Execution
    threads: Annotated[int, Field(ge=1)]
    latencies_ms: dict[Sha256, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    def of(self, variant: BlockVariant) -> float:
        """Return the milliseconds of a block."""
        return self.latencies_ms[variant.content.sha256]

    def latency_ms(self, blocks: Iterable[BlockVariant]) -> float:
        """Return the milliseconds of blocks that run one after the other, such as a subnet."""
        return sum(map(self.of, blocks))

    def has(self, variant: BlockVariant) -> bool:
        """Check whether a block was measured."""
        return variant.content.sha256 in self.latencies_ms


def latency_table(
    directory: Path,
    store: BlockStore,
    state: Path,
    threads: int,
    execution: Execution = Execution.INTERPRETER,
    *,
    seconds: float = SECONDS,
    tell: Callable[[str], None] = lambda line: None,
) -> LatencyTable:
    """Return the latency of every block of a store.

    Blocks are measured that a table in the state directory lacks: all of them, if that was measured with
    another runtime or on another machine. A device that is busy by now would make new blocks slow beside
    those of before, so that a few of these are measured again with them: new ones get the latencies that they
    would have had then. The table is written once it is complete.

    Args:
        directory: Of the store.
        store: Its manifest.
        state: The directory of the table.
        threads: The number of threads of LiteRT.
        execution: By which the blocks run.
        seconds: The time for each block, unless running it once takes longer.
        tell: Called with a line when there is something to measure.

    Raises:
        MistifyError: As `LoadedBlock`.
        OSError: The table cannot be written.
    """
    path = state / f"latency-{execution}-{threads}.json"
    unmeasured = LatencyTable(machine=machine(), runtime=runtime(), execution=execution, threads=threads)
    table = _kept(path, unmeasured)
    missing = [variant for variant in store.variants if not table.has(variant)]
    if not missing:
        return table
    tell(f"measuring {counted(len(missing), 'block')}")
    known = [one for one in store.variants if table.has(one) and (directory / one.file).exists()]
    compared = sorted(known, key=table.of, reverse=True)[:_COMPARED] if len(known) >= _COMPARED else []
    loads = [
        partial(_load, directory, store, variant, threads, execution) for variant in (*missing, *compared)
    ]
    now_ms = best_of_each_ms(loads, seconds * len(loads))
    own, again = now_ms[: len(missing)], now_ms[len(missing) :]
    slower = median(ms / table.of(one) for one, ms in zip(compared, again, strict=True)) if compared else 1.0
    digests = [variant.content.sha256 for variant in missing]
    latencies_ms = {**table.latencies_ms, **{key: ms / slower for key, ms in zip(digests, own, strict=True)}}
    table = table.model_copy(update={"latencies_ms": latencies_ms})
    write_json(path, table.model_dump(mode="json"), durable=True)
    return table


def _kept(path: Path, unmeasured: LatencyTable) -> LatencyTable:
    """Return the table of a file; an empty one if there is none, or one of other conditions."""
    try:
        table = LatencyTable.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):  # what cannot be read is measured again
        return unmeasured
    same = table.model_copy(update={"latencies_ms": {}}) == unmeasured
    return table if same else unmeasured


def _load(
    directory: Path, store: BlockStore, variant: BlockVariant, threads: int, execution: Execution
) -> Callable[[], object]:
    return_memory()  # of the block before, as the largest one, the whole network, needs most of it
    block = LoadedBlock(directory, variant, threads, execution)
    inputs = {
        info.name: random_input((max(1, size) for size in info.shape), info.dtype)
        for info in store.tensors_at(variant.start)
    }
    return lambda: block(inputs)
