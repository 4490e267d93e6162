"""The engines that a device offers for the network of a package (CrowdHMTware III-C)."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from mistify.machine import machine, runtime
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.package.records import Record, Sha256
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.recorded_options import RecordedOptions

#: In the state directory of a package: what concerns engines.
ENGINES: Final = "engines"

#: In the state directory: the directory for `mapped_weights`.
WEIGHTS: Final = f"{ENGINES}/weights"

Positive = Annotated[float, Field(gt=0)]


class MeasuredEngine(Record):
    """An engine, and what the network of a package costs with it.

    Attributes:
        latency_ms: Median milliseconds at batch 1, measured in turns with the other engines.
        start_ms: Milliseconds from opening the network to the end of its first inference, in a new process.
        memory_bytes: Memory of that process afterwards, less that before; memory shared with other processes
            counts in part. None where the system does not report it.
    """

    engine: Engine
    latency_ms: Positive
    start_ms: Positive
    memory_bytes: Positive | None


class EngineTable(RecordedOptions):
    """Engines for the network of a package's version.

    Attributes:
        format_version: The version of this file's format.
        package: SHA-256 of the version's manifest.
        machine: The machine of the measurements.
        runtime: Name and version of the runtime of the measurements.
        engines: The engine of the manifest comes first.
    """

    FILE: ClassVar[str] = f"{ENGINES}/table.json"
    NAME: ClassVar[str] = "table of engines"
    FIX: ClassVar[str] = "remove it, or replace it with mistify engines"

    format_version: Literal[1] = 1
    package: Sha256
    machine: str
    runtime: str
    engines: Annotated[tuple[MeasuredEngine, ...], Field(min_length=1)]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the options in order; the first one is the package's own network as it was shipped."""
        others = range(1, len(self.engines))
        return option_id(OptionKind.BRANCH, 0), *(option_id(OptionKind.ENGINE, number) for number in others)

    @classmethod
    def of(cls, package: Package, state: Path) -> "EngineTable | None":
        """Return the table of a version, measured on this machine with this runtime; None if there is none.

        Args:
            state: The state directory of the package.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read.
        """
        table = cls.read(state)
        conditions = package.digest, machine(), runtime()
        same = table is not None and (table.package, table.machine, table.runtime) == conditions
        return table if same else None
