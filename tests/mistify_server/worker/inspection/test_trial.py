import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.worker.inspection.trial import trial_of


@pytest.mark.parametrize(("accuracy", "steps"), [(1.0, 30), (0.1, 60), (None, 60)])
def test_a_trial_ends_early_if_the_source_has_nothing_left_to_learn(
    accuracy: float | None, steps: int
) -> None:
    """The network reads the class off its input, which it soon has learned as well."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(3, "softmax", name="y")(inputs))
    classes = np.arange(90) % 3
    data = Dataset({"x": np.eye(3, dtype=np.float32)[classes]}, {"y": classes})
    setup = TrainingSetup(
        data, data, None, TrainingParams(batch_size=30, optimizer="adam", learning_rate=0.1)
    )
    estimates = EdgeEstimates(
        features=NetworkFeatures(model="m", kind="k", blocks=0),
        source_steps=60,
        profiles={},
        scaled=(),
        accuracy=accuracy,
        step_seconds=1e-3,
    )
    trial = trial_of(Trainer(model, setup, 0), setup, estimates, 90)
    assert (trial.steps, trial.accuracy) == (steps, 1.0)
