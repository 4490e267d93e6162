"""Reports from the monitors of devices: the running package and option, latency, and reason (paper 6)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mistify.config.data.metric import Metric
from mistify.errors import Problem, invalid_config
from mistify.rollouts import DeviceRollouts

#: Maximum length of a name, in characters.
LONGEST_NAME: Final = 200

#: Maximum length of a reason, in characters; monitors truncate longer ones.
LONGEST_REASON: Final = 1_000

#: Maximum length of all texts of a status together, in characters: far more than monitors report.
_MOST_TEXT: Final = 20_000

#: Maximum number of subnets in a reported pool; monitors omit the rest.
MOST_SUBNETS: Final = 50

#: Maximum number of targets, or of problems, of one device.
_MOST_ENTRIES: Final = 50

#: Milliseconds since 1970: the first time that `datetime` cannot represent.
_YEAR_10_000: Final = 253_402_300_800_000


@dataclass(frozen=True)
class LastSwitch:
    """The last change from one option to another.

    Attributes:
        unix_ms: Milliseconds since 1970, by the device's clock.
        previous: Id of the option that ran before.
        reason: For people.
    """

    unix_ms: int
    previous: str
    reason: str


@dataclass(frozen=True)
class DeviceSubnet:
    """A subnet of blocks found on a device.

    Attributes:
        latency_ms: Milliseconds for one inference on an otherwise idle device.
        accuracy: By the pool's metric.
    """

    latency_ms: float
    accuracy: float


@dataclass(frozen=True)
class DevicePool:
    """The best subnets that a device has found in a package with blocks.

    Attributes:
        metric: The metric that scores the subnets.
        examples: Number of the device's own examples on which they are scored.
        original_ms: Milliseconds for one inference of the original network on an otherwise idle device.
        subnets: The first `MOST_SUBNETS`, in their order.
    """

    metric: Metric
    examples: int
    original_ms: float
    subnets: tuple[DeviceSubnet, ...]


@dataclass(frozen=True)
class DeviceAdaptation:
    """The adaptation of a package to the data of its place, without labels.

    Attributes:
        adapted_unix_ms: The time since which an adapted version runs, in milliseconds since 1970 by the
            device's clock; None for the version without adaptation.
        shift: How far the statistics have moved; 1 is as far as a single class of the validation data moves
            them.
        examples: Number of examples seen.
    """

    adapted_unix_ms: int | None
    shift: float
    examples: int


@dataclass(frozen=True)
class DeviceStatus:
    """The state of a device, as reported by its monitor.

    Attributes:
        name: The device's name in its fleet.
        job_id: The job that made the running package.
        goal_id: The goal that the package was made for.
        option: Id of the running option, such as "branch-0".
        options: Number of options in the package.
        latency_ms: Milliseconds for one inference, averaged over the last seconds.
        expected_ms: The same on an otherwise idle device.
        idle: Whether no inference ran recently; the latency is then from the last inferences.
        fits: Whether the option meets the targets.
        reason: Why this option was chosen, for people.
        targets: Name -> value, a text with its unit.
        problems: Part of the monitor that reports the problem -> text for people.
        last_switch: None if the monitor has not switched since it started.
        pool: The subnets behind the options; None for a package without blocks.
        adaptation: None if the monitor does not adapt the package.
        rollouts: None if the server may not replace the package by roll-outs.
    """

    name: str
    job_id: str
    goal_id: str
    option: str
    options: int
    latency_ms: float
    expected_ms: float
    idle: bool
    fits: bool
    reason: str
    targets: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    last_switch: LastSwitch | None = None
    pool: DevicePool | None = None
    adaptation: DeviceAdaptation | None = None
    rollouts: DeviceRollouts | None = None


@dataclass(frozen=True)
class DeviceReport:
    """The last status of a device, and when the server received it."""

    status: DeviceStatus
    seen: datetime


@dataclass(frozen=True)
class FleetSummary:
    """Counts of the devices that have reported.

    Attributes:
        devices: Number of all devices.
        missing: Number of devices that miss their targets.
    """

    devices: int
    missing: int


def check_status(status: DeviceStatus) -> None:
    """Check a status from a device.

    Raises:
        MistifyError: INVALID_CONFIG with every problem.
    """
    problems = list(_problems(status))
    if problems:
        raise invalid_config(problems, f'the status of the device "{status.name[:LONGEST_NAME]}"')


def _problems(status: DeviceStatus) -> Iterator[Problem]:
    yield from _problems_of_names(status)
    if status.options < 1:
        yield Problem("options", str(status.options), "at least 1", "count the options of the package")
    for place, time in _times(status):
        if not (math.isfinite(time) and time > 0):
            yield Problem(place, f"{time:g}", "a positive number of milliseconds", "measure it again")
    for place, unix_ms in _moments(status):
        if not 0 <= unix_ms < _YEAR_10_000:
            expected = "milliseconds since 1970, before the year 10,000"
            yield Problem(place, str(unix_ms), expected, "set the device's clock")
    if status.adaptation is not None:
        yield from _problems_of_adaptation(status.adaptation)
    if status.rollouts is not None:
        yield from _problems_of_rollouts(status.rollouts)
    if status.pool is not None:
        yield from _problems_of_pool(status.pool)
    for place, texts in _texts(status):
        if len(texts) > _MOST_ENTRIES or any(len(text) > LONGEST_REASON for text in texts):
            expected = f"at most {_MOST_ENTRIES} texts of at most {LONGEST_REASON:,} characters"
            yield Problem(place, "more", expected, "cut them")
    if (length := text_length(status)) > _MOST_TEXT:
        expected = f"at most {_MOST_TEXT:,} characters"
        yield Problem("all texts together", f"{length:,} characters", expected, "cut the longest ones")


def text_length(status: DeviceStatus) -> int:
    """Return the length of all names and texts of a status together, in characters."""
    names = sum(len(text) for _, text in _names(status))
    return names + sum(len(text) for _, texts in _texts(status) for text in texts)


def _problems_of_names(status: DeviceStatus) -> Iterator[Problem]:
    for place, text in _names(status):
        if not 0 < len(text) <= LONGEST_NAME:
            expected = f"1 to {LONGEST_NAME} characters"
            yield Problem(place, f"{len(text)} characters", expected, "use a name of this length")
        elif "\0" in text:  # PostgreSQL stores another character in its place
            yield Problem(place, repr(text), "text without NUL characters", "leave them out")


def _names(status: DeviceStatus) -> Iterator[tuple[str, str]]:
    for place in ("name", "job_id", "goal_id", "option"):
        yield place, getattr(status, place)
    if status.last_switch is not None:
        yield "last_switch.previous", status.last_switch.previous
    if status.rollouts is not None:
        yield "rollouts.package", status.rollouts.package
        if status.rollouts.installation is not None:
            yield "rollouts.installation.rollout", status.rollouts.installation.rollout


def _moments(status: DeviceStatus) -> Iterator[tuple[str, int]]:
    if status.last_switch is not None:
        yield "last_switch.unix_ms", status.last_switch.unix_ms
    if status.adaptation is not None and status.adaptation.adapted_unix_ms is not None:
        yield "adaptation.adapted_unix_ms", status.adaptation.adapted_unix_ms


def _problems_of_adaptation(adaptation: DeviceAdaptation) -> Iterator[Problem]:
    if not (math.isfinite(adaptation.shift) and adaptation.shift >= 0):
        yield Problem("adaptation.shift", f"{adaptation.shift:g}", "at least 0", "measure it again")
    if adaptation.examples < 0:
        yield Problem("adaptation.examples", str(adaptation.examples), "at least 0", "count them again")


def _problems_of_rollouts(rollouts: DeviceRollouts) -> Iterator[Problem]:
    agreement = None if rollouts.installation is None else rollouts.installation.agreement
    if agreement is not None and not 0 <= agreement <= 1:
        place = "rollouts.installation.agreement"
        yield Problem(place, f"{agreement:g}", "a share from 0 to 1", "measure it again")


def _problems_of_pool(pool: DevicePool) -> Iterator[Problem]:
    if len(pool.subnets) > MOST_SUBNETS:
        yield Problem("pool.subnets", f"{len(pool.subnets)}", f"at most {MOST_SUBNETS}", "cut them")
    for number, subnet in enumerate(pool.subnets):
        if not math.isfinite(subnet.accuracy):
            yield Problem(
                f"pool.subnets[{number}].accuracy", f"{subnet.accuracy}", "a number", "leave it out"
            )


def _times(status: DeviceStatus) -> Iterator[tuple[str, float]]:
    yield "latency_ms", status.latency_ms
    yield "expected_ms", status.expected_ms
    if status.pool is not None:
        yield "pool.original_ms", status.pool.original_ms
        for number, subnet in enumerate(status.pool.subnets):
            yield f"pool.subnets[{number}].latency_ms", subnet.latency_ms
    if status.rollouts is not None:
        yield from _times_of_rollouts(status.rollouts)


def _times_of_rollouts(rollouts: DeviceRollouts) -> Iterator[tuple[str, float]]:
    if rollouts.measured_ms is not None:
        yield "rollouts.measured_ms", rollouts.measured_ms
    if rollouts.installation is not None and rollouts.installation.before_ms is not None:
        yield "rollouts.installation.before_ms", rollouts.installation.before_ms


def _texts(status: DeviceStatus) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "reason", (status.reason,)
    if status.last_switch is not None:
        yield "last_switch.reason", (status.last_switch.reason,)
    if status.rollouts is not None and status.rollouts.installation is not None:
        yield "rollouts.installation.reason", (status.rollouts.installation.reason,)
    for place, texts in (("targets", status.targets), ("problems", status.problems)):
        yield place, (*texts, *texts.values())
