"""Operations that LiteRT lacks are reported with the layers that need them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from executors.structure.keras_internals import numpy
from mistify.errors import ErrorCode, MistifyError
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.unsupported_operations import lacking_operators
from mistify_server.worker.packaging.tflite.layer_names import layer_at
from mistify_server.worker.packaging.tflite.runner import Runner


def network(body: Callable[[Any], Any]) -> keras.Model:
    inputs = keras.Input((8, 8, 2), name="image")
    x = body(layers.Conv2D(4, 1, name="before")(inputs))
    return keras.Model(inputs, layers.Dense(3, name="scores")(layers.Flatten()(ops.cast(x, "float32"))))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "named", "fix"),
    [
        (
            layers.Conv2DTranspose(4, 3, dilation_rate=2, name="up"),
            "layer 'up', a Conv2DTranspose",
            "dilation_rate=1",
        ),
        (
            layers.Resizing(5, 5, antialias=True, name="smaller"),
            "layer 'smaller', a Resizing",
            "antialias=False",
        ),
        (
            layers.Resizing(5, 5, interpolation="bicubic", name="smaller"),
            "layer 'smaller', a Resizing",
            '"bilinear"',
        ),
        (numpy.Cumprod(axis=1, name="product"), "layer 'product', a Cumprod", "replace it by other layers"),
    ],
)
def test_the_error_names_the_layer_and_a_fix(body: Callable[[Any], Any], named: str, fix: str) -> None:
    with pytest.raises(MistifyError) as caught:
        convert(network(body))
    assert caught.value.code is ErrorCode.INVALID_MODEL
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("model", named)
    assert fix in problem.fix


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("find", [ops.argmax, ops.argmin])
def test_argmax_is_packaged(find: Any, keepdims: bool) -> None:
    model = network(lambda x: find(x, axis=-1, keepdims=keepdims))
    images = np.random.default_rng(0).normal(size=(5, 8, 8, 2)).astype(np.float32)
    actual = Runner(convert(model))({"image": images})["scores"]
    np.testing.assert_allclose(actual, model(images), atol=1e-4)


@pytest.mark.parametrize(
    ("place", "layer"),
    [
        ("up_1/conv_transpose", "up"),
        ("functional_3/block_2/dense_1/MatMul", "block_2"),
        ("functional_3/dense_1_1/MatMul", "dense_1"),
        ("BitwiseAnd", None),
    ],
)
def test_a_layer_is_recognised_by_the_names_of_its_parts(place: str, layer: str | None) -> None:
    assert layer_at(place, {"up", "block_2", "dense", "dense_1"}) == layer


def test_only_the_first_line_of_other_messages_is_shown() -> None:
    (problem,) = lacking_operators("It failed.\nmore", None).problems
    assert problem.value == "It failed."
