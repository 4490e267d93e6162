"""Status reports of this device to the server, for its fleet page."""

import threading
from collections.abc import Mapping

from mistify.fleet import (
    LONGEST_REASON,
    MOST_SUBNETS,
    DeviceAdaptation,
    DevicePool,
    DeviceStatus,
    DeviceSubnet,
    LastSwitch,
)
from mistify.package.manifest import Manifest
from mistify.rollouts import DeviceRollouts
from mistify_client.adapting.storage import AdaptationState
from mistify_client.assembly.pool import SubnetPool
from mistify_client.monitor.config import FleetConfig
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.replacement.access import RETRY, ServerAccess, passes
from mistify_client.monitor.rollouts.following import RolloutFollower
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.status import targets
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.retry import Backoff

_ABOUT = "fleet"


class FleetReports:
    """Sends the most recent status: at once after a change, and at regular intervals.

    A thread sends one status at a time, so a slow server gets fewer of them. If the server is unreachable,
    the thread waits for it, and then sends the most recent status.

    Args:
        config: Settings of the reports.
        journal: The log for problems.
        follower: Follows the instructions in the responses; None to ignore them.
        retry: The delay after a failure; the number of attempts is not limited.
    """

    def __init__(
        self,
        config: FleetConfig,
        journal: Journal,
        follower: RolloutFollower | None = None,
        *,
        retry: Backoff = RETRY,
    ) -> None:
        self._config = config
        self._journal = journal
        self._follower = follower
        self._access = ServerAccess(config, DevicesClient, retry)
        self._thread: threading.Thread | None = None
        self._newest: DeviceStatus | None = None
        self._reported: DeviceStatus | None = None
        self._reported_at = float("-inf")

    def observe(
        self,
        now: float,
        outcome: IntervalOutcome,
        last_switch: LastSwitch | None,
        adaptation: AdaptationState | None = None,
    ) -> None:
        """Report the status if a report is due; called in each interval.

        Args:
            now: Seconds of the monotonic clock.
            outcome: The current decision.
            last_switch: The last change of the option.
            adaptation: The state of the adaptation; None without one.
        """
        problems = self._journal.problems
        rollouts = None if self._follower is None else self._follower.report
        self._newest = device_status(
            self._config.name, outcome, last_switch, problems, adaptation, rollouts=rollouts
        )
        changed = self._reported is None or _state(self._newest) != _state(self._reported)
        busy = self._thread is not None and self._thread.is_alive()
        if busy or not (changed or now - self._reported_at >= self._config.every):
            return
        self._reported, self._reported_at = self._newest, now
        self._thread = threading.Thread(
            target=self._access.repeat, args=(self._report,), name="mistify-fleet", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Cancel a running report."""
        self._access.stop()
        if self._thread is not None:
            self._thread.join()

    def _report(self) -> bool:
        """Send the most recent status; return False if it has to be sent again."""
        status = self._newest
        if status is None:
            return True
        try:
            with self._access.connected() as client:
                instruction = client.report_status(status)
        except Exception as error:  # also of text that cannot be sent: a failed thread would go unnoticed
            if not self._access.stopped:
                self._journal.problem(_ABOUT, str(error))
            return not passes(error)
        self._journal.problem(_ABOUT, None)
        if self._follower is not None:
            self._follower.follow(instruction)
        return True


def _state(status: DeviceStatus) -> tuple[object, ...]:
    """Return the part of a status that does not vary between inferences."""
    return (
        status.job_id,
        status.goal_id,
        status.option,
        status.fits,
        status.targets,
        status.problems,
        status.last_switch,
        status.pool,
        None if status.adaptation is None else status.adaptation.adapted_unix_ms,
        None if status.rollouts is None else _rollout_state(status.rollouts),
    )


def _rollout_state(rollouts: DeviceRollouts) -> tuple[object, ...]:
    return rollouts.package, rollouts.installation, rollouts.measured_ms is None


def device_status(
    name: str,
    outcome: IntervalOutcome,
    last_switch: LastSwitch | None,
    problems: Mapping[str, str],
    adaptation: AdaptationState | None = None,
    *,
    rollouts: DeviceRollouts | None = None,
) -> DeviceStatus:
    """Return the status of a device.

    Args:
        name: The device's name in its fleet.
        outcome: The current decision.
        last_switch: The last change of the option.
        problems: Part of the monitor -> its problem.
        adaptation: The state of the adaptation; None without one.
        rollouts: The state of roll-outs; None if the device follows none.
    """
    option, situation = outcome.decision.option, outcome.situation
    expected_ms = {each.id: each.costs.latency_ms for each in situation.options}
    return DeviceStatus(
        name=name,
        job_id=outcome.manifest.job,
        goal_id=outcome.manifest.goal,
        option=option,
        options=len(situation.options),
        latency_ms=outcome.predicted_ms[option],
        expected_ms=expected_ms[option],
        idle=situation.idle,
        fits=outcome.decision.fits,
        reason=outcome.decision.reason[:LONGEST_REASON],
        targets={target: str(limit) for target, limit in targets(situation.targets).items()},
        problems={about: problem[:LONGEST_REASON] for about, problem in problems.items() if about != _ABOUT},
        last_switch=last_switch,
        pool=None if outcome.pool is None else _pool(outcome.pool),
        adaptation=None if adaptation is None else _adaptation(adaptation, outcome.manifest),
        rollouts=rollouts,
    )


def _adaptation(state: AdaptationState, manifest: Manifest) -> DeviceAdaptation:
    since = round(manifest.created.timestamp() * 1000) if state.adapted else None
    return DeviceAdaptation(since, state.shift, state.examples)


def _pool(pool: SubnetPool) -> DevicePool:
    subnets = tuple(DeviceSubnet(one.latency_ms, one.accuracy) for one in pool.entries[:MOST_SUBNETS])
    return DevicePool(pool.metric, pool.examples, pool.original_ms, subnets)
