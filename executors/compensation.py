"""Letting the channels that stay take over from those that are cut, by least squares, without training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Dataset
from executors.evaluation import call, compiled
from executors.structure import Keep, Role, Slot, Structure, foldable

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Training examples that the channels are compared on, and how many of them at once.
_EXAMPLES: Final = 1_000
_BATCH: Final = 250

#: Share of the mean variance that is added to every channel's, so that near copies share their weights.
_RIDGE: Final = 1e-3

#: Wider than this, a layer is left as it is: its covariances would take longer than they save.
_MOST_CHANNELS: Final = 4_096

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
class _Reader:
    """A layer that sums over channels, and where each group stands among them.

    Attributes:
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


@dataclass(frozen=True)
class _Moments:
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
    """

    def __init__(self, structure: Structure) -> None:
        self._readers = _readers(structure)
        self._tensors = tuple(dict.fromkeys(reader.tensor for reader in self._readers))
        if self._readers:
            graph = replace(structure.graph, outputs=self._tensors)
            self._watched = graph.build(lambda _, layer: layer, {})
            self._sums = compiled(self._products, self._watched)

    def apply(self, before: Keep, after: Keep, data: Dataset, seed: int = 0) -> None:
        """Change the weights of a network whose units `before` are to become `after`, which cuts some.

        The weights of the units that are cut stay: whoever cuts them takes them out.
        """
        touched = [reader for reader in self._readers if (reader.kept(before) & ~reader.kept(after)).any()]
        if not touched:
            return
        moments = self._moments(data, seed)
        for reader in touched:
            kept = np.flatnonzero(reader.kept(after))
            cut = np.flatnonzero(reader.kept(before) & ~reader.kept(after))
            _take_over(reader, moments[reader.tensor], kept, cut)

    def _moments(self, data: Dataset, seed: int) -> Mapping[int, _Moments]:
        order = np.random.default_rng(seed).permutation(len(data))[:_EXAMPLES]
        totals: list[tuple[Array, Array, float]] = [(np.zeros(()), np.zeros(()), 0.0) for _ in self._tensors]
        for at in range(0, len(order), _BATCH):
            found = self._sums(data.x[order[at : at + _BATCH]].astype(np.float32, copy=False))
            totals = [
                (total[0] + part[0].numpy(), total[1] + part[1].numpy(), total[2] + float(part[2]))
                for total, part in zip(totals, found, strict=True)
            ]
        return {
            tensor: _Moments(mean / count, product / count)
            for tensor, (mean, product, count) in zip(self._tensors, totals, strict=True)
        }

    def _products(self, inputs: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Sum, sum of outer products and number of positions, for each tensor."""
        # As in training: batch norms by the batch, whose statistics are true of the network as it is.
        outputs = keras.tree.flatten(call(self._watched, inputs, training=True))
        found = []
        for output in outputs:
            rows = tf.reshape(output, [-1, output.shape[-1]])
            count = tf.cast(tf.shape(rows)[0], tf.float32)
            found.append((tf.reduce_sum(rows, 0), tf.matmul(rows, rows, transpose_a=True), count))
        return found


def _readers(structure: Structure) -> list[_Reader]:
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
            found.append(_Reader(node.layer, node.inputs[0], axis, tuple(along), absorbs))
    return found


def _take_over(
    reader: _Reader, moments: _Moments, kept: npt.NDArray[np.int64], cut: npt.NDArray[np.int64]
) -> None:
    """Add to the weights for the kept channels what they do for the cut ones."""
    product = moments.product
    if reader.absorbs_shift:
        product = product - np.outer(moments.mean, moments.mean)
    ridge = _RIDGE * np.maximum(np.diag(product)[kept].mean(), np.finfo(np.float32).tiny)
    among = product[np.ix_(kept, kept)] + ridge * np.eye(len(kept))
    combination = np.linalg.solve(among, product[np.ix_(kept, cut)])
    layer = reader.layer
    kernel = np.moveaxis(np.asarray(layer.kernel, np.float64), reader.axis, 0)
    changed = kernel.copy()
    changed[kept] += np.tensordot(combination, kernel[cut], 1)
    layer.kernel.assign(np.moveaxis(changed, 0, reader.axis))
    if reader.absorbs_shift and layer.use_bias:
        shift = np.tensordot(moments.mean[cut] - moments.mean[kept] @ combination, kernel[cut], 1)
        # A constant at every position of a kernel: the sum over the positions (but for padded borders).
        layer.bias.assign_add(shift.reshape(-1, shift.shape[-1]).sum(axis=0))
