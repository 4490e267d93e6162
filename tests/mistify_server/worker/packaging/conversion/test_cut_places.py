"""The places of units in converted networks, and networks in which they cannot be found."""

import keras
import pytest

from executors.structure import analyse
from mistify.costs.quantization import Quantization
from mistify.package.cut_places import CutPlaces
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cut_places import find_cut_places
from tests.mistify.tflite.networks_to_slice import converted, convolutional, feed_forward

PRECISIONS = (Quantization.NONE, Quantization.FLOAT16, Quantization.DYNAMIC, Quantization.INT8)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", PRECISIONS)
def test_makers_and_readers_of_each_group_are_found(precision):
    _, places = converted(convolutional, precision)
    assert places.units == (14, 7, 13)
    # A kernel and a bias make the units of each group; the depthwise convolution passes them on.
    assert [made(places, group) for group in range(3)] == [2, 2, 2]
    assert [shifted(places, group) for group in range(3)] == [1, 1, 1]
    flattened = [
        axis for cut in places.constants for axis in cut.axes if axis.group == 1 and axis.repeats > 1
    ]
    assert [(axis.repeats, axis.span) for axis in flattened] == [(9, 1)]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bias_that_is_added_behind_a_product_takes_shifts(precision):
    _, places = converted(feed_forward, precision)
    assert (made(places, 0), shifted(places, 0)) == (2, 1)


def test_both_graphs_of_a_file_have_places():
    _, places = converted(convolutional)
    assert {tensor[0] for cut in places.constants for tensor in cut.tensors} == {0, 1}
    assert {size.tensor[0] for size in places.activations} == {0, 1}


def test_places_are_kept_as_json():
    _, places = converted(convolutional)
    assert CutPlaces.model_validate_json(places.model_dump_json()) == places


def made(places, group):
    return sum(cut.modulated and cut.axes[0].group == group for cut in places.constants)


def shifted(places, group):
    return sum(cut.shifted and cut.axes[0].group == group for cut in places.constants)


def network(units, activation="relu"):
    x = keras.Input((4,), name="x")
    return keras.Model(x, keras.layers.Dense(2)(keras.layers.Dense(units, activation, name="units")(x)))


def test_a_group_of_one_unit_is_refused():
    model = network(1)
    with pytest.raises(ValueError, match="a group of one unit cannot be cut"):
        find_cut_places(convert(model), analyse(model), ["units"], convert)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (network(8, "tanh"), "other operators for a slice than for the whole network"),
        (network(5), "the converter has merged units of several groups"),
    ],
)
def test_slices_that_are_converted_in_another_way_are_refused(other, message):
    model, narrower = network(8), convert(other)
    with pytest.raises(ValueError, match=message):
        find_cut_places(convert(model), analyse(model), ["units"], lambda of_any: narrower)
