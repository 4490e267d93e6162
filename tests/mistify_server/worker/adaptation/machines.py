"""A measured machine, and its predictions for networks of dense layers."""

import keras
import numpy as np

from executors.data import Dataset
from executors.structure import analyse
from mistify.costs.budget import Costs
from mistify.costs.catalogue import HOST
from mistify.costs.latency import LatencyModel, RoutineModel, Tile
from mistify.costs.profiles import MeasuredProfile, Profile, device_profile

layers = keras.layers


def dense_network() -> keras.Model:
    """Return a network with two hidden layers of 96 units."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16,), name="x")
    x = layers.Dense(96, "relu")(layers.Dense(96, "relu")(inputs))
    return keras.Model(inputs, layers.Dense(4, "softmax", name="scores")(x))


def examples(seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset({"x": rng.normal(size=(40, 16)).astype(np.float32)}, {"scores": rng.integers(0, 4, 40)})


def predicted(network: keras.Model, profile: Profile = HOST) -> float:
    return profile.latency_ms(analyse(network).network())


def no_file_costs(network: keras.Model) -> Costs:
    """A cost reader for goals without limits that are judged by the converted file."""
    return {}


def measured_board(integer: bool = False) -> MeasuredProfile:
    """Return a device on which only multiply-adds take time, 1 ns each, in tiles of one."""
    figures = {routine: (0.0, 1e-3, *[0.0] * 9) for routine in ("dense", "dense-vector")}
    routines = {routine: RoutineModel(tile=Tile(), figures=terms) for routine, terms in figures.items()}
    passes = dict.fromkeys(
        ("softmax", "quantize", "dequantize"), RoutineModel(tile=Tile(), figures=(0.0,) * 7)
    )
    return device_profile("board", LatencyModel(start=0.0, routines={**routines, **passes}), integer)
