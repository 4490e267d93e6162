"""Volumes are pooled in packages by the pooling of images."""

import keras
import numpy as np
import pytest

from executors.structure import fold_batch_norm
from tests.executors.structure.networks import batch, outputs, same

layers = keras.layers


@pytest.mark.parametrize("kind", [layers.MaxPooling3D, layers.AveragePooling3D])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [None, (1, 2, 3)])
def test_volumes_are_pooled_as_by_keras(kind, padding, strides):
    inputs = keras.Input((7, 8, 9, 2))
    model = keras.Model(inputs, kind((2, 3, 4), strides, padding)(inputs))
    served = fold_batch_norm(model)
    assert type(served.layers[-1]) is not kind
    arrays = batch(model)
    same(outputs(model, arrays), outputs(served, arrays))
    assert np.ptp(outputs(served, arrays)[0]) > 0
