"""Helpers for the tests in this directory: random weights, and comparing the outputs of models."""

from collections.abc import Iterable, Mapping

import keras
import numpy as np

from executors.structure import Structure, analyse, fold_batch_norm, narrow, widen
from mistify.costs.layer import FLOAT_BYTES

layers = keras.layers
TOLERANCE = 1e-4


def layers_of(model):
    """Return all layers of a model and, recursively, of its nested models."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from layers_of(layer)
        else:
            yield layer


def randomised(model, seed=0):
    """Set all weights of a model to random values other than 0 and 1, with positive variances."""
    rng = np.random.default_rng(seed)
    for layer in layers_of(model):
        for weight in layer.weights:
            kind = weight.path.rsplit("/", 1)[-1]
            if kind in ("moving_variance", "variance", "gamma"):
                value = rng.uniform(0.5, 1.5, weight.shape)
            elif kind == "count":
                continue
            elif "kernel" in kind:
                fan = max(1, int(np.prod(weight.shape[:-1])))
                value = rng.normal(0, 1.5 / np.sqrt(fan), weight.shape)
            else:
                value = rng.normal(0, 0.3, weight.shape)
            weight.assign(value)
        if isinstance(layer, layers.Normalization):
            layer.finalize_state()
    return model


def batch(model, seed=1, size=3):
    """Return random inputs for a model, in the order of `model.inputs`."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(size, *tensor.shape[1:])).astype("float32") for tensor in model.inputs]


def outputs(model, inputs):
    """Return the outputs of a model as a flat list of arrays."""
    arrays = inputs[0] if len(inputs) == 1 else inputs
    if not isinstance(model, keras.Sequential) and isinstance(model.input, dict):
        arrays = {tensor.name: values for tensor, values in zip(model.inputs, inputs, strict=True)}
    return [np.asarray(value) for value in keras.tree.flatten(model(arrays, training=False))]


def same(expected: Iterable[np.ndarray], actual: Iterable[np.ndarray]) -> None:
    """Assert non-trivial equality within a tolerance relative to the scale of the output."""
    for left, right in zip(expected, actual, strict=True):
        assert left.shape == right.shape
        scale = np.abs(left).max()
        assert scale > 1e-3, "the output is trivial"
        assert np.abs(left - right).max() <= TOLERANCE * scale


def alternate(size, offset=0):
    """Return a mask that keeps two of three units, at least one."""
    mask = np.arange(offset, offset + size) % 3 != 1
    return mask if mask.any() else ~mask


def masking(mask):
    """Return a layer that multiplies the last axis by 0 or 1."""
    values = np.asarray(mask, "float32").tolist()
    return layers.Rescaling(values, 0.0)


def unmasked(group, tensor, repeat=None):
    """Return the tensor without masking."""
    return tensor


def check_narrow(build, keep: Mapping[str, np.ndarray], seed=0):
    """Assert that a narrowed model equals the same source built with masks placed by hand.

    Args:
        build: Builds the architecture, calling `mask(group, tensor, times=1)` wherever a human would mask the
            channels of a group.
        keep: The mask of each group.
        seed: Seed of the random weights.
    """
    source = randomised(build(unmasked), seed)
    inputs = batch(source)
    structure = analyse(source)
    small = narrow(structure, keep)

    def mask(group, tensor, repeat=None):
        kept = keep.get(group)
        if kept is None:
            return tensor
        return masking(repeat(kept) if repeat else kept)(tensor)

    masked = build(mask)
    masked.set_weights(source.get_weights())
    reference = outputs(masked, inputs)
    same(reference, outputs(small, inputs))
    differs = [np.abs(a - b).max() for a, b in zip(reference, outputs(source, inputs), strict=True)]
    assert max(differs) > 1e-3, "the masks change nothing, so the test is trivial"
    widths = {name: int(mask.sum()) for name, mask in keep.items()}
    same_costs(structure, widths, small)
    return structure, small


def same_costs(structure: Structure, widths, resized):
    """Assert that the predicted costs for these widths equal those of the resized model."""
    foretold, result = structure.network(widths), analyse(resized).network()
    assert foretold == result
    assert result.params == resized.count_params()


def check_widen(source):
    """Assert that a widened model equals its source at every factor, and has higher costs."""
    inputs = batch(source)
    structure = analyse(source)
    expected = outputs(source, inputs)
    for factor in (1.0, 1.3, 2.0):
        wide = widen(structure, factor, seed=2)
        same(expected, outputs(wide, inputs))
        resized = analyse(wide)
        assert resized.groups.keys() == structure.groups.keys()
        same_costs(structure, resized.widths, wide)
        before, after = structure.network(), resized.network()
        grown = resized.widths != structure.widths
        assert after.flops > before.flops if grown else after.flops == before.flops
        assert after.params > before.params if grown else after.params == before.params
    return wide


def check_fold(source):
    """Assert that a folded model equals its source, and has the predicted number of weights."""
    folded = fold_batch_norm(source)
    inputs = batch(source)
    same(outputs(source, inputs), outputs(folded, inputs))
    foretold = analyse(source).network().weight_bytes() / FLOAT_BYTES
    assert folded.count_params() == foretold
    return folded


def check_clone(source):
    """Assert that the graph, rebuilt from clones of its layers, computes the same."""
    graph = analyse(source).graph

    def clone(name, layer):
        return type(layer).from_config({**layer.get_config(), "name": name})

    rebuilt = graph.build(clone, graph.weights)
    same(outputs(source, batch(source)), outputs(rebuilt, batch(source)))
    return rebuilt


def conv(filters, name, **options):
    """Return a function that applies a 3x3 convolution without bias, batch norm and ReLU."""

    def call(x):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name, **options)(x)
        return layers.ReLU(name=f"{name}_relu")(layers.BatchNormalization(name=f"{name}_bn")(x))

    return call


def head(x, units=3):
    """Apply global average pooling and a dense layer for logits."""
    return layers.Dense(units, name="logits")(layers.GlobalAveragePooling2D(name="pool")(x))
