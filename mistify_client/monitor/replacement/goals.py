"""The goal of a new package that would meet the targets under the current conditions (paper 6)."""

import hashlib
import json
from dataclasses import dataclass
from math import floor, log

from mistify.config.data.targets import OVERALL
from mistify.config.porting import PortingConfig
from mistify.costs.budget import FLOPS
from mistify.package.manifest import Manifest
from mistify.parsing.quantities import format_bytes, format_count, format_energy, format_time
from mistify_client.monitor.sensing.costs import made_for
from mistify_client.monitor.state.targets import Targets

#: Limits are rounded down to powers of this, so that similar conditions lead to the same goal.
_STEP = 1.1

#: Maximum factor by which a network is reduced further than for the latency alone, to compensate for the
#: fixed time, which is a rough estimate.
_MOST_EXTRA_REDUCTION = 2.0

_DIGITS = 4
_LONGEST_ID = 64


@dataclass(frozen=True)
class Shortfall:
    """Conditions under which no option fits.

    Attributes:
        targets: Limits that no option keeps.
        ratio: Ratio of measured to expected latencies.
        fastest_ms: Present latency of the fastest option in milliseconds.
        fixed_ms: The part of `fastest_ms` that does not depend on the network's size, if known.
    """

    targets: Targets
    ratio: float
    fastest_ms: float
    fixed_ms: float = 0.0

    @property
    def too_slow(self) -> bool:
        """True if the latency target is missed."""
        return self.targets.latency is not None and self.fastest_ms > self.targets.latency

    def share(self, latency_ms: float) -> float:
        """Return the share of the fastest option's size-dependent time that would meet the target.

        Args:
            latency_ms: The latency to meet in milliseconds.
        """
        share = latency_ms / self.fastest_ms
        if not self.fixed_ms < latency_ms < self.fastest_ms:
            return share
        return max(
            (latency_ms - self.fixed_ms) / (self.fastest_ms - self.fixed_ms), share / _MOST_EXTRA_REDUCTION
        )


@dataclass(frozen=True)
class NewGoal:
    """A goal to submit to the server.

    Attributes:
        id: Id of the goal; goals with the same limits have the same id.
        config: Porting config of the goal, as JSON text.
        reason: An explanation of the goal and its limits for the log.
    """

    id: str
    config: str
    reason: str


def new_goal(template: PortingConfig, package: Manifest, shortfall: Shortfall) -> NewGoal:
    """Return a copy of the template with limits that meet the targets.

    On the template's hardware, the latency is limited to the share of the fastest option's latency that meets
    the target: without fixed time, to the target's latency divided by the ratio. If the template limits
    `FLOP`, so does the new goal, to the same share of the smallest branch's multiply-adds. A `FLOP` limit
    also replaces a latency limit if the package was not made for the template's hardware and threads, because
    the ratio then refers to the host, or to another number of threads.

    Args:
        template: Porting config with one goal.
        package: Manifest of the current version.
        shortfall: The targets, and the conditions under which they are missed.
    """
    goal, targets, reason = template.adaptation_goal, shortfall.targets, "no option meets the targets"
    if targets.accuracy is not None:
        accuracy = {**(goal.accuracy or {}), OVERALL: targets.accuracy}
        goal = goal.model_copy(update={"accuracy": accuracy})
    limits = goal.model_dump(mode="json", exclude_none=True)
    if targets.latency is not None:
        share = shortfall.share(targets.latency)
        by_latency = "latency" in limits or "FLOP" not in limits
        limits.pop("latency", None)
        if by_latency and made_for(package, template.hardware_name):
            fastest_ms = shortfall.fastest_ms / shortfall.ratio
            limits["latency"] = format_time(rounded_down(fastest_ms * share), _DIGITS)
        elif by_latency and package.latency.threads != template.threads:
            reason += (
                "; multiply-adds are limited, the package was measured with threads: "
                f"{package.latency.threads}, the goal has threads: {template.threads}"
            )
        elif by_latency:
            reason += f"; multiply-adds are limited, the package has no latency for {template.hardware_name}"
        if "FLOP" in limits or "latency" not in limits:
            limits["FLOP"] = format_count(rounded_down(_least_flops(package) * share), _DIGITS)
    if targets.memory is not None:
        limits["memory"] = format_bytes(targets.memory)
    if targets.energy is not None:
        limits["energy"] = format_energy(targets.energy)
    digest = hashlib.sha256(json.dumps(limits, sort_keys=True).encode()).hexdigest()[:8]
    goal_id = f"{template.id[: _LONGEST_ID - len(digest) - 1]}-{digest}"
    config = template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return NewGoal(goal_id, json.dumps([{**config, "id": goal_id, "adaptation_goal": limits}]), reason)


def rounded_down(limit: float) -> float:
    """Round a limit down to a power of 1.1, so that similar conditions lead to the same limit."""
    # The small addend prevents rounding errors from lowering a limit that already is such a power.
    return float(_STEP ** floor(log(limit, _STEP) + 1e-9))


def _least_flops(package: Manifest) -> float:
    return min(part.achieved[FLOPS] for part in package.branches or (package,))
