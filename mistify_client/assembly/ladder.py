"""The ladder: slices for the task of a package that a device can cut and switch to (NN-Factory 3.5)."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StringConstraints

from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.package.records import Record, Sha256
from mistify_client.assembly.recorded_options import RecordedOptions

#: In the state directory of a package: latencies of slices, the ladder, and what is being installed.
SLICES: Final = "slices"

#: In the state directory: the most recent slices of the ladder.
CUT: Final = f"{SLICES}/cut"

#: The program that cuts a slice: its arguments are the package, and the id of the slice.
CUTTER: Final = "mistify_client.slicing.cutting"

Positive = Annotated[float, Field(gt=0)]


class Rung(Record):
    """A slice that can be cut.

    Attributes:
        limit: The largest share of open units.
        key: Its key among the networks that were cut.
        latency_ms: Milliseconds at batch 1.
        measured: Whether it was cut and measured; otherwise its latency is predicted.
        memory_bytes: Bytes of constants and of activations alive at once.
        size_bytes: Bytes of its file.
        quality: The expected balanced accuracy.
    """

    limit: Annotated[float, Field(gt=0, le=1)]
    key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    latency_ms: Positive
    measured: bool = False
    memory_bytes: Positive
    size_bytes: Positive
    quality: Annotated[float, Field(ge=0, le=1)]

    @property
    def id(self) -> str:
        """The id of the option."""
        return option_id(OptionKind.SLICE, self.limit)


class SliceLadder(RecordedOptions):
    """Slices for the task of a version of a package, none of which is as good as a faster one.

    Attributes:
        format_version: The version of this file's format.
        package: SHA-256 of the version's manifest.
        task: The task, for people.
        machine: The machine of the measurements.
        runtime: Name and version of the runtime of the measurements.
        threads: Number of threads of LiteRT.
        own_ms: Milliseconds of the version's own network on this device.
        own_bytes: Bytes of its constants and of activations alive at once.
        rungs: The slices, by ascending limits. There are none if each is worse than the version's own network
            and not faster.
    """

    FILE: ClassVar[str] = f"{SLICES}/ladder.json"
    NAME: ClassVar[str] = "ladder of slices"
    FIX: ClassVar[str] = "remove it; the monitor makes it again"

    format_version: Literal[1] = 1
    package: Sha256
    task: str
    machine: str
    runtime: str
    threads: Annotated[int, Field(ge=1)]
    own_ms: Positive
    own_bytes: Positive
    rungs: tuple[Rung, ...] = ()

    def rung(self, option: str) -> Rung | None:
        """Return the slice with an id; None if there is none."""
        return next((rung for rung in self.rungs if rung.id == option), None)

    def with_latency(self, option: str, latency_ms: float) -> "SliceLadder":
        """Return the ladder with the measured latency of a slice."""
        measured = {"latency_ms": latency_ms, "measured": True}
        rungs = (rung.model_copy(update=measured) if rung.id == option else rung for rung in self.rungs)
        return self.model_copy(update={"rungs": tuple(rungs)})

    @classmethod
    def of(cls, package: Package, state: Path) -> "SliceLadder | None":
        """Return the ladder of a version; None if there is none.

        Args:
            state: The state directory of the package.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read.
        """
        if package.manifest.task is None or package.manifest.tuned_from:
            return None
        ladder = cls.read(state)
        return ladder if ladder is not None and ladder.package == package.digest else None
