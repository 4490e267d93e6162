"""Small networks, converted with the places of their units, and the same files with closed units masked."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import keras
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from executors.structure import analyse, fold_batch_norm
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.package.cut_places import CutPlaces
from mistify.tflite.combining import read_network
from mistify.tflite.packing import packed
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cut_places import find_cut_places
from tests.executors.structure.networks import randomised

layers = keras.layers

#: Values of a constant: the type as LiteRT numbers it.
TYPES = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.FLOAT16: np.float16,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.INT32: np.int32,
}


def convolutional() -> keras.Model:
    """Two convolutions inside a residual block, the second depthwise; a flattened image; hidden neurons."""
    x = image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(5, 3, padding="same", activation="relu", name="stem")(x)
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(14, 3, padding="same", name="inner")(x)))
    y = layers.ReLU()(layers.DepthwiseConv2D(3, padding="same", name="deep")(y))
    x = layers.Add()([x, layers.Conv2D(5, 3, padding="same", name="outer")(y)])
    x = layers.Conv2D(7, 3, strides=2, padding="same", activation="relu", name="last")(x)
    x = layers.Dense(13, activation="relu", name="hidden")(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(3, name="scores")(x))


def feed_forward() -> keras.Model:
    """Hidden neurons at each of several positions."""
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Reshape((9, 8))(image)
    x = layers.Add()([x, layers.Dense(8, name="out")(layers.Dense(17, activation="gelu", name="feed")(x))])
    return keras.Model(image, layers.Dense(3, name="scores")(layers.GlobalAveragePooling1D()(x)))


def alike() -> keras.Model:
    """Two layers with the same weights, which the converter stores once."""
    image = keras.Input((6, 6, 2), name="image")
    x = first = layers.Dense(6, name="first")(layers.Flatten()(image))
    for name in ("a", "b"):
        x = layers.Add()([first, layers.Dense(6, name=f"{name}-out")(layers.Dense(9, "relu", name=name)(x))])
    model = randomised(keras.Model(image, layers.Dense(3, name="scores")(x)))
    model.get_layer("b").set_weights(model.get_layer("a").get_weights())
    model.get_layer("b-out").set_weights(model.get_layer("a-out").get_weights())
    return model


#: The gated groups of each network.
GROUPS = {
    convolutional: ("inner", "last", "hidden"),
    feed_forward: ("feed",),
    alike: ("a", "b"),
}

#: The kernels that sum over a group: [made, ..., read], by their shapes in the file.
READERS: Mapping[str, tuple[int, ...]] = {
    "inner": (5, 3, 3, 14),
    "last": (13, 9 * 7),
    "hidden": (3, 13),
    "feed": (8, 17),
}

#: The constants that make the units of a group, by their shapes: all have the units first.
MAKERS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "inner": ((14, 3, 3, 5), (14,)),
    "last": ((7, 3, 3, 5), (7,)),
    "hidden": ((13, 9 * 7), (13,)),
}


def images(count: int = 24) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).uniform(size=(count, 6, 6, 2)).astype(np.float32)}


@cache
def built(make: Any) -> keras.Model:
    """A network with random weights, batch norm folded."""
    model = make()
    return fold_batch_norm(model if make is alike else randomised(model))


@cache
def converted(make: Any, precision: Quantization = Quantization.NONE) -> tuple[bytes, CutPlaces]:
    """A network's file, and the places of its groups."""

    def convert_at(model: keras.Model) -> bytes:
        return convert(model, QuantizationConfig(precision=precision), images())

    model = built(make)
    return find_cut_places(convert_at(model), analyse(model), GROUPS[make], convert_at)


def drawn(places: CutPlaces, seed: int) -> list[np.ndarray]:
    """Open units of each group, at least one."""
    rng = np.random.default_rng(seed)
    return [
        np.sort(rng.choice(units, rng.integers(1, units + 1), replace=False)).astype(np.intp)
        for units in places.units
    ]


def opened(kept: list[np.ndarray]) -> list[OpenUnits]:
    return [OpenUnits(units) for units in kept]


def run(network: bytes, count: int = 24) -> np.ndarray:
    """The output for some images at once."""
    return Session(network, threads=1)(images(count))["scores"]


def masked(
    network: bytes, closed: Mapping[str, np.ndarray], units: Mapping[str, int], makers: bool = False
) -> bytes:
    """The same file, where nothing reads the closed units; or where they are made as zeros as well."""
    return masked_by_shape(network, closed, units, READERS, MAKERS if makers else {})


def masked_by_shape(
    network: bytes,
    closed: Mapping[str, np.ndarray],
    units: Mapping[str, int],
    readers: Mapping[str, tuple[int, ...]],
    makers: Mapping[str, tuple[tuple[int, ...], ...]],
) -> bytes:
    """The same file with zeros in the constants of closed units, which are found by their shapes.

    Args:
        units: Group -> its number of units.
        readers: Group -> the shape [..., units] of the constant that reads it.
        makers: Group -> the shapes [units, ...] of those that make it, unless they are left as they are.
    """
    model = read_network(network)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            buffer = model.buffers[tensor.buffer]
            if buffer.data is None:
                continue
            content = np.array(buffer.data, np.uint8).view(TYPES[tensor.type])
            shape = tuple(tensor.shape)
            for name, numbers in closed.items():
                if shape == readers[name]:
                    content.reshape(-1, units[name])[:, numbers] = 0
                if shape in makers.get(name, ()):
                    content.reshape(units[name], -1)[numbers] = 0
            buffer.data = content.view(np.uint8)
    return packed(model)
