"""Refitting of a cut network to its outputs before the cut, layer by layer, without training.

Layers are fitted in order from the inputs on. Each layer receives the inputs that the cut network computes,
and is fitted to its own outputs before the cut. It thereby compensates both for cuts in its inputs and for
the remaining errors of earlier layers. (He et al., Channel Pruning, 2017, also fit each layer to its old
outputs with the inputs of the cut network.)
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from executors.training.evaluation import examples_of_shapes

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

#: Maximum number of training examples for fitting layers.
_EXAMPLES: Final = 250

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


def refit(original: Original, keep: Keep, graph: Graph, data: Dataset) -> None:
    """Fit the kernels of a cut network to their outputs before the cut.

    Args:
        keep: The units left in each group.
        graph: The network after the cut, with the same layer names: either narrow, or with the weights of all
            other units at zero; some layers may be missing. Its weights are changed.
        data: Training data.
    """
    count = examples_of_shapes(original.structure.graph.shapes, _EXAMPLES)
    examples = data.subset(np.random.default_rng(0).permutation(len(data))[:count])
    fitted = frozenset(_following(original, keep, graph))
    before = _UncutNetwork(original, keep, examples, fitted)
    for node, inputs in _walk(graph, examples, {}):
        if node.name in fitted:
            products = handler_of(node.name, node.layer).products(node)
            # A grouped convolution left with one group has become an ordinary one, with other weights.
            for product, target in zip(products, before.targets(node.name), strict=False):
                if product.kernel.trainable and target is not None:
                    target.fit(product, inputs[product.input].numpy())


def _following(original: Original, keep: Keep, graph: Graph) -> Iterator[str]:
    """Yield the names of the layers that are called once and read other inputs than before the cut."""
    wires, changed = frozenset(_wires(original.structure.graph)), set[int]()
    calls = Counter(node.name for node in original.structure.graph.nodes)
    losing = {
        slot.layer
        for name, group in original.structure.groups.items()
        if not keep[name].all()
        for slot in group.slots
    }
    for node, wire in zip(graph.nodes, _wires(graph), strict=True):
        follows = wire not in wires or not changed.isdisjoint(node.inputs)
        if follows or node.name in losing:
            changed.add(node.output)
        if follows and calls[node.name] == 1:
            yield node.name


@dataclass(frozen=True)
class _KeptWeight:
    """The remaining part of a weight after a cut.

    Attributes:
        whole: The weight before the cut.
        left: Indices of the remaining positions along each axis.
    """

    whole: Array
    left: Sequence[Ids]

    @property
    def values(self) -> Array:
        """The values of the remaining part."""
        return np.asarray(self.whole[np.ix_(*self.left)])

    def places(self, variable: keras.Variable) -> list[Ids]:
        """Return the indices of the remaining part along each axis of the current weight."""
        same = [now == before for now, before in zip(variable.shape, self.whole.shape, strict=True)]
        return [ids if as_wide else np.arange(len(ids)) for ids, as_wide in zip(self.left, same, strict=True)]

    def assign(self, variable: keras.Variable, values: Array) -> None:
        """Set the remaining part of the weight to new values, and all other entries to zero."""
        array = np.zeros(variable.shape, np.float32)
        array[np.ix_(*self.places(variable))] = values
        variable.assign(array)


@dataclass(frozen=True)
class _FitTarget:
    """Outputs that a kernel is fitted to, at some positions of its layer.

    Attributes:
        rows: The kernel's results before the cut for the remaining outputs [places, outputs]; without a
            window its inputs before the cut [places, channels].
        places: Positions in the output; without a window, positions in the input.
        window: The positions that the kernel sums over; None to fit it to inputs like the old ones.
        kernel: The remaining part of the kernel.
        bias: The remaining part of the bias; None if there is no bias.
        centred: Whether a constant can be added after the kernel, by its bias or a batch norm.
    """

    rows: Array
    places: Sequence[Ids]
    window: Window | None
    kernel: _KeptWeight
    bias: _KeptWeight | None
    centred: bool

    def fit(self, product: Product, inputs: Array) -> None:
        """Fit a kernel.

        Args:
            product: The current kernel.
            inputs: The current inputs of the layer.
        """
        channels = self.kernel.places(product.kernel)[product.axis]
        rows = window_rows(inputs[..., channels], self.window or Window(), self.places)
        start = self.kernel.values
        if self.window is not None:
            fitted, shift = ridge_regression(
                rows, self.rows, start.reshape(rows.shape[1], -1), centred=self.centred
            )
        else:
            others = [ids for axis, ids in enumerate(self.kernel.left) if axis != product.axis]
            whole = np.moveaxis(self.kernel.whole, product.axis, 0)
            whole = whole[np.ix_(np.arange(len(whole)), *others)]
            mixed, offset = ridge_regression(
                rows, self.rows, np.eye(len(whole))[self.kernel.left[product.axis]], centred=self.centred
            )
            fitted = np.moveaxis(np.tensordot(mixed, whole, 1), 0, product.axis)
            shift = np.tensordot(offset, whole, 1)
        self.kernel.assign(product.kernel, fitted.reshape(start.shape))
        if product.bias is not None and self.bias is not None:
            bias = self.bias.values
            self.bias.assign(product.bias, bias + product.added(shift, bias.ndim))


class _UncutNetwork:
    """The network before a cut, which is run only as far as targets are requested.

    Args:
        keep: The units left in each group.
        examples: The examples to run it on.
        wanted: The layers with required targets.
    """

    def __init__(self, original: Original, keep: Keep, examples: Dataset, wanted: Collection[str]) -> None:
        self._original, self._keep, self._wanted = original, keep, wanted
        graph = original.structure.graph
        self._normalised = {maker.name for maker in foldable(graph).values()}
        self._nodes = _walk(graph, examples, original.weights)
        self._targets: dict[str, list[_FitTarget | None]] = {}

    def targets(self, layer: str) -> list[_FitTarget | None]:
        """Return the target of each kernel of a layer that is called once; None if a kernel is too wide."""
        while layer not in self._targets:
            node, inputs = next(self._nodes)
            if node.name in self._wanted:
                products = handler_of(node.name, node.layer).products(node)
                self._targets[node.name] = [
                    self._target(node, product, inputs[product.input].numpy()) for product in products
                ]
        return self._targets.pop(layer)

    def _target(self, node: Node, product: Product, inputs: Array) -> _FitTarget | None:
        part, window = self._kept_weight(node, product.kernel), product.window
        if part.whole.shape[product.axis] > _MOST_COLUMNS:
            return None
        columns = part.whole.size // part.whole.shape[-1]
        if window is None or columns > _MOST_COLUMNS:
            columns, window = part.whole.shape[product.axis], None
        count = min(max(_PLACES_PER_COLUMN * columns, _FEWEST_PLACES), _MOST_PLACES)
        shape = places_of(inputs.shape, window or Window())
        places = sampled(shape, count, np.random.default_rng(0))
        rows = window_rows(inputs, window or Window(), places)
        if window is not None:
            rows = rows @ part.whole.reshape(columns, -1)[:, part.left[-1]]
        bias = None if product.bias is None else self._kept_weight(node, product.bias)
        centred = bias is not None or node.name in self._normalised
        return _FitTarget(rows, places, window, part, bias, centred)

    def _kept_weight(self, node: Node, variable: keras.Variable) -> _KeptWeight:
        weight = next(place for place, own in enumerate(node.layer.weights) if own is variable)
        whole = self._original.weights[node.name][weight]
        masks = [np.ones(size, bool) for size in whole.shape]
        for name, group in self._original.structure.groups.items():
            for slot in group.slots:
                if (slot.layer, slot.weight) == (node.name, weight):
                    masks[slot.axis][slot.positions] = self._keep[name][:, None]
        return _KeptWeight(whole, [np.flatnonzero(mask) for mask in masks])


def _wires(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Yield for each call its layer's name and the names of the layers that produce its inputs."""
    makers = {**graph.inputs, **{node.output: node.name for node in graph.nodes}}
    return ((node.name, *(makers[index] for index in node.inputs)) for node in graph.nodes)


def _walk(
    graph: Graph, examples: Dataset, weights: Mapping[str, Sequence[Array]]
) -> Iterator[tuple[Node, list[tf.Tensor]]]:
    """Run a network on examples; yield each call with its inputs before it runs.

    Batch norms use the statistics of these examples. The network is not changed.

    Args:
        examples: The inputs of the network.
        weights: Layer name -> weights that replace the layer's own.
    """
    tensors: dict[int, Any] = {
        index: tf.constant(examples.inputs[name].astype(graph.dtypes[index], copy=False))
        for index, name in graph.inputs.items()
    }
    unread = Counter(tensor for node in graph.nodes for tensor in node.inputs)
    for node in graph.nodes:
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
