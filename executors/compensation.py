"""Letting the channels that stay take over from those that are cut, by least squares, without training."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Dataset
from executors.evaluation import Tensors, call, compiled
from executors.structure import Keep, Role, Slot, Structure, foldable

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Training examples that the channels are compared on, and how many of them at once.
_EXAMPLES: Final = 1_000
_BATCH: Final = 250

#: Share of the mean variance that is added to every channel's, so that near copies share their weights.
_RIDGE: Final = 1e-3

#: Wider than this, a layer is left as it is: its covariances would take longer than they save.
_MOST_CHANNELS: Final = 2_048

layers = keras.layers

#: Layers that add up the channels of their input as they are.
_READERS: Final = (
    layers.Conv1D,
    layers.Conv2D,
    layers.Conv3D,
    layers.Conv1DTranspose,
    layers.Conv2DTranspose,
    layers.Dense,
)


@dataclass(frozen=True)
class Reader:
    """A layer that sums over channels, and where each group stands among them.

    Attributes:
        layer: The layer, with a `kernel`.
        tensor: What it reads, by its index in the graph.
        axis: Axis of its kernel along which the channels stand.
        slots: The groups with their slots along the axis.
        absorbs_shift: Whether a constant can be added behind it: its own bias, or a batch norm's.
    """

    layer: keras.layers.Layer
    tensor: int
    axis: int
    slots: tuple[tuple[str, Slot], ...]
    absorbs_shift: bool

    def kept(self, keep: Keep) -> Mask:
        """Which channels of the input are there."""
        mask = np.ones(self.layer.kernel.shape[self.axis], bool)
        for group, slot in self.slots:
            mask[slot.positions] = keep[group][:, None]
        return mask

    def rows(self) -> Array:
        """What the kernel does with each channel [channels, all else]."""
        kernel = np.moveaxis(np.asarray(self.layer.kernel, np.float64), self.axis, 0)
        return kernel.reshape(len(kernel), -1)


@dataclass(frozen=True)
class Moments:
    """Mean [channels] and mean outer product [channels, channels] of a tensor's channels."""

    mean: Array
    product: Array


class Compensation:
    """Adjusts what reads the channels of a network when some of them are cut.

    A channel that is cut is, for the most part, a combination of those that stay: `x_cut = x_kept A + b`
    in the least squares of training examples. Whatever reads it can so read the others instead, with its
    weights for the cut channel multiplied by `A` and added to those for the kept ones. Training goes on
    from a network that still computes nearly what it did. (Weight reconstruction after pruning, as in
    channel pruning by He et al., 2017, layer by layer and in closed form.)

    Attributes:
        readers: What can be adjusted, for each group that is read so.
    """

    def __init__(self, structure: Structure) -> None:
        self._all = _readers(structure)
        self._tensors = tuple(dict.fromkeys(reader.tensor for reader in self._all))
        self.readers: dict[str, list[Reader]] = {}
        for reader in self._all:
            for group in dict.fromkeys(name for name, _ in reader.slots):
                self.readers.setdefault(group, []).append(reader)
        if self._all:
            graph = replace(structure.graph, outputs=self._tensors)
            self._watched = graph.build(lambda _, layer: layer, {})
            self._sums = compiled(self._products, self._watched)

    def moments(self, data: Dataset, seed: int = 0) -> dict[int, Moments]:
        """Of every tensor that is read, over some examples; the tensors by their index in the graph."""
        if not self._all:
            return {}
        order = np.random.default_rng(seed).permutation(len(data))[:_EXAMPLES]
        batches = [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]
        found = [self._sums({name: array[batch] for name, array in data.inputs.items()}) for batch in batches]
        moments = {}
        for number, tensor in enumerate(self._tensors):
            mean, product, count = (_total(part[number][kind] for part in found) for kind in range(3))
            moments[tensor] = Moments(mean / count, product / count)
        return moments

    def apply(self, before: Keep, after: Keep, moments: Mapping[int, Moments]) -> None:
        """Change the weights of a network whose units `before` are to become `after`, which cuts some.

        The weights of the units that are cut stay: whoever cuts them takes them out.

        Args:
            before: The units that are left.
            after: Those that shall stay.
            moments: Of the network with the units `before`.
        """
        for reader in self._all:
            kept = np.flatnonzero(reader.kept(after))
            cut = np.flatnonzero(reader.kept(before) & ~reader.kept(after))
            if len(cut):
                _take_over(reader, moments[reader.tensor], kept, cut)

    def _products(self, inputs: Tensors) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Sum, sum of outer products and number of positions, for each tensor."""
        # As in training: batch norms by the batch, whose statistics are true of the network as it is.
        outputs = call(self._watched, inputs, training=True)
        found = []
        for output in outputs.values():
            rows = tf.reshape(output, [-1, output.shape[-1]])
            count = tf.cast(tf.shape(rows)[0], tf.float32)
            found.append((tf.reduce_sum(rows, 0), tf.matmul(rows, rows, transpose_a=True), count))
        return found


def _total(parts: Iterable[tf.Tensor]) -> Array:
    return np.asarray(np.sum([np.asarray(part, np.float64) for part in parts], axis=0))


def covariance(reader: Reader, moments: Moments, kept: npt.NDArray[np.int64]) -> Array:
    """How the kept channels vary together, as far as it matters to a reader, with the ridge added."""
    product = _product(reader, moments)[np.ix_(kept, kept)]
    ridge = _RIDGE * np.maximum(np.diag(product).mean(), np.finfo(np.float32).tiny)
    return np.asarray(product + ridge * np.eye(len(kept)))


def _product(reader: Reader, moments: Moments) -> Array:
    """About the mean where a constant can be added behind the reader."""
    if not reader.absorbs_shift:
        return moments.product
    return np.asarray(moments.product - np.outer(moments.mean, moments.mean))


def _readers(structure: Structure) -> list[Reader]:
    """The layers whose kernels sum over channels of groups, called once each."""
    graph = structure.graph
    calls = [node.name for node in graph.nodes]
    followed = {maker.name for maker in foldable(graph).values()}
    slots: dict[tuple[str, int], list[tuple[str, Slot]]] = {}
    for group in structure.groups.values():
        for slot in group.slots:
            if slot.role is Role.SUMS and slot.weight == 0:
                slots.setdefault((slot.layer, slot.axis), []).append((group.name, slot))
    nodes = {node.name: node for node in graph.nodes}
    found = []
    for (name, axis), along in slots.items():
        node = nodes[name]
        if type(node.layer) not in _READERS or calls.count(name) > 1:
            continue
        channels = node.layer.kernel.shape[axis]
        if channels == graph.shapes[node.inputs[0]][-1] and channels <= _MOST_CHANNELS:
            absorbs = node.layer.use_bias or name in followed
            found.append(Reader(node.layer, node.inputs[0], axis, tuple(along), absorbs))
    return found


def _take_over(
    reader: Reader, moments: Moments, kept: npt.NDArray[np.int64], cut: npt.NDArray[np.int64]
) -> None:
    """Add to the weights for the kept channels what they do for the cut ones."""
    crossed = _product(reader, moments)[np.ix_(kept, cut)]
    combination = np.linalg.solve(covariance(reader, moments, kept), crossed)
    layer = reader.layer
    kernel = np.moveaxis(np.asarray(layer.kernel, np.float64), reader.axis, 0)
    changed = kernel.copy()
    changed[kept] += np.tensordot(combination, kernel[cut], 1)
    layer.kernel.assign(np.moveaxis(changed, 0, reader.axis))
    if layer.use_bias:
        shift = np.tensordot(moments.mean[cut] - moments.mean[kept] @ combination, kernel[cut], 1)
        # A constant at every position of a kernel: the sum over the positions (but for padded borders).
        layer.bias.assign_add(shift.reshape(-1, shift.shape[-1]).sum(axis=0))
