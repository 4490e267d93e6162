"""The choice of widths and blocks that a network keeps under given limits.

The loss of a group grows faster than the logarithm of its width, so that no group is starved. It is weighted
by the network's loss without half of the group. The cost of a group is the device's time at a width, which is
a step function because kernels compute several channels at once. Widths are reduced where the loss per saving
is smallest, as in HALP (Shen et al., 2022), several channels at a time if the device computes several (along
the lower convex hull of worth over cost), and increased again where the limits leave room.

On ResNet-8 (CIFAR-10, 28 networks with widths between 1/8 and 1 of the source's), this worth together with
the depth predicts accuracy within 1.2 points; multiply-adds and depth predict it within 1.8. Removing one of
the three residual blocks costs 2 to 5 points, less in wider networks.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import copysign, inf, log2
from typing import Final, TypeAlias

from executors.structure import ResidualBlock, Structure, Widths, removable_blocks, remove_blocks
from mistify.costs.axes import costs_of, depend_on_hardware
from mistify.costs.budget import Costs, exceeded
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import Profile

#: Weight of the logarithm of the depth, relative to the loss from reduced widths.
DEPTH: Final = 0.8

#: The exponent with which the loss of a group grows with the halvings of its width.
POWER: Final = 1.5

#: Group name -> weight, above 0.
Weights: TypeAlias = Mapping[str, float]

#: Approximate maximum number of widths of a group that are compared in one step.
_WIDTHS: Final = 16

#: Minimum gain in worth of an exchange, and maximum worth given up for it.
_LEAST_GAIN: Final = 0.01
_MOST_EXCHANGED: Final = 0.25

#: Maximum number of groups for which exchanges are tried; with more groups they take minutes.
_MOST_GROUPS: Final = 12

#: Numbers of blocks to remove, and the number of consecutive ones without improvement that ends the search.
_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PATIENCE: Final = 2


@dataclass(frozen=True)
class AllocationTerms:
    """The limits of an allocation, and the weights of groups and blocks.

    Attributes:
        limits: Axis -> limit on the cost.
        profiles: Profiles of the hardware, including all with limited latency.
        weights: Weight of each group.
        blocks: Weight of each residual block; the others have equal weights.
        source: Structure of the network from which all others descend.
    """

    limits: Costs
    profiles: tuple[Profile, ...]
    weights: Weights
    blocks: Weights
    source: Structure

    def of_limited_hardware(self) -> "AllocationTerms":
        """Return the terms without hardware that no limit refers to."""
        limited = (each for each in self.profiles if depend_on_hardware(self.limits, each.name))
        return replace(self, profiles=tuple(limited))


@dataclass(frozen=True)
class Allocation:
    """A reduced network.

    Attributes:
        widths: Number of units left in each channel group.
        removed_blocks: Names of the removed residual blocks.
        worth: 0 for the source, -1 for a network that is half as wide.
    """

    widths: Mapping[str, int]
    removed_blocks: frozenset[str]
    worth: float


def allocations(structure: Structure, widths: Widths, terms: AllocationTerms) -> list[Allocation]:
    """Return the best networks within limits that can be cut from one, with ever fewer blocks.

    Blocks are removed one after the other, in order of savings per weight, as long as the worth increases.
    The real loss without a block depends on the trained network; the worth is that of a typical network.

    Args:
        widths: Number of units left in each group.

    Returns:
        The networks, the one with the most blocks first; none if the limits cannot be met even with the
        minimum units of each group and the fewest blocks.
    """
    terms = terms.of_limited_hardware()
    networks: list[Allocation] = []
    useless = 0
    for without in _depths(structure, terms):
        left = {name: widths[name] for name in without.structure.groups}
        allocation = _allocation(without, left, terms)
        best = max((other.worth for other in networks), default=-inf)
        if allocation is not None:
            networks.append(allocation)
        useless = 0 if allocation is not None and allocation.worth > best else useless + bool(networks)
        if useless == _PATIENCE:
            break
    return networks


def allocate(
    structure: Structure, widths: Widths, terms: AllocationTerms, *, quickly: bool = False
) -> Allocation | None:
    """Return the network of highest worth with all blocks of a structure; None if none is within the limits.

    Args:
        widths: Number of units left in each group.
        quickly: Accept a network with slightly lower worth, found in a quarter of the time.
    """
    return _allocation(_Depth(structure, frozenset()), widths, terms.of_limited_hardware(), quickly=quickly)


def _allocation(
    at: "_Depth", widths: Widths, terms: AllocationTerms, *, quickly: bool = False
) -> Allocation | None:
    descent = _Descent(at.structure, widths, terms)
    if not descent.meet_limits():
        return None
    if len(widths) <= _MOST_GROUPS and not quickly:
        descent.exchange()
    return Allocation(descent.widths, at.removed_blocks, descent.worth)


@dataclass(frozen=True)
class _Depth:
    """A network without some of its blocks."""

    structure: Structure
    removed_blocks: frozenset[str]


def _depths(structure: Structure, terms: AllocationTerms) -> Iterator[_Depth]:
    """Yield the network with all of its blocks, and then with fewer and fewer.

    Blocks with the highest savings per weight are removed first.
    """
    yield _Depth(structure, frozenset())

    def rate(block: ResidualBlock) -> float:
        costs = costs_of(remove_blocks(structure, [block]).network(), terms.profiles)
        saved = max((whole[axis] - costs[axis]) / limit for axis, limit in terms.limits.items())
        return saved / terms.blocks.get(block.name, 1.0)

    whole = costs_of(structure.network(), terms.profiles)
    order = sorted(removable_blocks(structure), key=rate, reverse=True)
    for count in (count for count in _COUNTS if count <= len(order)):
        gone = order[:count]
        yield _Depth(remove_blocks(structure, gone), frozenset(block.name for block in gone))


def depth(network: NetworkCost) -> int:
    """Return the largest number of layers with multiplied weights on a path from an input to an output."""
    depths: dict[int, int] = {}
    for layer in network.layers:
        before = max((depths.get(tensor, 0) for tensor in layer.inputs), default=0)
        depths[layer.output] = before + (layer.multiply_adds > 0)
    return max((depths.get(tensor, 0) for tensor in network.outputs), default=0)


class _Descent:
    """A greedy descent from the widths of a network to widths within the limits.

    Args:
        start: The initial widths, which no group exceeds.

    Attributes:
        widths: The current widths.
    """

    def __init__(self, structure: Structure, start: Widths, terms: AllocationTerms) -> None:
        self._structure = structure
        self._start = dict(start)
        self._least = {name: structure.groups[name].least for name in start}
        self._limits = terms.limits
        self._profiles = terms.profiles
        source, weights = terms.source, terms.weights
        total = sum(weights[name] for name in start)
        self._weights = {name: weights[name] / total for name in start}
        # A group that the source lacks is part of a group that was split.
        self._sizes = {name: source.groups.get(name, structure.groups[name]).size for name in start}
        deep, source_deep = depth(structure.network(start)), depth(source.network())
        self._of_depth = DEPTH * log2(max(deep, 1) / max(source_deep, 1))
        self.widths = dict(start)

    @property
    def worth(self) -> float:
        """The worth of the network: the depth term minus the weighted mean loss of the groups."""
        return self._of_depth - sum(self._loss(name, width) for name, width in self.widths.items())

    def meet_limits(self) -> bool:
        """Reduce widths until the limits are met; return whether this is possible."""
        if exceeded(self._costs(self._least), self._limits):
            return False
        costs = self._costs({})
        queue = [(*self._step(name, costs), name) for name in self.widths]
        heapq.heapify(queue)
        while exceeded(costs, self._limits):
            lost, width, name = heapq.heappop(queue)
            fresh = self._step(name, costs)  # the savings of a cut depend on the neighbouring groups
            if fresh > (lost, width) and queue and fresh > queue[0][:2]:
                heapq.heappush(queue, (*fresh, name))
                continue
            lost, width = fresh
            if lost == inf:  # no group saves anything on its own
                self.widths = {
                    other: max(self._least[other], wide - 1) for other, wide in self.widths.items()
                }
            else:
                self.widths[name] = width
            costs = self._costs({})
            heapq.heappush(queue, (*self._step(name, costs), name))
        self._fill()
        return True

    def exchange(self) -> None:
        """Cut one group to widen others, as long as the worth of the network increases."""
        improved = True
        while improved:
            improved = False
            for name in self.widths:
                before, worth = dict(self.widths), self.worth
                for width in self._narrower(name, before[name]):
                    self.widths = {**before, name: width}
                    self._fill(but=name)
                    if self.worth > worth + _LEAST_GAIN:
                        improved = True
                        break
                    self.widths = dict(before)
                    if self._loss(name, width) - self._loss(name, before[name]) > _MOST_EXCHANGED:
                        break

    def _fill(self, but: str = "") -> None:
        """Widen groups wherever the limits leave room, highest gain first; skip the group `but`."""
        while True:
            gains = [gain for name in self.widths if name != but and (gain := self._gain(name)) is not None]
            if not gains:
                break
            _, name, width = max(gains)
            self.widths[name] = width
        # Then try the widths between the compared ones.
        for name in (name for name in self.widths if name != but):
            while self.widths[name] < self._start[name] and not exceeded(
                self._costs({name: self.widths[name] + 1}), self._limits
            ):
                self.widths[name] += 1

    def _loss(self, name: str, width: int) -> float:
        """Return the weighted loss of a group at a width; negative if it is wider than the source's."""
        halvings = log2(self._sizes[name] / width)
        return self._weights[name] * copysign(abs(halvings) ** POWER, halvings)

    def _gain(self, name: str) -> tuple[float, str, int] | None:
        """Return the gain from widening a group within the limits; None if it cannot be widened."""
        now, start = self.widths[name], self._start[name]
        above = min((width for width in self._narrower(name, start) if width > now), default=start)
        for width in dict.fromkeys((above, start)) if start > now else ():
            if not exceeded(self._costs({name: width}), self._limits):
                return self._loss(name, now) - self._loss(name, width), name, width
        return None

    def _step(self, name: str, costs: Costs) -> tuple[float, int]:
        """Return the smallest loss of worth per saving from cutting a group, and the width to cut it to."""
        now, best = self.widths[name], (inf, self._least[name])
        for width in self._narrower(name, now):
            saved = self._saved(costs, self._costs({name: width}))
            if saved > 0:
                best = min(best, ((self._loss(name, width) - self._loss(name, now)) / saved, width))
        return best

    def _saved(self, costs: Costs, less: Costs) -> float:
        """Return the savings on exceeded limits, as a share of the required savings."""
        return sum(
            (costs[axis] - less[axis]) / (costs[axis] - limit)
            for axis, limit in self._limits.items()
            if costs[axis] > limit
        )

    def _costs(self, changed: Widths) -> Costs:
        network = self._structure.network({**self.widths, **changed})
        return costs_of(network, self._profiles, only=self._limits)

    def _narrower(self, name: str, width: int) -> Iterator[int]:
        """Yield smaller widths of a group: all, or multiples of a power of two; the minimum at the end."""
        grain, least = 1, self._least[name]
        while width // grain > _WIDTHS:
            grain *= 2
        yield from range((width - 1) // grain * grain, least, -grain)
        if least < width:
            yield least
