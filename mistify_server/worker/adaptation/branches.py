"""The branches of a multi-branch package: a shared base, and networks around the goal's size (paper 6)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import keras

from executors.structure import Role, Rules, Structure, analyse, freeze, shareable_base
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, Budget, Costs, meets
from mistify.costs.profiles import Profile
from mistify_server.worker.adaptation.edge import EdgeOutcome

#: Maximum share of the smallest branch's multiply-adds in the base: only the rest can be cut.
_BASE_SHARE: Final = 0.5

#: Adapts a network to decreasing budgets, given by share; each outcome is adapted from the previous one.
Descent = Callable[[keras.Model, Mapping[float, Budget]], list[EdgeOutcome]]


@dataclass(frozen=True)
class Branched:
    """The layers that all branches share, and the adapted branches by share."""

    base: tuple[str, ...]
    outcomes: Mapping[float, EdgeOutcome]


def adapt_branches(
    network: keras.Model,
    budget: Budget,
    shares: Collection[float],
    *,
    profiles: tuple[Profile, ...],
    rules: Rules,
    adapt_largest: Callable[[Budget], EdgeOutcome],
    descend: Descent,
) -> Branched:
    """Adapt the largest branch, freeze its first layers, and adapt each other branch from the next larger.

    First layers of a larger network also suit a smaller one, which is cut in its other layers. Conversely,
    first layers of a smaller network would be a bottleneck for a larger one. So the goal's own network
    becomes a branch only if its budget is the largest, or if no first layers can be shared; otherwise its
    branch is adapted like the others.

    Args:
        network: The goal's network; its first layers are frozen if it is the largest branch.
        budget: The goal's budget.
        shares: Multiples of the budget, including the goal's own 1.
        profiles: Profiles of the hardware with limited latency.
        adapt_largest: Adapts a network to the largest budget, from the best starting point.
        descend: Adapts the other branches, starting from the largest.
    """
    largest, *smaller = sorted(shares, reverse=True)
    flops = min(analyse(network).network().flops, budget.get(FLOPS, float("inf")))
    least = {FLOPS: min(shares) * flops, **_times(budget, min(shares))}
    own, outcomes = network, dict[float, EdgeOutcome]()
    if largest > 1:
        outcomes[largest] = adapt_largest(_times(budget, largest))
        network = outcomes[largest].model
    base = _base(analyse(network, rules), least, profiles)
    freeze(network, base)
    starts = [(network, smaller)]
    if not base and largest > 1:
        starts = [
            (network, [share for share in smaller if share > 1]),
            (own, [share for share in smaller if share < 1]),
        ]
    for start, below in starts:
        adapted = descend(start, {share: _times(budget, share) for share in below}) if below else []
        outcomes |= zip(below, adapted, strict=True)
    return Branched(base, outcomes)


def _base(structure: Structure, least: Budget, profiles: tuple[Profile, ...]) -> tuple[str, ...]:
    """Return the shared first layers of the largest branch, limited by the size of the smallest branch.

    If later layers share their channels, as along a residual stream, these layers could not be cut either,
    and smaller branches would have to lose more elsewhere; then nothing is shared.

    Args:
        structure: The structure of the largest branch.
        least: The budget of the smallest branch, including its multiply-adds.
        profiles: Profiles of the hardware with limited latency.
    """
    multiply_adds = {layer.name: layer.multiply_adds for layer in structure.network().layers}
    base = shareable_base(structure, _BASE_SHARE * least[FLOPS])
    while base and (
        _shares_channels(structure, base) or not meets(_least_costs(structure, base, profiles), least)
    ):
        base = shareable_base(structure, sum(multiply_adds[name] for name in base) - 1)
    return base


def _shares_channels(structure: Structure, base: Collection[str]) -> bool:
    """Check whether first layers share channels with later ones."""
    holders = (
        [slot.layer in base for slot in group.slots if slot.role is not Role.SUMS]
        for group in structure.groups.values()
    )
    return any(any(of_base) and not all(of_base) for of_base in holders)


def _least_costs(structure: Structure, base: Collection[str], profiles: tuple[Profile, ...]) -> Costs:
    """Return the costs of a network with minimal widths except in some first layers."""
    widths = {
        name: group.size if any(slot.layer in base for slot in group.slots) else group.least
        for name, group in structure.groups.items()
    }
    return costs_of(structure.network(widths), profiles)


def _times(budget: Budget, share: float) -> Budget:
    return {axis: share * limit for axis, limit in budget.items()}
