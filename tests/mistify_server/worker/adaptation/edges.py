"""Networks and an executor for tests of edges."""

import keras
import numpy as np

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.data import Dataset
from executors.structure import copied
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric

layers = keras.layers


def never(model: keras.Model) -> float:
    raise AssertionError("nothing is to be measured")


class Still(AdaptationExecutor):
    """An executor that meets every budget with the unchanged network."""

    name = "still"
    trainer: Trainer = None  # type: ignore[assignment]

    def __init__(self, params: Params) -> None: ...

    def init(self, assignment: Assignment) -> None:
        self.trainer = Trainer(copied(assignment.model), assignment.setup, assignment.seed)

    def adjust(self, weights: object) -> None: ...

    def iterate(self) -> int:
        raise AssertionError("the budget is met")

    def measure(self) -> dict[str, float]:
        return {"flops": 1.0}

    def network(self) -> keras.Model:
        return self.trainer.model


def two_output_model(rows: int) -> tuple[keras.Model, TrainingSetup]:
    """Return a network that predicts a kind correctly and a price 1 too high, and data for both."""
    inputs = keras.Input((2,), name="x")
    outputs = [layers.Dense(2, name="kind")(inputs), layers.Dense(1, name="price")(inputs)]
    model = keras.Model(inputs, outputs)
    model.get_layer("kind").set_weights([np.array([[-9.0, 9.0], [0.0, 0.0]]), np.zeros(2)])
    model.get_layer("price").set_weights([np.array([[0.0], [1.0]]), np.ones(1)])

    def data(seed: int) -> Dataset:
        x = np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)
        return Dataset({"x": x}, {"kind": (x[:, 0] > 0).astype(np.int64), "price": x[:, 1:]})

    settings = DataSettings(metric=Metric.MEAN_SCORE, metrics={"kind": Metric.ACCURACY, "price": Metric.MAE})
    params = TrainingParams(batch_size=20, learning_rate=0.002, distillation=0.0)
    return model, TrainingSetup(data(0), data(1), None, params, settings)


def batch_normed(rows: int) -> tuple[keras.Model, TrainingSetup]:
    """Return a network with a group to cut, and data that it learns in a few hundred steps."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    hidden = layers.ReLU()(layers.BatchNormalization()(layers.Dense(12)(inputs)))
    model = keras.Model(inputs, layers.Dense(2, name="y")(hidden))

    def data(seed: int) -> Dataset:
        x = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
        return Dataset({"x": x}, {"y": (x[:, 0] * x[:, 1] > 0).astype(np.int64)})

    params = TrainingParams(batch_size=32, learning_rate=0.01, distillation=0.0)
    return model, TrainingSetup(data(0), data(1), None, params)
