"""The architectures that can be cut from a network.

They have fewer units in each group, fewer residual blocks, and a lower image resolution.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from executors.structure import (
    ResidualBlock,
    Structure,
    at_resolution,
    removable_blocks,
    remove_blocks,
    residual_blocks,
)
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, exceeded
from mistify.costs.profiles import Profile

#: An architecture as numbers: for each group the log2 of the share of remaining units, at most 0; then 1 or 0
#: for each block that stays or not, and for each removable eighth of the image size.
Genes = npt.NDArray[np.float64]

#: Bisection steps in scaling widths to meet limits.
_HALVINGS = 8

#: Number of parts into which the image size is divided, and how many of them can be removed.
_PARTS = 8
_LEFT_OUT = 4


@dataclass(frozen=True)
class Architecture:
    """A reduced network.

    Attributes:
        widths: Number of units in each channel group.
        removed_blocks: Names of the removed residual blocks.
        scale: Share of the original image height and width.
    """

    widths: Mapping[str, int]
    removed_blocks: frozenset[str]
    scale: float = 1.0


@dataclass(frozen=True)
class _Whole:
    """A network at one resolution, with its residual blocks by name."""

    structure: Structure
    blocks: Mapping[str, ResidualBlock]

    @classmethod
    def of(cls, structure: Structure) -> Self:
        return cls(structure, {block.name: block for block in residual_blocks(structure.graph)})


class ArchitectureSpace:
    """The architectures that can be cut from a network, encoded as genes.

    Blocks with layers that must stay are never removed. With frozen layers, or layers that are kept
    unchanged, the image size cannot be reduced.

    Args:
        widths: Number of units left in each group.
        profiles: Profiles of the hardware with limited latency.
    """

    def __init__(
        self, structure: Structure, widths: Mapping[str, int], profiles: tuple[Profile, ...]
    ) -> None:
        self._widths = widths
        self._profiles = profiles
        self._least = {name: min(least, widths[name]) for name, least in structure.least_widths.items()}
        self._groups = list(structure.groups)
        self._at = dict(_resolutions(structure))
        self.blocks = {block.name: block for block in removable_blocks(structure)}
        self._staying_blocks = len(self._at[1.0].blocks) - len(self.blocks)
        self._cut = lru_cache(maxsize=64)(self._without)
        self._deepest = np.log2(1 / max(widths.values(), default=1))

    @property
    def size(self) -> tuple[int, int]:
        """The number of genes: groups, and removable parts."""
        return len(self._groups), len(self.blocks) + len(self._at) - 1

    @property
    def least(self) -> Genes:
        """The genes with the minimum units of each group, the fewest blocks, and the smallest images."""
        groups, others = self.size
        return np.concatenate([np.full(groups, self._deepest), np.zeros(others)])

    def architecture(self, genes: Genes) -> Architecture:
        """Decode genes to an architecture."""
        groups, blocks = len(self._groups), len(self.blocks)
        widths = {
            name: max(self._least[name], round(self._widths[name] * 2.0**gene))
            for name, gene in zip(self._groups, np.minimum(genes[:groups], 0), strict=True)
        }
        removed_blocks = frozenset(
            name
            for name, stays in zip(self.blocks, genes[groups : groups + blocks], strict=True)
            if not stays
        )
        return Architecture(
            widths, removed_blocks, 1 - np.count_nonzero(genes[groups + blocks :] == 0) / _PARTS
        )

    def structure(self, architecture: Architecture) -> Structure:
        """Return the structure without the blocks that an architecture lacks, at its resolution."""
        return self._cut(architecture.removed_blocks, architecture.scale)

    def costs(self, architecture: Architecture) -> Costs:
        """Return the costs of an architecture."""
        structure = self.structure(architecture)
        widths = {name: architecture.widths[name] for name in structure.groups}
        return costs_of(structure.network(widths), self._profiles)

    def fitted(self, genes: Genes, limits: Costs, depth: int = 0) -> Genes | None:
        """Return the genes with all widths scaled by one factor, the largest that meets the limits.

        Args:
            genes: Genes of any architecture.
            limits: Axis -> limit on the cost.
            depth: Minimum number of blocks, if there are so many; the first blocks that the genes leave out
                are restored.

        Returns:
            None if the limits cannot be met with the minimum units of each group.
        """
        genes = self._deepened(genes, depth)
        low, high = self._deepest, -float(genes[: len(self._groups)].min(initial=0))
        if not self._meets(self._scaled(genes, low), limits):
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._meets(self._scaled(genes, middle), limits) else (low, middle)
        return self._scaled(genes, low)

    def _deepened(self, genes: Genes, depth: int) -> Genes:
        start, end = len(self._groups), len(self._groups) + len(self.blocks)
        stays = genes[start:end] != 0
        staying = self._staying_blocks + np.count_nonzero(stays)
        back = np.flatnonzero(~stays)[: max(0, depth - staying)]
        genes = genes.copy()
        genes[start + back] = 1
        return genes

    def _scaled(self, genes: Genes, shift: float) -> Genes:
        groups = len(self._groups)
        return np.concatenate([np.clip(genes[:groups] + shift, self._deepest, 0), genes[groups:]])

    def _meets(self, genes: Genes, limits: Costs) -> bool:
        return not exceeded(self.costs(self.architecture(genes)), limits)

    def _without(self, removed_blocks: frozenset[str], scale: float) -> Structure:
        whole = self._at[scale]
        return (
            remove_blocks(whole.structure, [whole.blocks[name] for name in removed_blocks])
            if removed_blocks
            else whole.structure
        )


def _resolutions(structure: Structure) -> Iterator[tuple[float, _Whole]]:
    """Yield the network at each possible image scale, the largest first."""
    yield 1.0, _Whole.of(structure)
    for removed_blocks in range(1, _LEFT_OUT + 1):
        scale = 1 - removed_blocks / _PARTS
        smaller = at_resolution(structure, scale)
        if smaller is None:
            return
        yield scale, _Whole.of(smaller)
