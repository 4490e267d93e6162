"""Reports of devices on roll-outs, without devices."""

from dataclasses import replace
from typing import Any

from mistify.fleet import DeviceStatus
from mistify.rollouts import (
    DeviceInstallation,
    DeviceRollouts,
    InstallationPhase,
    NewRollout,
    RolloutCriteria,
)

#: The job whose package `phone-2` is rolled out, and the goal for which the devices' package was shipped.
JOB, PACKAGE = "20261125-120000-abcd", "phone"


def new_rollout(*stages: float, pattern: str = "*", **criteria: Any) -> NewRollout:
    """Return a roll-out of `phone-2` in place of `phone`, whose stages last no minimum time by default."""
    return NewRollout(
        JOB,
        "phone-2",
        PACKAGE,
        pattern,
        stages or (0.1, 1.0),
        RolloutCriteria(**{"after_seconds": 0.0, **criteria}),
    )


def device(name: str, **rollouts: Any) -> DeviceStatus:
    """Return the status of a device that follows roll-outs."""
    return DeviceStatus(
        name=name,
        job_id=JOB,
        goal_id=PACKAGE,
        option="branch-0",
        options=1,
        latency_ms=4.0,
        expected_ms=4.0,
        idle=False,
        fits=True,
        reason="the only option",
        rollouts=DeviceRollouts(**{"package": PACKAGE, **rollouts}),
    )


def after(
    status: DeviceStatus,
    rollout: str,
    phase: InstallationPhase = InstallationPhase.INSTALLED,
    *,
    slowdown: float | None = 1.0,
    agreement: float | None = None,
    reason: str = "",
) -> DeviceStatus:
    """Return the status of a device once it has reached a phase of a roll-out.

    Args:
        slowdown: Its latency as a multiple of 4 ms before; None if no app runs.
    """
    before_ms = None if slowdown is None else 4.0
    goal_id = "phone-2" if phase is InstallationPhase.INSTALLED else status.goal_id
    installation = DeviceInstallation(rollout, phase, reason, before_ms, agreement)
    measured_ms = None if slowdown is None else 4.0 * slowdown
    rollouts = DeviceRollouts(PACKAGE, measured_ms=measured_ms, installation=installation)
    return replace(status, goal_id=goal_id, rollouts=rollouts)
