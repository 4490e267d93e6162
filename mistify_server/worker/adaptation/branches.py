"""The branches of a multi-branch package: one base, and networks around the goal's (paper 6)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import keras

from executors.structure import Rules, analyse, freeze, shareable_base
from mistify.costs.budget import FLOPS, Budget
from mistify.costs.profiles import Profile
from mistify_server.worker.adaptation.edge import EdgeOutcome
from mistify_server.worker.adaptation.source import expanded

#: The most of the smallest branch's multiply-adds that the base may take: only the rest can be cut.
_BASE_SHARE: Final = 0.5

#: Adapts networks, one from the other, to budgets that fall.
Descent = Callable[[keras.Model, Sequence[Budget]], list[EdgeOutcome]]


@dataclass(frozen=True)
class Branched:
    """The layers that all branches share, and the branches beside the goal's own by their shares."""

    base: tuple[str, ...]
    outcomes: Mapping[float, EdgeOutcome]


def adapt_branches(
    network: keras.Model,
    budget: Budget,
    shares: Sequence[float],
    *,
    profiles: tuple[Profile, ...],
    seed: int,
    rules: Rules,
    descend: Descent,
) -> Branched:
    """Freeze the first layers of a goal's network, and adapt the others to multiples of its budget.

    Larger branches start from the network widened behind its base, smaller ones from the network itself; each
    is adapted from the next larger one.

    Args:
        network: The goal's; its first layers are frozen.
        budget: The goal's.
        shares: The multiples; 1 is the network itself.
        profiles: The hardware whose latency the budget limits.
        seed: Where randomness starts from.
        rules: For its layers.
        descend: Adapts.
    """
    structure = analyse(network)
    least = min(shares) * min(structure.network().flops, budget.get(FLOPS, float("inf")))
    base = shareable_base(structure, _BASE_SHARE * least)
    freeze(network, base)
    outcomes: dict[float, EdgeOutcome] = {}
    larger, smaller = (
        _descending(shares, lambda share: share > 1),
        _descending(shares, lambda share: share < 1),
    )
    if larger:
        wide = expanded(analyse(network, rules), _times(budget, larger[0]), profiles, seed)
        outcomes |= dict(zip(larger, descend(wide, [_times(budget, share) for share in larger]), strict=True))
    if smaller:
        adapted = descend(network, [_times(budget, share) for share in smaller])
        outcomes |= dict(zip(smaller, adapted, strict=True))
    return Branched(base, outcomes)


def _descending(shares: Sequence[float], chosen: Callable[[float], bool]) -> list[float]:
    return sorted(filter(chosen, shares), reverse=True)


def _times(budget: Budget, share: float) -> Budget:
    return {axis: share * limit for axis, limit in budget.items()}
