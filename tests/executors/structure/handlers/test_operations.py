import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow, narrow_arrays, trainable_weights
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_widen,
    outputs,
    randomised,
    same,
    same_costs,
)

layers, ops = keras.layers, keras.ops


def network(between):
    """Return Dense -> between -> Dense on inputs [batch, 4, 3]."""
    inputs = keras.Input((4, 3))
    x = between(layers.Dense(6, name="hidden")(inputs))
    return randomised(keras.Model(inputs, layers.Dense(2, name="out")(layers.Flatten()(x))))


def bias_of(model, name):
    return model.get_layer(name).get_weights()[1]


ARRAY = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")

PASSING = {
    "cast and exp": lambda x: ops.exp(ops.cast(x, "float32")),
    "clip": lambda x: ops.clip(x, -1, 1),
    "waves and rounding": lambda x: ops.sin(ops.round(x)) + ops.cos(ops.floor(x) - ops.ceil(2 * x)),
    "first position": lambda x: x[:, 0],
    "first position, all channels": lambda x: x[:, 0, :],
    "some positions": lambda x: x[:, 1:3, ...],
    "positions before an ellipsis": lambda x: x[:, 1, ...],
    "ellipsis": lambda x: x[..., 1:, :],
    "new axis": lambda x: x[:, None],
    "expanded and squeezed": lambda x: ops.squeeze(ops.expand_dims(x, 2), 2),
    "mean": lambda x: ops.mean(x, axis=1),
    "max, kept": lambda x: ops.max(x, axis=-2, keepdims=True),
    "cumulated": lambda x: ops.cumsum(x, axis=1),
    "rolled": lambda x: ops.roll(x, 1, axis=-2),
    "tiled positions": lambda x: ops.tile(x, (1, 3, 1)),
    "repeated positions": lambda x: ops.repeat(x, 2, axis=1),
    "mirrored positions": lambda x: ops.pad(x, [[0, 0], [1, 2], [0, 0]], mode="reflect"),
    "product of an array": lambda x: ops.matmul(ARRAY.T[:, :4], x),
    "ranks that differ": lambda x: x + ops.mean(x, axis=1, keepdims=True)[0],
}

KEEPING = {
    "some channels": lambda x: x[:, :, :4],
    "some channels after an ellipsis": lambda x: x[..., :4],
    "one channel": lambda x: x[:, :, 2],
    "new last axis": lambda x: x[..., None],
    "expanded last": lambda x: ops.expand_dims(x, -1),
    "mean over channels": lambda x: ops.mean(x, axis=-1, keepdims=True),
    "sum over all": lambda x: ops.sum(x, axis=(1, 2), keepdims=True),
    "softmax": ops.softmax,
    "transposed": lambda x: ops.transpose(x, (0, 2, 1)),
    "cumulated channels": lambda x: ops.cumsum(x, axis=-1),
    "tiled channels": lambda x: ops.tile(x, (1, 1, 2)),
    "product with itself": lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))),
    "by subscripts": lambda x: ops.einsum("bij,bkj->bik", x, x),
    "repeated channels": lambda x: ops.repeat(x, 2, axis=-1),
    "more channels": lambda x: ops.pad(x, [[0, 0], [0, 0], [1, 0]]),
    "product with an array": lambda x: ops.matmul(x, ARRAY),
    "product with a tensor": lambda x: x @ ops.convert_to_tensor(ARRAY),
    "array by subscripts": lambda x: ops.einsum("cd,bic->bid", ARRAY, x),
    "a figure for each channel": lambda x: x * np.arange(1, 7, dtype=np.float32),
}


@pytest.mark.parametrize("between", PASSING.values(), ids=PASSING)
def test_these_operations_preserve_channels(between):
    """The reference is a model of the two layers with the operation in between."""
    source = network(between)
    structure, keep = analyse(source), alternate(6)
    assert structure.widths == {"hidden": 6}
    small = narrow(structure, {"hidden": keep})
    value = batch(source)
    kernel, bias = source.get_layer("hidden").get_weights()
    hidden = np.asarray(between(ops.convert_to_tensor(value[0] @ kernel[:, keep] + bias[keep])))
    kernel, bias = source.get_layer("out").get_weights()
    rows = kernel.reshape(-1, 6, 2)[:, keep].reshape(-1, 2)
    same([hidden.reshape(len(hidden), -1) @ rows + bias], outputs(small, value))
    same_costs(structure, {"hidden": int(keep.sum())}, small)
    arrays = {name: variable.numpy() for name, variable in trainable_weights(source).items()}
    cut = narrow_arrays(structure, {"hidden": keep}, arrays)
    assert cut["hidden/1"].tolist() == bias_of(source, "hidden")[keep].tolist()
    check_widen(source)


@pytest.mark.parametrize("between", KEEPING.values(), ids=KEEPING)
def test_these_operations_fix_the_number_of_channels(between):
    source = network(between)
    assert analyse(source).widths == {}
    check_clone(source)


def test_multiply_adds_of_products_are_counted():
    for between in (KEEPING["product with itself"], KEEPING["by subscripts"]):
        costs = analyse(network(between)).network()
        assert sum(layer.multiply_adds for layer in costs.layers) == 4 * 3 * 6 + 4 * 4 * 6 + 16 * 2


@pytest.mark.parametrize(
    ("between", "multiply_adds", "values"),
    [
        ("product with an array", 4 * 6 * 5, 4 * 5),
        ("product of an array", 5 * 4 * 6, 5 * 6),
        ("product with a tensor", 4 * 6 * 5, 4 * 5),
        ("array by subscripts", 4 * 6 * 5, 4 * 5),
    ],
)
def test_multiply_adds_of_products_with_constants_are_counted(between, multiply_adds, values):
    """The operation is between products of 4 x 3 x 6 and `values` x 2."""
    costs = analyse(network((KEEPING | PASSING)[between])).network()
    assert costs.flops == 4 * 3 * 6 + multiply_adds + values * 2


def attention_by_products(heads=2):
    """Return attention that is divided into products, on inputs [batch, 4, 3], with shared values."""
    inputs = keras.Input((4, 3))
    query, key = (layers.Dense(5, name=name)(inputs) for name in ("query", "key"))
    shares = layers.Softmax()(ops.matmul(query, layers.Permute((2, 1))(key)))
    value = layers.Permute((2, 1, 3))(
        layers.Reshape((4, heads, 3))(layers.Dense(3 * heads, name="value")(inputs))
    )
    mixed = layers.Permute((2, 1, 3))(ops.matmul(shares[:, None], value))
    outputs_ = layers.Dense(2, name="out")(layers.Reshape((4, 3 * heads))(mixed))
    return randomised(keras.Model(inputs, outputs_))


def test_the_width_of_values_can_be_cut_in_all_heads_alike():
    source = attention_by_products()
    structure, keep = analyse(source), alternate(3)
    assert structure.widths == {"value": 3}
    small = narrow(structure, {"value": keep})
    value = batch(source)
    kernel, bias = source.get_layer("value").get_weights()
    source.get_layer("value").set_weights([kernel * np.tile(keep, 2), bias * np.tile(keep, 2)])
    same(outputs(source, value), outputs(small, value))
    same_costs(structure, {"value": int(keep.sum())}, small)
    check_widen(attention_by_products())


def test_an_ellipsis_in_subscripts_is_refused():
    with pytest.raises(UnsupportedLayerError, match="name every axis"):
        analyse(network(lambda x: ops.einsum("...ij,...kj->...ik", x, x))).network()
