"""The pool: the best subnets that a device has found and switches between (AdaptiveNet 5.3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from mistify.config.data.metric import Metric
from mistify.package.opened import Package
from mistify.package.records import FileName, Record, Sha256
from mistify.parsing.validation import InvalidValue
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.recorded_options import RecordedOptions

#: Name of the file in the state directory.
POOL: Final = "pool.json"

Milliseconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class PoolEntry(Record):
    """A subnet in the pool.

    Attributes:
        files: Files of its blocks, from the inputs of the network to its outputs.
        latency_ms: Milliseconds at batch 1, summed over its blocks.
        accuracy: On the device's data, by the metric of the pool.
        loss: On the same data; None in pools written by a version that did not store it.
        score: The accuracy, or the explained share of the variance, minus half of the loss: the criterion for
            choosing among the subnets that are as accurate as all faster ones. None if the loss is None.
        engine: The engine that runs it, with which its latency was measured.
        memory_bytes: Memory of a process that runs it, less that of the process before; None if not measured.
    """

    files: tuple[FileName, ...]
    latency_ms: Milliseconds
    accuracy: float
    loss: float | None = None
    score: float | None = None
    engine: Engine = Engine()
    memory_bytes: Annotated[float, Field(gt=0)] | None = None


class SubnetPool(RecordedOptions):
    """The best subnets for all latency budgets, the fastest first.

    Attributes:
        format_version: The version of this file's format.
        store: SHA-256 of the block store's manifest.
        budget_ms: Target for the latency of one inference.
        original_ms: Latency of the original network.
        metric: The metric of the accuracies; without labels, the original network's predictions count as
            correct.
        examples: Number of examples on which accuracies are measured.
        data: Path of the file with these examples.
        strategy: The search strategy that found the subnets.
        entries: The subnets: each is slower than the previous one, has a higher score, and is at least as
            accurate. Entries of the same subnet with other engines follow each other, the fastest one last.
    """

    FILE: ClassVar[str] = POOL
    NAME: ClassVar[str] = "pool of subnets"
    FIX: ClassVar[str] = "remove it, or replace it with mistify adapt"

    format_version: Literal[2] = 2
    store: Sha256
    budget_ms: Milliseconds
    original_ms: Milliseconds
    metric: Metric
    examples: Count
    data: str
    strategy: str
    entries: tuple[PoolEntry, ...]

    @model_validator(mode="before")
    @classmethod
    def _engine_of_each_entry(cls, raw: Any) -> Any:
        """Copy the engine of format 1, which applies to all entries, to each entry."""
        if not isinstance(raw, dict) or raw.get("format_version") != 1:
            return raw
        engine = {key: raw[key] for key in ("execution", "threads") if key in raw}
        entries = [
            {**entry, "engine": engine} if isinstance(entry, dict) else entry
            for entry in raw.get("entries") or ()
        ]
        others = {key: value for key, value in raw.items() if key not in engine}
        return {**others, "format_version": 2, "entries": entries}

    @model_validator(mode="after")
    def _run_with_as_many_threads(self) -> "SubnetPool":
        counts = sorted({entry.engine.threads for entry in self.entries})
        if len(counts) > 1:
            raise InvalidValue(
                counts, "one number of threads for all subnets", "replace it with mistify adapt"
            )
        return self

    def best(self, ratio: float = 1.0) -> PoolEntry | None:
        """Return the best subnet within the budget; None if there is none.

        Args:
            ratio: Present latency of inferences as a multiple of the estimate.
        """
        fitting = [entry for entry in self.entries if entry.latency_ms * ratio <= self.budget_ms]
        return fitting[-1] if fitting else None

    def with_measured(self, before: "SubnetPool | None") -> "SubnetPool":
        """Return the pool with what was measured of its subnets before: their memory, and other engines.

        Args:
            before: The previous pool of the same store; None without any.
        """
        measured = [] if before is None else [one for one in before.entries if one.memory_bytes is not None]
        entries = (each for entry in self.entries for each in _with_measured(entry, measured))
        return self.model_copy(update={"entries": tuple(entries)})

    @classmethod
    def load(cls, state: Path, package: Package) -> "SubnetPool | None":
        """Return the pool in a state directory; None if there is none for the package's block store.

        Args:
            state: The state directory of the package.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read.
        """
        if not package.blocks_digest:
            return None
        pool = cls.read(state)
        return pool if pool is not None and pool.store == package.blocks_digest else None


def _with_measured(entry: PoolEntry, measured: Sequence[PoolEntry]) -> list[PoolEntry]:
    """Return the entries for a subnet: with its own engine, and with others, the fastest one last."""
    same = [one for one in measured if one.files == entry.files]
    own = next((one for one in same if one.engine == entry.engine), None)
    if own is None:
        return [entry]
    slower = entry.latency_ms / own.latency_ms
    entries = [
        entry.model_copy(
            update={
                "engine": one.engine,
                "latency_ms": slower * one.latency_ms,
                "memory_bytes": one.memory_bytes,
            }
        )
        for one in same
    ]
    return sorted(entries, key=lambda one: -one.latency_ms)
