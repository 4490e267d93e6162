"""What the tests of this directory share: random weights, and models compared by what they compute."""

from collections.abc import Iterable, Mapping

import keras
import numpy as np

from executors.structure import Structure, analyse, fold_batch_norm, narrow, widen
from mistify.costs.network import FLOAT_BYTES

layers = keras.layers
TOLERANCE = 1e-4


def layers_of(model):
    """Every layer of a model and, recursively, of the models nested in it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from layers_of(layer)
        else:
            yield layer


def randomised(model, seed=0):
    """The model with random weights everywhere: nothing left at 0 or 1, variances positive."""
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
    """Random inputs of a model, in the order of `model.inputs`."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(size, *tensor.shape[1:])).astype("float32") for tensor in model.inputs]


def outputs(model, inputs):
    """What a model returns, as a flat list of arrays."""
    arrays = inputs[0] if len(inputs) == 1 else inputs
    if not isinstance(model, keras.Sequential) and isinstance(model.input, dict):
        arrays = {tensor.name: values for tensor, values in zip(model.inputs, inputs, strict=True)}
    return [np.asarray(value) for value in keras.tree.flatten(model(arrays, training=False))]


def same(expected: Iterable[np.ndarray], actual: Iterable[np.ndarray]) -> None:
    """Equal within the tolerance, relative to the scale of the output; and not trivially so."""
    for left, right in zip(expected, actual, strict=True):
        assert left.shape == right.shape
        scale = np.abs(left).max()
        assert scale > 1e-3, "the output is trivial"
        assert np.abs(left - right).max() <= TOLERANCE * scale


def alternate(size, offset=0):
    """A mask that keeps two of three units, one at least."""
    mask = np.arange(offset, offset + size) % 3 != 1
    return mask if mask.any() else ~mask


def masking(mask):
    """A layer that multiplies the last axis with 0 or 1."""
    values = np.asarray(mask, "float32").tolist()
    return layers.Rescaling(values, 0.0)


def unmasked(group, tensor, repeat=None):
    """Masks nothing."""
    return tensor


def check_narrow(build, keep: Mapping[str, np.ndarray], seed=0):
    """A narrowed model equals the same source built with masks written by hand.

    Args:
        build: Builds the architecture from `mask(group, tensor, times=1)`, which is called wherever
            a human would mask the channels of a group.
        keep: The mask of each group.
        seed: Of the weights.
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
    assert max(differs) > 1e-3, "the masks change nothing: a trivial test"
    widths = {name: int(mask.sum()) for name, mask in keep.items()}
    same_costs(structure, widths, small)
    return structure, small


def same_costs(structure: Structure, widths, resized):
    """The costs foretold for these widths are those of the resized model."""
    foretold, result = structure.network(widths), analyse(resized).network()
    assert foretold == result
    assert result.params == resized.count_params()


def check_widen(source):
    """A widened model equals its source, at every factor, and costs more."""
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
    """A folded model equals its source; its weights are those that the cost model foretold."""
    folded = fold_batch_norm(source)
    inputs = batch(source)
    same(outputs(source, inputs), outputs(folded, inputs))
    foretold = analyse(source).network().weight_bytes() / FLOAT_BYTES
    assert folded.count_params() == foretold
    return folded


def check_clone(source):
    """The graph, rebuilt on clones of its layers, computes the same."""
    graph = analyse(source).graph

    def clone(name, layer):
        return type(layer).from_config({**layer.get_config(), "name": name})

    rebuilt = graph.build(clone, graph.weights)
    same(outputs(source, batch(source)), outputs(rebuilt, batch(source)))
    return rebuilt


def conv(filters, name, **options):
    """A 3x3 convolution without bias, with batch norm and ReLU behind it: a function of a tensor."""

    def call(x):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name, **options)(x)
        return layers.ReLU(name=f"{name}_relu")(layers.BatchNormalization(name=f"{name}_bn")(x))

    return call


def head(x, units=3):
    """Global average pooling and logits."""
    return layers.Dense(units, name="logits")(layers.GlobalAveragePooling2D(name="pool")(x))
