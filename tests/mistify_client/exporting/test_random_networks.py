"""Random chains of operations that move axes are exported with the outputs of the package."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import keras
from keras import layers, ops

from mistify_server.worker.packaging.conversion.converter import convert
from tests.mistify_client.exporting.compared import channels_first, difference

CHAINS, LENGTH = 12, 7

#: Limits on the tensors between two operations.
MOST_AXES, MOST_ENTRIES = 5, 3000

Random = np.random.Generator


def sizes(x: Any) -> list[int]:
    return [int(size) for size in x.shape[1:]]


def axis_of(rng: Random, x: Any) -> int:
    return int(rng.integers(1, len(x.shape)))


def transposed(rng: Random, x: Any) -> Any:
    return ops.transpose(x, (0, *(1 + rng.permutation(len(x.shape) - 1)).tolist()))


def reshaped(rng: Random, x: Any) -> Any:
    left, shape = prod(sizes(x)), []
    for _ in range(3):
        shape.append(int(rng.choice([size for size in range(1, left + 1) if left % size == 0])))
        left //= shape[-1]
    return ops.reshape(x, (-1, *rng.permutation([*shape, left]).tolist()))


def flattened(rng: Random, x: Any) -> Any:
    return layers.Flatten()(x)


def convolved(rng: Random, x: Any) -> Any:
    filters, window = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    return layers.Conv2D(filters, window, padding="same")(x) if len(x.shape) == 4 else x


def pooled(rng: Random, x: Any) -> Any:
    return layers.MaxPooling2D(2, 1, padding="same")(x) if len(x.shape) == 4 else x


def dense(rng: Random, x: Any) -> Any:
    return layers.Dense(int(rng.integers(1, 6)))(x)


def averaged(rng: Random, x: Any) -> Any:
    keep = bool(rng.integers(2)) or len(x.shape) == 2
    return ops.mean(x, axis=axis_of(rng, x), keepdims=keep)


def scaled(rng: Random, x: Any) -> Any:
    return x * ops.mean(x, axis=axis_of(rng, x), keepdims=True)


def shifted(rng: Random, x: Any) -> Any:
    shape = [size if rng.integers(2) else 1 for size in sizes(x)]
    return x + rng.normal(size=[1, *shape]).astype(np.float32)


def padded(rng: Random, x: Any) -> Any:
    return ops.pad(x, [[0, 0], *rng.integers(2, size=(len(x.shape) - 1, 2)).tolist()])


def cut(rng: Random, x: Any) -> Any:
    axis = 1 + int(np.argmax(sizes(x)))
    return x[(slice(None),) * axis + (slice(1, None),)] if x.shape[axis] > 1 else x


def doubled(rng: Random, x: Any) -> Any:
    return layers.Concatenate(axis=axis_of(rng, x))([x, ops.tanh(x)])


def residual(rng: Random, x: Any) -> Any:
    order = [0, *(1 + rng.permutation(len(x.shape) - 1)).tolist()]
    return x + ops.transpose(ops.tanh(ops.transpose(x, order)), np.argsort(order).tolist())


OPERATIONS: Mapping[str, Callable[[Random, Any], Any]] = {
    made.__name__: made
    for made in (
        *(transposed, reshaped, flattened, convolved, pooled, dense, averaged, scaled, shifted, padded, cut),
        *(doubled, residual),
    )
}


def random_model(seed: int) -> keras.Model:
    """Return chains of random operations on one image."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    image = keras.Input((4, 6, 3), name="image")
    outputs = []
    for number in range(CHAINS):
        x = image
        for name in rng.choice([*OPERATIONS], LENGTH):
            made = OPERATIONS[name](rng, x)
            if len(made.shape) <= MOST_AXES and prod(sizes(made)) <= MOST_ENTRIES:
                x = made
        outputs.append(layers.Identity(name=f"chain_{number}")(x + 0.1))
    return keras.Model(image, outputs)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(6))
def test_random_chains_are_exported_in_both_layouts(seed: int) -> None:
    network = convert(random_model(seed))
    assert difference(network) < 1e-5
    assert difference(network, channels_first(network)) < 1e-5
