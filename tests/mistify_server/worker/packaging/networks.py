"""A small network with data, a task that packages it, and helpers to inspect converted networks."""

from dataclasses import replace
from functools import cache

import keras
import numpy as np
from ai_edge_litert.tools import flatbuffer_utils

from executors.data import Dataset
from executors.structure import analyse, freeze, narrow
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import by_name
from mistify.jobs.package_spec import PackageSpec
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from mistify_server.worker.packaging.conversion.cuttable import convert_cuttable
from mistify_server.worker.packaging.conversion.slice_source import SliceSource
from mistify_server.worker.packaging.models import package_model
from tests.executors.structure.networks import randomised

layers = keras.layers
PI = replace(HOST.slower(10.0), name="pi")

#: The layers shared by networks with branches.
BASE = ("stem", "stem_norm", "stem_relu")


def network(seed=0, width=6):
    """Return a small residual network with batch norm and random weights."""
    inputs = keras.Input((8, 8, 2), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(inputs)))
    y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    y = layers.BatchNormalization()(layers.Conv2D(width, 1)(y))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, y])))
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x)), seed)


def images(batch):
    return np.random.default_rng(batch).uniform(size=(batch, 8, 8, 2)).astype(np.float32)


def examples_of(model, count, seed=0):
    """Return images with the classes predicted by a model, except every fifth, which has another class."""
    x = np.random.default_rng(seed).uniform(size=(count, 8, 8, 2)).astype(np.float32)
    predicted = model.predict(x, verbose=0).argmax(axis=1)
    return Dataset({"image": x}, {"scores": (predicted + (np.arange(count) % 5 == 0)) % 3})


def training_setup(model, train=80, validation=70, teacher=None):
    return TrainingSetup(
        examples_of(model, train, 1),
        examples_of(model, validation, 2),
        teacher,
        TrainingParams(batch_size=16),
    )


def packaged(model, task, setup, test=None, **options):
    """Package a model; without test data, the validation data is used instead."""
    return package_model(model, task, setup, test or setup.validation, **options)


def package_task(accuracy=0.75, **settings):
    """Return a task for a package with these settings; the files that it names are not loaded."""
    return PackageTask(
        recipe=TaughtRecipe(
            model=ModelSource(path="source.keras"),
            data=DataSource(train="train.npz", test="test.npz"),
            algorithm="uniform",
            settings={},
            hardware=by_name([HOST, PI]),
            seed=0,
            teacher="teacher.keras",
        ),
        job_id="job-1",
        goal_id="half",
        spec=PackageSpec(**{"budget": {}, **settings}),
        checkpoint="checkpoint.keras",
        costs={"flops": 9e5, "params": 100.0, "latency_ms@pi": 3.0},
        accuracy=accuracy,
    )


def operators(network):
    """Return name and output type of every operator in a converted network."""
    model = flatbuffer_utils.read_model_from_bytearray(network)
    graph = model.subgraphs[0]
    return [
        (
            flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex),
            flatbuffer_utils.type_to_name(graph.tensors[operator.outputs[0]].type),
        )
        for operator in graph.operators
    ]


def branching_network(width=6):
    inputs = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(24, 3, padding="same", use_bias=False, name="stem")(inputs)
    x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    y = layers.Conv2D(width, 3, padding="same", name="inner")(x)
    y = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(y))
    x = layers.Add(name="add")([x, layers.Conv2D(24, 1, name="back")(y)])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x))


def branch(share, width):
    """Return a network with the shared base followed by its own layers."""
    model = randomised(branching_network())
    freeze(model, BASE)
    own = narrow(analyse(model), {"inner": np.arange(6) < width})
    for layer in own.layers:
        if layer.name not in BASE:
            layer.set_weights([(1 + share / 10) * weight for weight in layer.get_weights()])
    return BranchNetwork(share, own, costs_of(analyse(own).network()))


def four_branches():
    """Return networks that share their first layers."""
    shares = ((1 / 3, 1), (0.6, 2), (1.0, 3), (3.0, 6))
    return Branches(BASE, tuple(branch(share, width) for share, width in shares))


def slices_of(whole, examples=None, units=None):
    """Return the source of slices of a network, converted once at each precision."""
    convert = cache(lambda quantization: convert_cuttable(whole, quantization, examples or {}))
    return SliceSource(convert, units=units)
