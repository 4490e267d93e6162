"""The goal of a new package: what would keep to the targets under the present conditions (paper 6)."""

import hashlib
import json
from dataclasses import dataclass
from math import floor, log

from mistify.config.porting import PortingConfig
from mistify.costs.budget import FLOPS
from mistify.package.manifest import Manifest
from mistify.parsing.quantities import format_bytes, format_count, format_share, format_time
from mistify_client.monitor.sensing.costs import made_for
from mistify_client.monitor.state.targets import Targets

#: Limits are rounded down to powers of this: conditions that are nearly the same ask for the same goal.
_STEP = 1.1

_DIGITS = 4
_LONGEST_ID = 64


@dataclass(frozen=True)
class Shortfall:
    """Why no branch fits.

    Attributes:
        targets: the limits.
        ratio: how many times longer than expected inferences take.
        fastest_ms: what the fastest branch takes now.
    """

    targets: Targets
    ratio: float
    fastest_ms: float

    @property
    def too_slow(self) -> bool:
        """Whether latency is among the targets that are missed."""
        return self.targets.latency is not None and self.fastest_ms > self.targets.latency


@dataclass(frozen=True)
class NewGoal:
    """A goal to ask the server for.

    Attributes:
        id: the same for equal limits.
        config: the text of its porting config.
        reason: why it is asked for, and why so.
    """

    id: str
    config: str
    reason: str


def new_goal(template: PortingConfig, package: Manifest, shortfall: Shortfall) -> NewGoal:
    """A goal like the template's, with limits that keep to the targets.

    An inference on the template's hardware may take the target's latency divided by the ratio. Where the
    template limits `FLOP`, so is the new goal: to as much less than the package has as it is too slow. That
    takes the place of a latency for which the package was not made: the ratio is then one to the host's.
    """
    limits = template.adaptation_goal.model_dump(mode="json", exclude_none=True)
    targets, reason = shortfall.targets, "no branch keeps to the targets"
    if targets.latency is not None:
        by_latency = "latency" in limits or "FLOP" not in limits
        limits.pop("latency", None)
        if by_latency and made_for(package, template.hardware_name):
            limits["latency"] = format_time(_rounded(targets.latency / shortfall.ratio), _DIGITS)
        elif by_latency:
            reason += f"; multiply-adds are limited, the package has no latency for {template.hardware_name}"
        if "FLOP" in limits or "latency" not in limits:
            spare = targets.latency / shortfall.fastest_ms
            limits["FLOP"] = format_count(_rounded(_least_flops(package) * spare), _DIGITS)
    if targets.memory is not None:
        limits["memory"] = format_bytes(targets.memory)
    if targets.accuracy is not None:
        limits["accuracy"] = format_share(targets.accuracy)
    digest = hashlib.sha256(json.dumps(limits, sort_keys=True).encode()).hexdigest()[:8]
    goal_id = f"{template.id[: _LONGEST_ID - len(digest) - 1]}-{digest}"
    config = template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return NewGoal(goal_id, json.dumps([{**config, "id": goal_id, "adaptation_goal": limits}]), reason)


def _least_flops(package: Manifest) -> float:
    return min(part.achieved[FLOPS] for part in package.branches or (package,))


def _rounded(limit: float) -> float:
    # The tiny addition keeps a limit that is such a power already, up to its last bits.
    return float(_STEP ** floor(log(limit, _STEP) + 1e-9))
