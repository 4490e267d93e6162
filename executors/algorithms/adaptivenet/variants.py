"""Variants that replace a network's blocks (AdaptiveNet 4.1, granularity-aware expansion)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from executors.algorithms.adaptivenet.params import VARIANTS, AdaptiveNetParams
from executors.data import Dataset
from executors.pruning.importance import importances
from executors.pruning.refitting import Original, refit
from executors.structure import Structure, UnsupportedLayerError, analyse, in_series, model_of, narrow
from executors.structure.graph import Graph, Shape
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.plugins import UnusablePlugInError, load_class, plug_ins

__all__ = ["VariantMaker"]

#: Numbers of consecutive blocks to shrink together: longer runs allow more channels between blocks to be cut.
_TOGETHER: Final = (2, 3)


class UnfitVariantError(Exception):
    """A maker's graph cannot replace the blocks; the message completes a sentence about the variant."""


class VariantMaker(ABC):
    """A maker of variants of one kind. Plug-ins are classes in the entry-point group `mistify.variants`."""

    @abstractmethod
    def span(self, amount: float) -> int:
        """Return the number of consecutive blocks that a variant replaces.

        Args:
            amount: A number from the settings, such as the share of channels that remains.

        Raises:
            ValueError: There are no variants of this amount; the message says what was expected.
        """

    @abstractmethod
    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return a cheaper graph with the input of the first block and the output shape of the last.

        Args:
            blocks: The blocks to replace, as many as `span` returns. The graph contains their layers or
                copies, with the initial weights for training.
            amount: A number from the settings, as for `span`.
            features: Examples of the first block's input.

        Returns:
            The graph; None if these blocks have no such variant.
        """


class Shrunk(VariantMaker):
    """Variants with fewer channels inside, whose layers are refitted to their original outputs."""

    def span(self, amount: float) -> int:
        """Return 1: each variant replaces a single block."""
        return 1

    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return the block with its most important channels; None if it has no channels to cut."""
        (block,) = blocks
        widths = {name: max(group.least, round(amount * group.size)) for name, group in block.groups.items()}
        if widths == block.widths:
            return None
        keep = {name: _largest(worth, widths[name]) for name, worth in self.worth(block).items()}
        graph = analyse(narrow(block, keep), block.rules).graph
        refit(Original.of(block), keep, graph, features)
        return graph

    def worth(self, block: Structure) -> Mapping[str, np.ndarray]:
        """Return a score of each unit by its group; the units with the highest scores are kept."""
        return importances(block, {name: np.ones(group.size, bool) for name, group in block.groups.items()})


class ShrunkTogether(Shrunk):
    """Variants of several blocks with fewer channels inside and between them, for plain networks.

    Args:
        span: Number of blocks.
    """

    def __init__(self, span: int) -> None:
        self._span = span

    def span(self, amount: float) -> int:
        """Return the number of blocks that are shrunk together."""
        return self._span

    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return the blocks with their most important channels; None if each has channels to cut inside."""
        if all(block.groups for block in blocks):
            return None
        whole = in_series([block.graph for block in blocks], "block")
        return super().make([analyse(model_of(whole), blocks[0].rules)], amount, features)


class Merged(VariantMaker):
    """Variants with one block in place of several: the one that changes the shape, or else the first."""

    def span(self, amount: float) -> int:
        """Return the number of blocks."""
        if amount != int(amount) or amount < 2:
            raise ValueError("a whole number of blocks, 2 or more")
        return int(amount)

    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return the block that changes the shape, or the first one; None if several change it."""
        changing = [block for block in blocks if _input_shape(block) != _output_shape(block)]
        if len(changing) > 1:
            return None
        return (changing or blocks)[0].graph


@dataclass(frozen=True)
class Kind:
    """Variants of one kind.

    Attributes:
        name: Name of a variant, with its amount.
        maker: Makes the variants.
        amount: The number from the settings passed to the maker.
        span: Number of consecutive blocks that each variant replaces.
    """

    name: str
    maker: VariantMaker
    amount: float
    span: int

    def variant(self, blocks: Sequence[Structure], features: Dataset) -> Graph | None:
        """Return the variant of `span` blocks; None if they have none of this kind.

        Raises:
            UnfitVariantError: The maker fails, or its graph has different inputs or outputs, weights that
                are not finite, or unknown layers.
        """
        try:
            made = self.maker.make(blocks, self.amount, features)
        except Exception as error:  # a plug-in may fail in any way
            raise UnfitVariantError(f"could not be made: {type(error).__name__}: {error}") from error
        if made is not None:
            _check(made, blocks)
        return made


def kinds(params: AdaptiveNetParams) -> list[Kind]:
    """Return the kinds of variants that the settings request.

    Raises:
        MistifyError: INVALID_CONFIG if a plug-in cannot be used or rejects an amount.
    """
    points, asked_for = plug_ins(VARIANTS), list[Kind]()
    for name, amounts in {"merge": params.merge, "shrink": params.shrink, **params.variants}.items():
        for amount in amounts:
            try:
                maker = load_class(points[name], VariantMaker)()
                asked_for.append(Kind(f"{name}-{amount:g}", maker, amount, maker.span(amount)))
            except (UnusablePlugInError, ValueError) as error:
                problem = Problem(
                    f"algorithm.config.variants.{name}", f"{amount:g}", str(error), "correct it"
                )
                raise MistifyError(ErrorCode.INVALID_CONFIG, "a variant cannot be made", [problem]) from error
    together = [
        Kind(f"shrink-{span}-{share:g}", ShrunkTogether(span), share, span)
        for span in _TOGETHER
        for share in params.shrink
    ]
    return asked_for + together


def _check(made: Graph, blocks: Sequence[Structure]) -> None:
    first, last = blocks[0].graph, blocks[-1].graph
    for what, tensors, (expected,), graph in (
        ("reads", tuple(made.inputs), tuple(first.inputs), first),
        ("writes", made.outputs, last.outputs, last),
    ):
        actual = [(made.shapes[tensor][1:], made.dtypes[tensor]) for tensor in tensors]
        wanted = (graph.shapes[expected][1:], graph.dtypes[expected])
        if actual != [wanted]:
            shapes = " and ".join(_shown(*tensor) for tensor in actual) or "nothing"
            raise UnfitVariantError(f"{what} {shapes}; expected {_shown(*wanted)}, as the original does")
    for name, weights in made.weights.items():
        if not all(np.isfinite(weight).all() for weight in weights):
            raise UnfitVariantError(f"has weights in {name} that are not finite; expected numbers")
    try:
        analyse(model_of(made))
    except UnsupportedLayerError as error:
        raise UnfitVariantError(f"cannot be used: {error}") from error


def _shown(shape: Shape, dtype: str) -> str:
    return f"{list(shape)} of {dtype}"


def _largest(worth: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(len(worth), bool)
    kept[np.argsort(-worth, kind="stable")[:count]] = True
    return kept


def _input_shape(block: Structure) -> Shape:
    (tensor,) = block.graph.inputs
    return block.graph.shapes[tensor]


def _output_shape(block: Structure) -> Shape:
    (tensor,) = block.graph.outputs
    return block.graph.shapes[tensor]
