"""Sparse and clustered kernels: weights that are zero, or share a few values, and compress well."""

from collections.abc import Callable, Sequence
from typing import Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from scipy.cluster.vq import kmeans

from executors.compression.kernels import Kernel, kernels
from executors.compression.training import compressing_trainer
from executors.structure import copied, fold_batch_norm
from executors.training.evaluation import recalibrate
from executors.training.setup import TrainingSetup
from executors.training.trainer import cosine
from mistify.config.package.compression import CompressionConfig

#: Adam's highest learning rates. A clustered weight shares its updates with its cluster, which makes them
#: smaller.
_PRUNING_RATE: Final = 1e-3
_CLUSTERING_RATE: Final = 3e-3

#: Number of pruning steps in the first half of training; in the second half the remaining weights adapt.
_CUTS: Final = 20

#: The maximum number of a kernel's weights used to choose its cluster values.
_SAMPLE: Final = 20_000


def compressed(
    model: keras.Model, compression: CompressionConfig, setup: TrainingSetup, steps: int, seed: int
) -> keras.Model:
    """Return a copy of a network that is trained to have sparse or clustered kernels.

    Folding a batch norm multiplies each channel by its own factor. Zeros stay zeros, so a network is pruned
    with its batch norms, with which it trains better. Shared values would become different in each channel,
    so batch norms are folded before clustering.

    Args:
        model: A checkpoint, which is not changed.
        compression: The requested sparsity or number of clusters. Depthwise kernels stay unchanged: they have
            few weights, none of which is dispensable.
        setup: The training data, and the teacher's predictions for them.
        steps: Number of training steps.
        seed: Seed for the order of the examples.

    Raises:
        FloatingPointError: The loss is no longer finite.
    """
    if compression.clusters is None:
        network = copied(model)
        _prune(network, compression.sparsity or 0.0, setup, steps, seed)
    else:
        network = fold_batch_norm(model)
        _cluster(network, compression.clusters, setup, steps, seed)
    recalibrate(network, setup.train, seed)
    return network


def _prune(network: keras.Model, sparsity: float, setup: TrainingSetup, steps: int, seed: int) -> None:
    """Train a network while the smallest weights of every kernel become zero, in decreasing numbers."""
    from tensorflow_model_optimization.sparsity.keras import PolynomialDecay  # noqa: PLC0415 (takes seconds)

    chosen = _compressible(network)
    masks = [tf.Variable(tf.ones(kernel.variable.shape)) for kernel in chosen]

    def cut(share: float) -> None:
        for kernel, mask in zip(chosen, masks, strict=True):
            mask.assign(_largest(kernel.variable.numpy(), 1 - share))
        apply()

    def apply() -> None:
        for kernel, mask in zip(chosen, masks, strict=True):
            kernel.variable.assign(kernel.variable * mask)

    trainer = compressing_trainer(network, setup, seed, _PRUNING_RATE, after_step=apply)
    schedule = PolynomialDecay(0.0, sparsity, begin_step=0, end_step=_CUTS, frequency=1)
    rates = cosine(steps)
    ramp, rest = np.split(rates, [steps // 2])
    for at, part in enumerate(np.array_split(ramp, _CUTS), start=1):
        _, share = schedule(at)
        cut(float(share))
        trainer.train(part)
    trainer.start_average()
    trainer.train(rest)
    trainer.apply_average()


def _largest(values: npt.NDArray[np.float32], share: float) -> npt.NDArray[np.float32]:
    """Return 1 for the weights with the largest absolute values, 0 for the others."""
    order = np.argsort(np.abs(values), axis=None)
    mask = np.ones(values.size, np.float32)
    mask[order[: round((1 - share) * values.size)]] = 0
    return mask.reshape(values.shape)


def _cluster(network: keras.Model, clusters: int, setup: TrainingSetup, steps: int, seed: int) -> None:
    """Train a network with `clusters` values per kernel; kernels that already have fewer stay unchanged."""
    shared = [
        _sharing(kernel, clusters, seed)
        for kernel in _compressible(network)
        if len(np.unique(kernel.variable)) > clusters
    ]

    def share() -> None:
        for share_values in shared:
            share_values()

    share()
    trainer = compressing_trainer(network, setup, seed, _CLUSTERING_RATE, after_step=share)
    trainer.train(cosine(steps))
    trainer.apply_average()


def _sharing(kernel: Kernel, clusters: int, seed: int) -> Callable[[], None]:
    """Return a function that sets all weights of a cluster to their mean."""
    members = tf.constant(_clusters(kernel.variable.numpy(), clusters, seed))

    def share() -> None:
        values = tf.reshape(tf.convert_to_tensor(kernel.variable), [-1])
        means = tf.math.unsorted_segment_mean(values, members, clusters)
        kernel.variable.assign(tf.reshape(tf.gather(means, members), kernel.variable.shape))

    return share


def _clusters(values: npt.NDArray[np.float32], clusters: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the cluster of each weight [size], by k-means."""
    distinct = np.unique(values)
    sample = np.random.default_rng(seed).choice(distinct, min(_SAMPLE, len(distinct)), replace=False)
    start = np.quantile(sample, np.linspace(0, 1, clusters))
    centres = np.sort(kmeans(sample, start)[0])
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values.ravel())


def _compressible(network: keras.Model) -> Sequence[Kernel]:
    return [kernel for kernel in kernels(network) if kernel.variable.trainable and not kernel.is_depthwise]
