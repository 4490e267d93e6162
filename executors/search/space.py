"""The architectures that can be cut from a network.

They have fewer units in each group, fewer residual blocks, and look at smaller images.
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

#: Of an architecture: for each group the binary logarithm of the share of its units that stay, at most 0;
#: then for each block, and for some eighths of the images' sides, whether it stays, 0 or 1.
Genes = npt.NDArray[np.float64]

#: Halvings of the range within which widths are scaled to meet limits.
_HALVINGS = 8

#: Parts of the sides of images, and how many of them can be left out at once.
_PARTS = 8
_LEFT_OUT = 4


@dataclass(frozen=True)
class Architecture:
    """The remaining part of a network.

    Attributes:
        widths: Number of units in each channel group.
        left_out: Names of the residual blocks that are gone.
        scale: Share of the original height and width of the images.
    """

    widths: Mapping[str, int]
    left_out: frozenset[str]
    scale: float = 1.0


@dataclass(frozen=True)
class _Whole:
    """A network at some resolution, and its residual blocks by name."""

    structure: Structure
    blocks: Mapping[str, ResidualBlock]

    @classmethod
    def of(cls, structure: Structure) -> Self:
        return cls(structure, {block.name: block for block in residual_blocks(structure.graph)})


class ArchitectureSpace:
    """The architectures that can be cut from a network, as genes.

    Blocks with layers that must stay are never left out. Frozen layers, and layers that are kept as they are,
    rule out smaller images.

    Args:
        widths: Number of units left in each group.
        profiles: Profiles of the hardware whose latency is limited.
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
        """The number of genes: groups, and parts that can be left out."""
        return len(self._groups), len(self.blocks) + len(self._at) - 1

    @property
    def least(self) -> Genes:
        """The least units of each group and the least blocks, and the smallest images."""
        groups, others = self.size
        return np.concatenate([np.full(groups, self._deepest), np.zeros(others)])

    def architecture(self, genes: Genes) -> Architecture:
        """Return the architecture that genes stand for."""
        groups, blocks = len(self._groups), len(self.blocks)
        widths = {
            name: max(self._least[name], round(self._widths[name] * 2.0**gene))
            for name, gene in zip(self._groups, np.minimum(genes[:groups], 0), strict=True)
        }
        left_out = frozenset(
            name
            for name, stays in zip(self.blocks, genes[groups : groups + blocks], strict=True)
            if not stays
        )
        return Architecture(widths, left_out, 1 - np.count_nonzero(genes[groups + blocks :] == 0) / _PARTS)

    def structure(self, architecture: Architecture) -> Structure:
        """Return the structure without the blocks that an architecture leaves out, at its resolution."""
        return self._cut(architecture.left_out, architecture.scale)

    def costs(self, architecture: Architecture) -> Costs:
        """Return the costs of an architecture."""
        structure = self.structure(architecture)
        widths = {name: architecture.widths[name] for name in structure.groups}
        return costs_of(structure.network(widths), self._profiles)

    def fitted(self, genes: Genes, limits: Costs, depth: int = 0) -> Genes | None:
        """Return the genes with all widths scaled alike, to the largest that meet the limits.

        Args:
            genes: Genes of any architecture.
            limits: Limits on costs.
            depth: Number of blocks that stay, if there are so many; the first blocks that the genes leave out
                come back.

        Returns:
            None if the limits cannot be met with the least units of each group.
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

    def _without(self, left_out: frozenset[str], scale: float) -> Structure:
        whole = self._at[scale]
        return (
            remove_blocks(whole.structure, [whole.blocks[name] for name in left_out])
            if left_out
            else whole.structure
        )


def _resolutions(structure: Structure) -> Iterator[tuple[float, _Whole]]:
    """Yield the network at the shares of its images' sides that it can look at, the largest first."""
    yield 1.0, _Whole.of(structure)
    for left_out in range(1, _LEFT_OUT + 1):
        scale = 1 - left_out / _PARTS
        smaller = at_resolution(structure, scale)
        if smaller is None:
            return
        yield scale, _Whole.of(smaller)
