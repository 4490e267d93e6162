"""Slices of networks against the same networks with the closed units masked, and with Keras."""

from mmap import ACCESS_READ, mmap

import keras
import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.package.cut_places import CutPlaces
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits, sliced
from tests.mistify.tflite.networks_to_slice import (
    GROUPS,
    alike,
    built,
    converted,
    convolutional,
    drawn,
    feed_forward,
    images,
    masked,
    opened,
    run,
)

#: The largest difference from a masked file, as a share of the largest output: sums have another order.
TOLERANCES = {
    Quantization.NONE: 1e-6,
    Quantization.FLOAT16: 1e-6,
    Quantization.DYNAMIC: 1e-6,
    Quantization.INT8: 0.0,
}


def closed_units(make, places, kept):
    names = GROUPS[make]
    sizes = dict(zip(names, places.units, strict=True))
    return {
        name: np.setdiff1d(np.arange(sizes[name]), own) for name, own in zip(names, kept, strict=True)
    }, sizes


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("make", [convolutional, feed_forward])
def test_a_slice_is_the_network_with_closed_units_masked(make, precision):
    network, places = converted(make, precision)
    for seed in range(4):
        kept = drawn(places, seed)
        # A tensor's range decides how dynamic integers are rounded, so closed units have to be zero.
        zero = precision is Quantization.DYNAMIC and make is convolutional
        expected = run(masked(network, *closed_units(make, places, kept), makers=zero))
        actual = run(sliced(network, places, opened(kept)))
        assert np.ptp(expected) > 0
        assert np.abs(actual - expected).max() <= TOLERANCES[precision] * np.abs(expected).max()


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_the_graph_for_one_example_computes_the_same(precision):
    network, places = converted(convolutional, precision)
    slice_of_it = sliced(network, places, opened(drawn(places, 7)))
    fixed = Session(slice_of_it, threads=1).run("serving_default_batch_1", images(1))["scores"]
    np.testing.assert_allclose(fixed, run(slice_of_it, 1), atol=1e-6)


@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.INT8])
def test_a_mapped_file_gives_the_same_slice_and_is_left_alone(tmp_path, precision):
    network, places = converted(convolutional, precision)
    file, units = tmp_path / "network.tflite", opened(drawn(places, 3))
    file.write_bytes(network)
    with file.open("rb") as opened_file:
        mapped = mmap(opened_file.fileno(), 0, access=ACCESS_READ)
    assert sliced(mapped, places, units) == sliced(network, places, units)
    assert file.read_bytes() == network
    mapped.close()  # an error if the slice still referred to it


def test_all_units_make_the_network_itself():
    network, places = converted(convolutional)
    whole = sliced(network, places, opened([np.arange(units) for units in places.units]))
    np.testing.assert_array_equal(run(whole), run(network))


def test_a_slice_has_the_size_of_its_units():
    network, places = converted(convolutional)
    least = sliced(network, places, opened([np.array([0]) for _ in places.units]))
    weights = 4 * (built(convolutional).count_params())
    assert len(network) > weights
    assert len(least) < len(network) - weights / 2


def folded_by_hand(scales, shifts):
    """The output of the convolutional network that scales and shifts units in front of their activations."""
    layer = built(convolutional).get_layer
    relu = keras.ops.relu
    x = keras.ops.convert_to_tensor(images()["image"])
    x = layer("stem")(x)
    y = relu(layer("inner")(x) * scales["inner"] + shifts["inner"])
    x = x + layer("outer")(relu(layer("deep")(y)))
    last, hidden = layer("last"), layer("hidden")
    x = keras.ops.conv(x, last.kernel, 2, "same") + last.bias
    x = relu(x * scales["last"] + shifts["last"])
    x = keras.ops.reshape(x, (len(x), -1)) @ hidden.kernel + hidden.bias
    return np.asarray(layer("scores")(relu(x * scales["hidden"] + shifts["hidden"])))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        (Quantization.NONE, 1e-6),
        (Quantization.FLOAT16, 3e-3),
        (Quantization.DYNAMIC, 3e-2),
        (Quantization.INT8, 8e-2),
    ],
)
def test_scales_and_shifts_are_folded_into_kernels_and_biases(precision, tolerance):
    network, places = converted(convolutional, precision)
    rng = np.random.default_rng(3)
    # No activation reaches further than those that the integers have their scales from.
    scales = {name: rng.uniform(0.4, 0.9, units) for name, units in sizes(places).items()}
    shifts = {name: rng.uniform(-0.3, 0.1, units) for name, units in sizes(places).items()}
    scales, shifts = (
        {name: values.astype(np.float32) for name, values in of.items()} for of in (scales, shifts)
    )
    units = [OpenUnits(np.arange(len(scales[name])), scales[name], shifts[name]) for name in scales]
    expected, actual = folded_by_hand(scales, shifts), run(sliced(network, places, units))
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()
    without = run(network)
    assert np.abs(without - expected).max() > 10 * tolerance * np.abs(expected).max() or tolerance > 5e-2


def sizes(places: CutPlaces):
    return dict(zip(GROUPS[convolutional], places.units, strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.FLOAT16, Quantization.INT8])
def test_shifts_reach_a_bias_that_is_added_behind_a_product(precision):
    network, places = converted(feed_forward, precision)
    rng = np.random.default_rng(4)
    scale, shift = rng.uniform(0.5, 1, 17).astype("f4"), rng.uniform(-0.3, 0.3, 17).astype("f4")
    layer = built(feed_forward).get_layer
    x = images()["image"].reshape(-1, 9, 8)
    feed = keras.activations.gelu((x @ layer("feed").kernel + layer("feed").bias) * scale + shift)
    x = keras.ops.mean(x + layer("out")(feed), axis=1)
    expected = np.asarray(layer("scores")(x))
    actual = run(sliced(network, places, [OpenUnits(np.arange(17), scale, shift)]))
    tolerance = {Quantization.NONE: 1e-6, Quantization.FLOAT16: 3e-3, Quantization.INT8: 5e-2}[precision]
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


def test_layers_with_equal_weights_are_cut_differently():
    network, places = converted(alike)
    kept = [np.array([0, 3, 4, 8]), np.array([1, 2])]
    layer = built(alike).get_layer
    first = x = layer("first")(images()["image"].reshape(24, -1))
    for name, own in zip("ab", kept, strict=True):
        gate = np.isin(np.arange(9), own).astype(np.float32)
        x = first + layer(f"{name}-out")(layer(name)(x) * gate)
    expected = np.asarray(layer("scores")(x))
    np.testing.assert_allclose(run(sliced(network, places, opened(kept))), expected, rtol=1e-5, atol=1e-5)


def test_the_network_of_a_slice_stays_as_it_is():
    network, places = converted(convolutional)
    before = bytes(network)
    sliced(network, places, opened(drawn(places, 1)))
    assert network == before


def test_a_group_without_open_units_is_refused():
    network, places = converted(feed_forward)
    with pytest.raises(ValueError, match="group 0 has no open unit"):
        sliced(network, places, [OpenUnits(np.array([], np.intp))])


def test_open_units_of_another_number_of_groups_are_refused():
    network, places = converted(feed_forward)
    with pytest.raises(ValueError, match="zip"):
        sliced(network, places, opened([np.array([0]), np.array([0])]))
