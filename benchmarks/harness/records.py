"""Records of runs: the figures of a benchmark, the machine, and the commit.

A full run writes its record to `benchmarks/records/`, as `NAME-COMMIT.json`; `--json FILE` writes one
elsewhere. `benchmarks.results` generates everything that is published from the records.
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from mistify.processors import usable_processors

REPOSITORY: Final = Path(__file__).parents[2]
RECORDS: Final = REPOSITORY / "benchmarks" / "records"


class Judged(BaseModel):
    """A target, and whether it is met.

    Attributes:
        what: The figure in words, with its unit; empty if the figure's name is sufficient.
        full_run_only: Whether a quick run may leave the figure out.
        met: None if the run does not determine it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str | None = None
    min: float | None = None
    max: float | None = None
    full_run_only: bool = False
    met: bool | None

    @property
    def asked(self) -> str:
        """Return the bounds as text, such as `>= 20`."""
        bounds = ((">=", self.min), ("<=", self.max))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


class Record(BaseModel):
    """A run of a benchmark.

    Attributes:
        benchmark: Name below `benchmarks`, such as `porting.limits`.
        command: None if unknown, which is possible for transcribed figures.
        commit: Commit of the code; with `-dirty` if files had been changed since. None if unknown.
        date: Time at the end of the run, in UTC (ISO 8601); only a date if the time is unknown.
        machine: CPU, cores, memory in GiB, Python version; load before the run.
        network: The selected network, if a benchmark of several ran only one.
        seeds: The seeds of the run; None if nothing is repeated by seed.
        figures: Name -> value; None if it is not finite.
        targets: Name of the figure -> its bounds.
        met: Whether all targets are met.
        picture: File in `benchmarks/pictures/` drawn by the run.
        skipped: Reason why nothing was measured.
        transcribed: The document from which the figures were copied, if no run has written this record.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    command: str | None
    commit: str | None
    date: str | None
    machine: Mapping[str, str | int | float | None]
    network: str | None = None
    quick: bool = False
    seeds: tuple[int, ...] | None = None
    figures: Mapping[str, float | None]
    targets: Mapping[str, Judged]
    met: bool
    picture: str | None = None
    skipped: str | None = None
    transcribed: str | None = None

    @property
    def file_name(self) -> str:
        """Return the name of the record's file."""
        return "-".join([self.benchmark, *([self.network] if self.network else []), f"{self.commit}.json"])

    def write(self, file: Path) -> None:
        """Write the record as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.model_dump(exclude_unset=True), indent=2) + "\n")


def read_records(directory: Path = RECORDS) -> list[Record]:
    """Return all records, the oldest first."""
    records = [Record.model_validate_json(file.read_text()) for file in sorted(directory.glob("*.json"))]
    return sorted(records, key=lambda record: record.date or "")


def machine() -> dict[str, str | int | float]:
    """Return a description of this machine and its load."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": usable_processors(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def commit(checkout: Path = REPOSITORY) -> str | None:
    """Return the commit of a checkout, with `-dirty` if files were changed; None outside of one."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
