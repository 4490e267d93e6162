"""The products that shrink in slices, against multiply-adds of the slices' own operators."""

import numpy as np
import pytest

from mistify.costs.operators import OperatorKind
from mistify.costs.quantization import Quantization
from mistify.package.factory import FactoryStore
from mistify.package.opened import Package
from mistify.tflite.slicing import sliced
from mistify_client.slicing.products import CutChannels, SlicedProduct, sliced_products
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.operators import operations_of
from tests.mistify.tflite.networks_to_slice import (
    GROUPS,
    converted,
    convolutional,
    drawn,
    feed_forward,
    opened,
)
from tests.support.factories import make_package

PRODUCTS = (OperatorKind.CONVOLUTION, OperatorKind.DEPTHWISE, OperatorKind.DENSE)


def multiply_adds(network):
    return sum(
        operation.multiply_adds
        for operator in operators(network)
        for operation in operations_of(operator, ())
        if operation.kind in PRODUCTS
    )


@pytest.mark.sampled
@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.FLOAT16, Quantization.INT8])
@pytest.mark.parametrize("make", [convolutional, feed_forward])
def test_a_slice_has_fewer_multiply_adds_by_the_work_that_it_lacks(make, precision):
    network, places = converted(make, precision)
    products = list(sliced_products(network, places, len(GROUPS[make])))
    for seed in range(3):
        kept = drawn(places, seed)
        closed = np.array([units - len(own) for units, own in zip(places.units, kept, strict=True)])
        lacking = sum(product.work(0 * closed, 1) - product.work(closed, 1) for product in products)
        assert multiply_adds(network) - multiply_adds(sliced(network, places, opened(kept))) == lacking > 0


def test_the_products_of_a_package_are_those_that_its_units_make_or_are_read_by(tmp_path):
    package = Package.open(make_package(tmp_path / "package"))
    store = FactoryStore.of(package)
    network = store.map_supernet(package.directory)
    inner, hidden = CutChannels(whole=24, per_unit={0: 1}), CutChannels(whole=16, per_unit={1: 1})
    assert list(sliced_products(network, store.places, 2)) == [
        SlicedProduct(positions=9 * 64, inputs=CutChannels(whole=8), outputs=inner),
        SlicedProduct(positions=9 * 64, inputs=inner, outputs=CutChannels(whole=8)),
        SlicedProduct(positions=1, inputs=CutChannels(whole=32), outputs=hidden),
        SlicedProduct(positions=1, inputs=hidden, outputs=CutChannels(whole=1)),
    ]
    assert len(list(sliced_products(network, store.places, 1))) == 2


def test_work_is_counted_in_whole_tiles_of_output_channels():
    product = SlicedProduct(
        positions=10,
        inputs=CutChannels(whole=8, per_unit={0: 2}),
        outputs=CutChannels(whole=20, per_unit={1: 1}),
    )
    closed = np.array([[0, 1, 0], [0, 3, 4]])
    assert product.work(closed, 1).tolist() == [10 * 8 * 20, 10 * 6 * 17, 10 * 8 * 16]
    assert product.work(closed, 16).tolist() == [10 * 8 * 32, 10 * 6 * 32, 10 * 8 * 16]
    assert product.work(closed[:, 1], 16) == 10 * 6 * 32
