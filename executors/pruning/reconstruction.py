"""Compensation for cut channels by the remaining ones, by least squares, without training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Dataset
from executors.structure import Keep, Role, Slot, Structure, foldable
from executors.structure.handlers import Product, handler_of
from executors.training.evaluation import Tensors, compiled, examples_at_once, quick_call

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Training examples used to compare channels, and the batch size.
_EXAMPLES: Final = 1_000
_BATCH: Final = 250

#: Number of positions used to estimate the centre of the sums.
_CENTRED: Final = 1_000

#: Share of the mean variance added to each channel's variance, so that near duplicates share their weights.
_RIDGE: Final = 1e-3

#: Wider layers are not adjusted: computing their covariances would take longer than it saves.
_MOST_CHANNELS: Final = 2_048


@dataclass(frozen=True)
class Consumer:
    """A kernel that sums over channels, and the position of each group among them.

    Attributes:
        tensor: Index in the graph of the tensor that the kernel reads.
        slots: Groups with their slots along the kernel's axis.
        absorbs_shift: Whether a constant can be added after the kernel, by its own bias or a batch norm's.
    """

    product: Product
    tensor: int
    slots: tuple[tuple[str, Slot], ...]
    absorbs_shift: bool

    @property
    def channels(self) -> int:
        """The number of channels that the kernel reads."""
        count: int = self.product.kernel.shape[self.product.axis]
        return count

    def kept(self, keep: Keep) -> Mask:
        """Return a mask of the input's remaining channels [channels]."""
        mask = np.ones(self.channels, bool)
        for group, slot in self.slots:
            mask[slot.positions] = keep[group][:, None]
        return mask

    def by_channel(self) -> Array:
        """Return the kernel with the channel axis first."""
        return np.moveaxis(np.asarray(self.product.kernel, np.float64), self.product.axis, 0)

    def rows(self) -> Array:
        """Return the kernel as a matrix [channels, other axes]."""
        return self.by_channel().reshape(self.channels, -1)


@dataclass(frozen=True)
class Moments:
    """Mean [channels] and mean outer product [channels, channels] of a tensor's channels."""

    mean: Array
    product: Array


class _Sums(NamedTuple):
    """Sums over the positions of a tensor, of distances from a centre.

    Attributes:
        centre: A point near the mean [channels].
        total: Sum of the distances [channels].
        product: Sum of their outer products [channels, channels].
        count: Number of positions.
    """

    centre: tf.Tensor
    total: tf.Tensor
    product: tf.Tensor
    count: tf.Tensor


class Compensation:
    """Adjustment of the layers that read a network's channels when some channels are cut.

    A cut channel is largely a linear combination of the remaining ones: `x_cut = x_kept A + b`, by least
    squares over training examples. Its readers can read the others instead: their weights for the cut channel
    are multiplied by `A` and added to those for the kept channels. Training then continues from a network
    that computes nearly the same outputs. (Weight reconstruction after pruning, as in channel pruning by He
    et al., 2017, layer by layer and in closed form.)

    Attributes:
        consumers: Group -> kernels that can be adjusted when it is cut.
    """

    def __init__(self, structure: Structure) -> None:
        self._all = _consumers(structure)
        self._tensors = tuple(dict.fromkeys(consumer.tensor for consumer in self._all))
        self.consumers: dict[str, list[Consumer]] = {}
        for consumer in self._all:
            for group in dict.fromkeys(name for name, _ in consumer.slots):
                self.consumers.setdefault(group, []).append(consumer)
        if self._all:
            graph = replace(structure.graph, outputs=self._tensors)
            self._watched = graph.build(lambda _, layer: layer, {})
            self._sums = compiled(self._products, self._watched)

    def moments(self, data: Dataset, seed: int = 0) -> dict[int, Moments]:
        """Return the moments over some examples of every tensor that a consumer reads, by its graph index."""
        if not self._all:
            return {}
        order = np.random.default_rng(seed).permutation(len(data))[:_EXAMPLES]
        at_once = examples_at_once(self._watched, _BATCH)
        batches = [order[at : at + at_once] for at in range(0, len(order), at_once)]
        sums = [self._sums({name: array[batch] for name, array in data.inputs.items()}) for batch in batches]
        moments = {}
        for number, tensor in enumerate(self._tensors):
            batched = zip(*(_exact(part[number]) for part in sums), strict=True)
            total, product, count = (np.sum(part, axis=0) for part in batched)
            moments[tensor] = Moments(total / count, product / count)
        return moments

    def apply(self, before: Keep, after: Keep, moments: Mapping[int, Moments]) -> None:
        """Adjust the weights of a network for a cut from the units `before` to the units `after`.

        The weights of cut units stay; the caller removes them.

        Args:
            before: The units left before the cut.
            after: The units left after the cut.
            moments: The moments of the network with the units `before`.
        """
        for consumer in self._all:
            kept = np.flatnonzero(consumer.kept(after))
            cut = np.flatnonzero(consumer.kept(before) & ~consumer.kept(after))
            if len(cut):
                _take_over(consumer, moments[consumer.tensor], kept, cut)

    def _products(self, inputs: Tensors) -> list[_Sums]:
        """Return the sums of each tensor.

        Sums of squares about zero would lose the variance of a nearly constant channel: it is a small
        difference between large numbers, of which float32 keeps seven digits.
        """
        # As in training, batch norms use batch statistics, which are correct for the current network.
        outputs = quick_call(self._watched, inputs, training=True)
        sums = []
        for output in outputs.values():
            rows = tf.reshape(output, [-1, output.shape[-1]])
            centre = tf.reduce_mean(rows[:_CENTRED], 0)
            rows -= centre
            product = tf.matmul(rows, rows, transpose_a=True)
            sums.append(_Sums(centre, tf.reduce_sum(rows, 0), product, tf.shape(rows)[0]))
        return sums


def _exact(sums: _Sums) -> tuple[Array, Array, int]:
    """Return the sum over a tensor's positions, the sum of their outer products, and their number."""
    centre, total, product = (np.asarray(part, np.float64) for part in sums[:3])
    count = int(sums.count)
    crossed = np.outer(centre, total)
    return total + count * centre, product + crossed + crossed.T + count * np.outer(centre, centre), count


def covariance(consumer: Consumer, moments: Moments, kept: npt.NDArray[np.int64]) -> Array:
    """Return the covariance of the kept channels [kept, kept] for a consumer, including the ridge term.

    Args:
        consumer: If it absorbs a shift, the covariance is centred.
        moments: The moments of the tensor that it reads.
        kept: Indices of the channels [kept].
    """
    product = _product(consumer, moments)[np.ix_(kept, kept)]
    ridge = _RIDGE * np.maximum(np.diag(product).mean(), np.finfo(np.float32).tiny)
    return np.asarray(product + ridge * np.eye(len(kept)))


def _product(consumer: Consumer, moments: Moments) -> Array:
    """Return the mean outer product, centred if the consumer absorbs a shift."""
    if not consumer.absorbs_shift:
        return moments.product
    return np.asarray(moments.product - np.outer(moments.mean, moments.mean))


def _consumers(structure: Structure) -> list[Consumer]:
    """Return the kernels that sum over channels of groups, in layers that are called once."""
    graph = structure.graph
    calls = [node.name for node in graph.nodes]
    followed = {maker.name for maker in foldable(graph).values()}
    slots: dict[tuple[str, int, int], list[tuple[str, Slot]]] = {}
    for group in structure.groups.values():
        for slot in group.slots:
            if slot.role is Role.SUMS:
                slots.setdefault((slot.layer, slot.weight, slot.axis), []).append((group.name, slot))
    consumers = []
    for node in graph.nodes:
        if calls.count(node.name) > 1:
            continue
        for product in handler_of(node.name, node.layer).products(node):
            weight = next(place for place, own in enumerate(node.layer.weights) if own is product.kernel)
            along = slots.get((node.name, weight, product.axis))
            if along is not None:
                absorbs = product.bias is not None or node.name in followed
                consumer = Consumer(product, node.inputs[product.input], tuple(along), absorbs)
                if consumer.channels <= _MOST_CHANNELS:
                    consumers.append(consumer)
    return consumers


def _take_over(
    consumer: Consumer, moments: Moments, kept: npt.NDArray[np.int64], cut: npt.NDArray[np.int64]
) -> None:
    """Add the effect of the cut channels to the weights for the kept ones."""
    crossed = _product(consumer, moments)[np.ix_(kept, cut)]
    combination = np.linalg.solve(covariance(consumer, moments, kept), crossed)
    kernel, bias = consumer.by_channel(), consumer.product.bias
    changed = kernel.copy()
    changed[kept] += np.tensordot(combination, kernel[cut], 1)
    consumer.product.kernel.assign(np.moveaxis(changed, 0, consumer.product.axis))
    if bias is not None:
        shift = np.tensordot(moments.mean[cut] - moments.mean[kept] @ combination, kernel[cut], 1)
        bias.assign_add(consumer.product.added(shift, len(bias.shape)))
