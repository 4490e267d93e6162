"""The widths and the blocks that a network keeps under limits.

The loss of a group grows faster than the logarithm of its width, so that none is starved, and is weighted by
the network's loss without half of the group; its cost is the device's time for a width, which falls in the
steps in which kernels compute channels. Widths go down where the least is lost for the savings, as in HALP
(Shen et al., 2022), several channels at once where a device computes several (along the lower hull of worth
over cost), and come back where the limits leave room.

On ResNet-8 (CIFAR-10, 28 networks with widths between 1/8 and 1 of the source's) this worth and the depth
predict accuracy within 1.2 points, multiply-adds and depth within 1.8. A residual block of three costs 2 to 5
points, the less the wider the network.
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

#: How much the logarithm of the depth counts, against what widths lose.
DEPTH: Final = 0.8

#: Power of the halvings of a width with which its loss grows.
POWER: Final = 1.5

#: The name of a group -> how much it counts, above 0.
Weights: TypeAlias = Mapping[str, float]

#: Widths of a group that are tried at once, at most about.
_WIDTHS: Final = 16

#: Worth that an exchange gains at least, and that is given up for it at most.
_LEAST_GAIN: Final = 0.01
_MOST_EXCHANGED: Final = 0.25

#: Groups of the largest networks in which exchanges are tried: with more they take minutes.
_MOST_GROUPS: Final = 12

#: Blocks that are left out, until so many of these numbers in a row were of no use.
_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PATIENCE: Final = 2


@dataclass(frozen=True)
class AllocationTerms:
    """The limits of an allocation, and the weights of groups and blocks.

    Attributes:
        limits: Limits on costs.
        profiles: Profiles of the hardware whose latency is limited, among others.
        weights: Weight of each group.
        blocks: Weight of each residual block; blocks that are not named count alike.
        source: Structure of the network from which all others descend.
    """

    limits: Costs
    profiles: tuple[Profile, ...]
    weights: Weights
    blocks: Weights
    source: Structure

    def of_limited_hardware(self) -> "AllocationTerms":
        """Return the terms without hardware that no limit names."""
        limited = (each for each in self.profiles if depend_on_hardware(self.limits, each.name))
        return replace(self, profiles=tuple(limited))


@dataclass(frozen=True)
class Allocation:
    """The remaining part of a network.

    Attributes:
        widths: Number of units left in each channel group.
        left_out: Names of the residual blocks that are gone.
        worth: 0 for the source, -1 for a network that is half as wide.
    """

    widths: Mapping[str, int]
    left_out: frozenset[str]
    worth: float


def allocations(structure: Structure, widths: Widths, terms: AllocationTerms) -> list[Allocation]:
    """Return the most worthy networks within limits that can be cut from one, each with fewer blocks.

    Blocks go one after the other, those first that save most for their weight, as long as the network gains
    by it. The real loss without a block depends on what the network has learned; the worth is that of the
    usual network.

    Args:
        widths: Number of units left in each group.

    Returns:
        The networks, the first with the most blocks; none if the limits cannot be met with the least units of
        each group and the fewest blocks.
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
    """Return the most worthy network that has all blocks of a structure; None if none is within the limits.

    Args:
        widths: Number of units left in each group.
        quickly: Accept a network that is worth hardly less, in a quarter of the time.
    """
    return _allocation(_Depth(structure, frozenset()), widths, terms.of_limited_hardware(), quickly=quickly)


def _allocation(
    at: "_Depth", widths: Widths, terms: AllocationTerms, *, quickly: bool = False
) -> Allocation | None:
    descent = _Descent(at.structure, widths, terms)
    if not descent.reach():
        return None
    if len(widths) <= _MOST_GROUPS and not quickly:
        descent.exchange()
    return Allocation(descent.widths, at.left_out, descent.worth)


@dataclass(frozen=True)
class _Depth:
    """A network without some of its blocks."""

    structure: Structure
    left_out: frozenset[str]


def _depths(structure: Structure, terms: AllocationTerms) -> Iterator[_Depth]:
    """Yield the network with all of its blocks, and then with fewer and fewer.

    Blocks that save most for their weight go first.
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
    """Return the most layers that multiply by weights on a way from an input to an output."""
    depths: dict[int, int] = {}
    for layer in network.layers:
        before = max((depths.get(tensor, 0) for tensor in layer.inputs), default=0)
        depths[layer.output] = before + (layer.multiply_adds > 0)
    return max((depths.get(tensor, 0) for tensor in network.outputs), default=0)


class _Descent:
    """The way down from the widths of a network to those within limits.

    Args:
        start: The widths at the start, which no group exceeds.

    Attributes:
        widths: The present widths.
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
        # A group that is not the source's comes of one that was taken apart.
        self._sizes = {name: source.groups.get(name, structure.groups[name]).size for name in start}
        deep, source_deep = depth(structure.network(start)), depth(source.network())
        self._of_depth = DEPTH * log2(max(deep, 1) / max(source_deep, 1))
        self.widths = dict(start)

    @property
    def worth(self) -> float:
        """The worth of the network: less by the weighted mean of the groups' losses, and by that of depth."""
        return self._of_depth - sum(self._loss(name, width) for name, width in self.widths.items())

    def reach(self) -> bool:
        """Go down to within the limits; return whether they can be met."""
        if exceeded(self._costs(self._least), self._limits):
            return False
        costs = self._costs({})
        queue = [(*self._step(name, costs), name) for name in self.widths]
        heapq.heapify(queue)
        while exceeded(costs, self._limits):
            lost, width, name = heapq.heappop(queue)
            fresh = self._step(name, costs)  # what a cut saves changes with those of its neighbours
            if fresh > (lost, width) and queue and fresh > queue[0][:2]:
                heapq.heappush(queue, (*fresh, name))
                continue
            lost, width = fresh
            if lost == inf:  # no group saves anything by itself
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
        """Cut one group to put back others, as long as that makes the network more worthy."""
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
        """Put back units wherever the limits leave room, most worth first; not of one group."""
        while True:
            gains = [gain for name in self.widths if name != but and (gain := self._gain(name)) is not None]
            if not gains:
                break
            _, name, width = max(gains)
            self.widths[name] = width
        # Then what lies between two of the widths that were tried.
        for name in (name for name in self.widths if name != but):
            while self.widths[name] < self._start[name] and not exceeded(
                self._costs({name: self.widths[name] + 1}), self._limits
            ):
                self.widths[name] += 1

    def _loss(self, name: str, width: int) -> float:
        """Return the loss of a group at a width, weighted for the mean; negative if it was widened."""
        halvings = log2(self._sizes[name] / width)
        return self._weights[name] * copysign(abs(halvings) ** POWER, halvings)

    def _gain(self, name: str) -> tuple[float, str, int] | None:
        """Return the gain of a wider width of a group within the limits; None if there is none."""
        now, start = self.widths[name], self._start[name]
        above = min((width for width in self._narrower(name, start) if width > now), default=start)
        for width in dict.fromkeys((above, start)) if start > now else ():
            if not exceeded(self._costs({name: width}), self._limits):
                return self._loss(name, now) - self._loss(name, width), name, width
        return None

    def _step(self, name: str, costs: Costs) -> tuple[float, int]:
        """Return the least loss of worth over savings by cutting a group, and the width to cut it to."""
        now, best = self.widths[name], (inf, self._least[name])
        for width in self._narrower(name, now):
            saved = self._saved(costs, self._costs({name: width}))
            if saved > 0:
                best = min(best, ((self._loss(name, width) - self._loss(name, now)) / saved, width))
        return best

    def _saved(self, costs: Costs, less: Costs) -> float:
        """Return the savings on exceeded limits, as a share of the necessary savings."""
        return sum(
            (costs[axis] - less[axis]) / (costs[axis] - limit)
            for axis, limit in self._limits.items()
            if costs[axis] > limit
        )

    def _costs(self, changed: Widths) -> Costs:
        network = self._structure.network({**self.widths, **changed})
        return costs_of(network, self._profiles, only=self._limits)

    def _narrower(self, name: str, width: int) -> Iterator[int]:
        """Yield widths of a group below one: all, or multiples of a power of two; the least at the end."""
        grain, least = 1, self._least[name]
        while width // grain > _WIDTHS:
            grain *= 2
        yield from range((width - 1) // grain * grain, least, -grain)
        if least < width:
            yield least
