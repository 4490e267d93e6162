"""Sparse and clustered kernels: weights that are zero, or share a few values, so that a file zips well."""

from typing import Any, Final

import keras
import numpy as np

from executors.structure import copied, fold_batch_norm, set_weights
from executors.structure.reading.reader import read_graph
from executors.tfmot.training import PRIMING_STEPS, TfmotTraining, train
from executors.tfmot.translation import translated, wrapped
from executors.training.evaluation import recalibrate
from executors.training.setup import TrainingSetup
from mistify.config.compression import CompressionConfig

#: Adam's highest rates; a folded network of unscaled inputs has weights of very different sizes.
_PRUNING_RATE: Final = 1e-3
_CLUSTERING_RATE: Final = 3e-5

#: Weights are removed this often during the first half of training; in the second half the others adjust.
_CUTS: Final = 20


def compressed(
    model: keras.Model, compression: CompressionConfig, setup: TrainingSetup, steps: int, seed: int
) -> keras.Model:
    """Return a copy of a network that is trained to have sparse or clustered kernels.

    Folding batch norm multiplies each channel by a factor of its own. Zeros stay zeros: the network is pruned
    with its batch norms, with which it trains better. Shared values would become different in each channel:
    it is folded before it is clustered.

    Args:
        model: The checkpoint, which is not changed.
        compression: What is asked for. Kernels that TFMOT does not know (depthwise ones among them) stay.
        setup: The training data, and the teacher's predictions for them.
        steps: Training steps.
        seed: Of the order of the examples.

    Raises:
        MistifyError: INVALID_MODEL, a layer cannot be translated, the translation computes something else, or
            TFMOT knows none of the layers.
        FloatingPointError: The loss is no longer finite.
    """
    training = TfmotTraining.of(model, setup, steps, seed)
    if compression.clusters is None:
        network = copied(model)
        trained = _pruned(translated(network, setup.train.inputs), compression.sparsity, training)
    else:
        network = fold_batch_norm(model)
        trained = _clustered(translated(network, setup.train.inputs), compression.clusters, training)
    for name, layer in read_graph(network).layers.items():
        if getattr(layer, "weights", ()):
            set_weights(layer, trained.get_layer(name).get_weights())
    recalibrate(network, setup.train, seed)
    return network


def _pruned(model: Any, sparsity: float | None, training: TfmotTraining) -> Any:
    """Train a model while the smallest weights of every kernel become zero."""
    from tensorflow_model_optimization.python.core.sparsity.keras.prune_registry import (  # noqa: PLC0415
        PruneRegistry,
    )
    from tensorflow_model_optimization.sparsity import keras as tfmot  # noqa: PLC0415

    ramp = (PRIMING_STEPS + training.steps) // 2
    every = max(ramp // _CUTS, 1)
    schedule = tfmot.PolynomialDecay(0.0, sparsity, 0, ramp // every * every, frequency=every)
    pruned = wrapped(
        model,
        lambda layer: tfmot.prune_low_magnitude(layer, schedule),
        lambda layer: bool(layer.trainable_weights) and PruneRegistry.supports(layer),
    )
    masks = tfmot.UpdatePruningStep()
    masks.set_model(pruned)
    masks.on_train_begin()
    train(pruned, training, _PRUNING_RATE)
    # The last update has changed weights that are only masked in the forward pass.
    masks.on_epoch_end(None)
    return tfmot.strip_pruning(pruned)


def _clustered(model: Any, clusters: int, training: TfmotTraining) -> Any:
    """Train a model with as many values in every kernel as there are clusters."""
    from tensorflow_model_optimization.clustering import keras as tfmot  # noqa: PLC0415
    from tensorflow_model_optimization.python.core.clustering.keras.clustering_registry import (  # noqa: PLC0415
        ClusteringRegistry,
    )

    clustered = wrapped(
        model,
        lambda layer: tfmot.cluster_weights(layer, clusters),
        lambda layer: _most_weights(layer) > clusters and ClusteringRegistry.supports(layer),
    )
    train(clustered, training, _CLUSTERING_RATE)
    return tfmot.strip_clustering(clustered)


def _most_weights(layer: Any) -> int:
    """Return the number of weights in the largest array of a layer."""
    return max((int(np.prod(weight.shape)) for weight in layer.trainable_weights), default=0)
