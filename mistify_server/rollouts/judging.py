"""When a stage of a roll-out passes, and when the roll-out stops by itself."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from mistify.parsing.quantities import format_share
from mistify.rollouts import (
    Rollout,
    RolloutFigures,
    RolloutOutcome,
    RolloutProgress,
    RolloutState,
    StageProgress,
)
from mistify.wording import MOST_LISTED, counted, listed
from mistify_server.rollouts.members import Member

_DIGITS: Final = 3

#: Maximum length of a device's error in the reason of a roll-out, in characters.
_MOST_ERROR: Final = 300


def figures_of(members: Iterable[Member]) -> RolloutFigures:
    """Return the figures over the devices that have reported."""
    reported = [member for member in members if member.settled or member.failed]
    slowdowns = [member.slowdown for member in reported if member.slowdown is not None]
    agreements = [member.agreement for member in reported if member.agreement is not None]
    return RolloutFigures(
        errors=sum(member.failed for member in reported) / len(reported) if reported else None,
        latency=median(slowdowns) if slowdowns else None,
        agreement=fmean(agreements) if agreements else None,
    )


def outcome_of(rollout: Rollout, members: Sequence[Member]) -> RolloutOutcome:
    """Return the present state of a roll-out's devices."""
    stages = [
        _stage(share, [member for member in members if member.stage == number])
        for number, share in enumerate(rollout.stages)
    ]
    return RolloutOutcome(tuple(stages), figures_of(members))


def progress_of(rollout: Rollout, members: Sequence[Member]) -> RolloutProgress:
    """Return a roll-out with its devices as they are now."""
    outcome = outcome_of(rollout, members)
    running = sum(member.runs_it for member in members)
    return RolloutProgress(rollout, outcome.stages, outcome.figures, running)


def _stage(share: float, members: Sequence[Member]) -> StageProgress:
    return StageProgress(
        share,
        devices=len(members),
        installed=sum(member.settled for member in members),
        installing=sum(member.installing for member in members),
        failed=sum(member.failed for member in members),
    )


def judged(rollout: Rollout, members: Sequence[Member], now_ms: int) -> Rollout:
    """Return a roll-out that is under way as it goes on: unchanged, in its next stage, done or stopped.

    Args:
        members: All of its devices.
        now_ms: Milliseconds since 1970.
    """
    taking_part = [each for each in members if each.stage <= rollout.stage or each.installation is not None]
    reported = [member for member in taking_part if member.settled or member.failed]
    if len(reported) < max(1, _needed(rollout, taking_part)):
        return rollout
    beyond = _beyond_limit(rollout, reported)
    if beyond is not None:
        stopped = replace(rollout, state=RolloutState.STOPPED, since_unix_ms=now_ms, reason=beyond)
        return replace(stopped, outcome=outcome_of(rollout, members))
    new = [member for member in taking_part if member.stage == rollout.stage]
    reported_in_stage = sum(member.settled or member.failed for member in new)
    due = now_ms - rollout.since_unix_ms >= 1000 * rollout.criteria.after_seconds
    if rollout.state is RolloutState.PAUSED or reported_in_stage < _needed(rollout, new) or not due:
        return rollout
    return _advanced(rollout, reported, now_ms)


def _needed(rollout: Rollout, members: Iterable[Member]) -> int:
    """Return how many devices have to report: fewer if there are not as many, or if some are off."""
    there = sum(member.awaited or member.settled or member.failed for member in members)
    return min(rollout.criteria.devices, there)


def _advanced(rollout: Rollout, reported: Sequence[Member], now_ms: int) -> Rollout:
    share = format_share(rollout.stages[rollout.stage], _DIGITS)
    reason = f"the stage of {share} has passed: {_described(figures_of(reported), len(reported))}"
    if rollout.stage + 1 < len(rollout.stages):
        return replace(rollout, stage=rollout.stage + 1, since_unix_ms=now_ms, reason=reason)
    return replace(rollout, state=RolloutState.DONE, since_unix_ms=now_ms, reason=reason)


def _described(figures: RolloutFigures, count: int) -> str:
    """Return figures as text."""
    parts = [f"{counted(count, 'device')} reported"]
    if figures.errors is not None:
        parts.append(f"errors {format_share(figures.errors, _DIGITS)}")
    if figures.latency is not None:
        parts.append(f"latency {figures.latency:.3g}x")
    if figures.agreement is not None:
        parts.append(f"agreement {format_share(figures.agreement, _DIGITS)}")
    return ", ".join(parts)


def _beyond_limit(rollout: Rollout, reported: Sequence[Member]) -> str | None:
    """Return the first figure that is beyond its limit, with the devices; None if there is none."""
    limits, figures = rollout.criteria, figures_of(reported)
    if figures.errors is not None and figures.errors > limits.errors:
        failed = [member for member in reported if member.failed]
        return (
            f"{len(failed)} of {counted(len(reported), 'device')} failed, "
            f"{format_share(figures.errors, _DIGITS)} with a limit of "
            f"{format_share(limits.errors, _DIGITS)}: {_errors(failed)}"
        )
    if limits.latency is not None and figures.latency is not None and figures.latency > limits.latency:
        slowest = sorted(
            ((member.slowdown, member.name) for member in reported if member.slowdown is not None),
            reverse=True,
        )
        devices = listed([f"{name} ({slowdown:.3g}x)" for slowdown, name in slowest])
        return (
            f"the latency is {figures.latency:.3g} times that before, with a limit of {limits.latency:.3g}: "
            f"{devices}"
        )
    if (
        limits.agreement is not None
        and figures.agreement is not None
        and figures.agreement < limits.agreement
    ):
        lowest = sorted(
            (member.agreement, member.name) for member in reported if member.agreement is not None
        )
        devices = listed([f"{name} ({format_share(share, _DIGITS)})" for share, name in lowest])
        return (
            f"the new and the old package agree on {format_share(figures.agreement, _DIGITS)} of the "
            f"examples, with a limit of {format_share(limits.agreement, _DIGITS)}: {devices}"
        )
    return None


def _errors(failed: Sequence[Member]) -> str:
    """Return the first errors with their devices."""
    shown = [f"{member.name} ({(member.error or '')[:_MOST_ERROR]})" for member in failed[:MOST_LISTED]]
    return listed(shown) if len(failed) <= MOST_LISTED else f"{', '.join(shown)} and others"
