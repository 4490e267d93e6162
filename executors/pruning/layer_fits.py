"""Fits of single layers of a cut network to what they computed before the cut, by least squares."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Dataset
from executors.pruning.least_squares import ridge_regression
from executors.pruning.windows import places_of, sampled, window_rows
from executors.structure import Keep, Structure, foldable
from executors.structure.graph import Graph, Node
from executors.structure.handlers import Product, Window, handler_of

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

#: Index of a tensor in a graph -> its value for some examples.
Tensors: TypeAlias = dict[int, Any]

#: Positions used to fit a layer: a number per kernel column, with a minimum and a maximum.
_PLACES_PER_COLUMN: Final = 24
_FEWEST_PLACES: Final = 4_000
_MOST_PLACES: Final = 24_000

#: Kernels with more columns are not fitted as a whole, and kernels with more input channels not at all: this
#: would take long, and gigabytes.
_MOST_COLUMNS: Final = 2_500


@dataclass(frozen=True)
class Original:
    """A network before a cut.

    Attributes:
        weights: Layer name -> weights.
    """

    structure: Structure
    weights: Mapping[str, Sequence[Array]]

    @classmethod
    def of(cls, structure: Structure) -> "Original":
        """Return a snapshot of a network."""
        return cls(structure, structure.graph.weights)

    def results(self, node: Node, inputs: Sequence[Any]) -> "list[KernelResults | None]":
        """Return what each kernel of a layer computes; None if a kernel is too wide.

        Args:
            node: The only call of the layer.
            inputs: Its inputs in the network before the cut, as tensors.
        """
        norms = {maker.name for maker in foldable(self.structure.graph).values()}
        return [
            self._of_product(node, product, inputs[product.input].numpy(), node.name in norms)
            for product in handler_of(node.name, node.layer).products(node)
        ]

    def _of_product(
        self, node: Node, product: Product, inputs: Array, normalised: bool
    ) -> "KernelResults | None":
        kernel, window = self._whole(node, product.kernel), product.window
        if kernel.values.shape[product.axis] > _MOST_COLUMNS:
            return None
        columns = kernel.values.size // kernel.values.shape[-1]
        if window is None or columns > _MOST_COLUMNS:
            columns, window = kernel.values.shape[product.axis], None
        count = min(max(_PLACES_PER_COLUMN * columns, _FEWEST_PLACES), _MOST_PLACES)
        places = sampled(places_of(inputs.shape, window or Window()), count, np.random.default_rng(0))
        rows = window_rows(inputs, window or Window(), places)
        if window is not None:
            rows = rows @ kernel.values.reshape(columns, -1)
        bias = None if product.bias is None else self._whole(node, product.bias)
        return KernelResults(rows, places, window, kernel, bias, bias is not None or normalised)

    def _whole(self, node: Node, variable: keras.Variable) -> "_WholeWeight":
        place = next(place for place, own in enumerate(node.layer.weights) if own is variable)
        slots = tuple(
            (name, slot.axis, slot.positions)
            for name, group in self.structure.groups.items()
            for slot in group.slots
            if (slot.layer, slot.weight) == (node.name, place)
        )
        return _WholeWeight(self.weights[node.name][place], slots)


@dataclass(frozen=True)
class _WholeWeight:
    """A weight before a cut.

    Attributes:
        values: The weight.
        slots: The group, the axis and the positions [units, positions] of each slot of the weight.
    """

    values: Array
    slots: Sequence[tuple[str, int, Ids]]

    def left(self, keep: Keep) -> list[Ids]:
        """Return the indices that remain along each axis."""
        masks = [np.ones(size, bool) for size in self.values.shape]
        for name, axis, positions in self.slots:
            masks[axis][positions] = keep[name][:, None]
        return [np.flatnonzero(mask) for mask in masks]

    def places(self, variable: keras.Variable, left: Sequence[Ids]) -> list[Ids]:
        """Return the indices of the remaining part along each axis of the current weight."""
        same = [now == before for now, before in zip(variable.shape, self.values.shape, strict=True)]
        return [ids if as_wide else np.arange(len(ids)) for ids, as_wide in zip(left, same, strict=True)]

    def assign(self, variable: keras.Variable, left: Sequence[Ids], values: Array) -> None:
        """Set the remaining part of the current weight to new values, and all other entries to zero."""
        array = np.zeros(variable.shape, np.float32)
        array[np.ix_(*self.places(variable, left))] = values
        variable.assign(array)


@dataclass(frozen=True)
class KernelResults:
    """The results of a kernel before a cut, at some positions of its layer.

    Attributes:
        rows: The results [places, outputs]; without a window the inputs [places, channels].
        places: Positions in the output; without a window, positions in the input.
        window: The positions that the kernel sums over; None to fit it to inputs like the old ones.
        kernel: The kernel before the cut.
        bias: The bias before the cut; None if there is no bias.
        centred: Whether a constant can be added after the kernel, by its bias or a batch norm.
    """

    rows: Array
    places: Sequence[Ids]
    window: Window | None
    kernel: _WholeWeight
    bias: _WholeWeight | None
    centred: bool

    def fit(self, product: Product, inputs: Array, keep: Keep) -> None:
        """Fit the current kernel, so that the remaining outputs are as before the cut.

        Args:
            product: The current kernel, which is changed.
            inputs: The current inputs of the layer.
            keep: The units left in each group.
        """
        left = self.kernel.left(keep)
        channels = self.kernel.places(product.kernel, left)[product.axis]
        rows = window_rows(inputs[..., channels], self.window or Window(), self.places)
        start = self.kernel.values[np.ix_(*left)]
        if self.window is not None:
            fitted, shift = ridge_regression(
                rows, self.rows[:, left[-1]], start.reshape(rows.shape[1], -1), centred=self.centred
            )
        else:
            others = [ids for axis, ids in enumerate(left) if axis != product.axis]
            whole = np.moveaxis(self.kernel.values, product.axis, 0)
            whole = whole[np.ix_(np.arange(len(whole)), *others)]
            mixed, offset = ridge_regression(
                rows, self.rows, np.eye(len(whole))[left[product.axis]], centred=self.centred
            )
            fitted = np.moveaxis(np.tensordot(mixed, whole, 1), 0, product.axis)
            shift = np.tensordot(offset, whole, 1)
        self.kernel.assign(product.kernel, left, fitted.reshape(start.shape))
        if product.bias is not None and self.bias is not None:
            kept = self.bias.left(keep)
            bias = self.bias.values[np.ix_(*kept)]
            self.bias.assign(product.bias, kept, bias + product.added(shift, bias.ndim))


def fit_layer(node: Node, inputs: Sequence[Any], results: Sequence[KernelResults | None], keep: Keep) -> None:
    """Fit the kernels of a layer after a cut to what they computed before it.

    Args:
        node: The only call of the layer, whose weights are changed.
        inputs: Its current inputs, as tensors.
        results: One entry for each kernel, from before the cut; None for a kernel that is not fitted.
        keep: The units left in each group.
    """
    products = handler_of(node.name, node.layer).products(node)
    # A grouped convolution left with one group has become an ordinary one, with other weights.
    for product, before in zip(products, results, strict=False):
        if product.kernel.trainable and before is not None:
            before.fit(product, inputs[product.input].numpy(), keep)


def input_tensors(graph: Graph, examples: Dataset) -> Tensors:
    """Return the inputs of a network for examples, by their index in its graph."""
    return {
        index: tf.constant(examples.inputs[name].astype(graph.dtypes[index], copy=False))
        for index, name in graph.inputs.items()
    }


def walk(
    graph: Graph, tensors: Tensors, weights: Mapping[str, Sequence[Array]], start: int = 0
) -> Iterator[tuple[Node, list[Any]]]:
    """Run a network; yield each call with its inputs before it runs.

    Batch norms use the statistics of these examples. The network is not changed.

    Args:
        tensors: The inputs of the network, or all tensors that the calls from `start` on read. The results
            are added, and whatever is not read any more is removed; the outputs remain.
        weights: Layer name -> weights that replace the layer's own.
        start: Index of the first call.
    """
    unread = Counter(tensor for node in graph.nodes[start:] for tensor in node.inputs)
    unread.update(graph.outputs)
    for node in graph.nodes[start:]:
        yield node, [tensors[index] for index in node.inputs]
        args, kwargs = node.call_arguments(tensors.__getitem__)
        if isinstance(node.layer, keras.layers.BatchNormalization):
            kwargs = {**kwargs, "training": True}
        own = graph.variables[node.name] if node.name in weights else []
        values = map(tf.constant, weights.get(node.name, ()))
        with keras.StatelessScope(state_mapping=list(zip(own, values, strict=True))):
            tensors[node.output] = node.layer(*args, **kwargs)
        for index in node.inputs:
            unread[index] -= 1
            if not unread[index]:
                tensors.pop(index, None)
