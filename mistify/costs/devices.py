"""Measured devices: the tables that they upload, and their entries on the server (paper 4.1)."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from mistify.costs.catalogue import catalogue, is_host
from mistify.costs.operators import Operation
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.machine import MOST_THREADS

#: Maximum number of readings in a table.
MOST_READINGS = 20_000

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


@dataclass(frozen=True)
class OperatorTiming:
    """The latency of a small network on a device.

    Attributes:
        operations: The operators of the network, which run one after the other.
        integer: Whether the network is int8 rather than float32.
        median_ms: Milliseconds; median over inferences on an otherwise idle device.
    """

    operations: tuple[Operation, ...]
    integer: bool
    threads: int
    median_ms: float


@dataclass(frozen=True)
class Power:
    """The average power of a device while it runs networks at one setting, in watts."""

    integer: bool
    threads: int
    watts: float


@dataclass(frozen=True)
class DeviceTable:
    """The measurements of a device.

    Attributes:
        name: The name in goals.
        machine: The model of the processor.
        runtime: Name and version of the runtime that ran the networks.
        readings: One for each network and setting.
        powers: Watts by setting; empty if the device does not measure its energy.
    """

    name: str
    machine: str
    runtime: str
    readings: tuple[OperatorTiming, ...]
    powers: tuple[Power, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A precision and a number of threads, with the prediction errors for networks left out of the fit.

    Attributes:
        integer: Whether networks are int8 rather than float32.
        median_error: Median relative error of predictions for networks left out of the fit.
        p90_error: The 90th percentile of these errors.
        watts: Watts while networks run; None if the device does not measure its power.
    """

    integer: bool
    threads: int
    median_error: float
    p90_error: float
    watts: float | None = None


@dataclass(frozen=True)
class Device:
    """A device that goals can name.

    Attributes:
        name: The name in goals.
        machine: The model of the processor.
        runtime: Name and version of the runtime that ran the networks.
        settings: The precisions and numbers of threads at which it was measured.
    """

    name: str
    machine: str
    runtime: str
    settings: tuple[Setting, ...]
    registered: datetime


def check_name(name: str) -> None:
    """Check the name of a device.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    problems = list(name_problems(name))
    if problems:
        raise _refused(name, problems)


def check_table(table: DeviceTable) -> None:
    """Check a table.

    Raises:
        MistifyError: INVALID_CONFIG with every problem, but only the first one among the readings.
    """
    problems = [*name_problems(table.name), *_wrong_readings(table.readings), *_wrong_powers(table.powers)]
    if problems:
        raise _refused(table.name, problems)


def _refused(name: str, problems: Iterable[Problem]) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_CONFIG, f"the device {name!r}: nothing was registered", problems)


def name_problems(name: str) -> Iterator[Problem]:
    """Yield why no measured device can have a name."""
    if not _NAME.fullmatch(name):
        expected = "up to 64 lower-case letters, digits, dots and hyphens"
        yield Problem("name", f'"{name}"', expected, 'rename it, such as "my-board"')
    if name in catalogue() and not is_host(name):
        yield Problem("name", f'"{name}"', "a name that is not in the catalogue", "rename it")


def _wrong_readings(readings: tuple[OperatorTiming, ...]) -> Iterator[Problem]:
    if not 0 < len(readings) <= MOST_READINGS:
        expected = f"1 to {MOST_READINGS:,} readings"
        yield Problem("readings", f"{len(readings):,}", expected, "measure the device again")
    for number, reading in enumerate(readings):
        wrong = next(_wrong(reading), None)
        if wrong is not None:
            key, value, expected = wrong
            yield Problem(f"readings[{number}].{key}", value, expected, "measure the device again")
            return


def _wrong_powers(powers: tuple[Power, ...]) -> Iterator[Problem]:
    for number, power in enumerate(powers):
        if not (math.isfinite(power.watts) and power.watts > 0):
            place, value = f"powers[{number}].watts", f"{power.watts:g}"
            yield Problem(place, value, "a positive number", "measure the device again")


def _wrong(reading: OperatorTiming) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of a reading: the place, the value, and what was expected."""
    if not (math.isfinite(reading.median_ms) and reading.median_ms > 0):
        yield "median_ms", f"{reading.median_ms:g}", "a positive number"
    if not 1 <= reading.threads <= MOST_THREADS:
        yield "threads", f"{reading.threads}", f"1 to {MOST_THREADS}"
    if not reading.operations:
        yield "operations", "none", "at least one"
    for place, operation in enumerate(reading.operations):
        sizes = {key: size for key, size in vars(operation).items() if key != "kind"}
        for key, size in sizes.items():
            if size < 1:
                yield f"operations[{place}].{key}", f"{size}", "at least 1"
