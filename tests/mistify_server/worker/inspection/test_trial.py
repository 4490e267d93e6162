import keras
import numpy as np
import numpy.typing as npt
import pytest

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.metric import Metric, OutputScore
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.worker.inspection.trial import trial_of


@pytest.mark.parametrize(("accuracy", "steps"), [(2 / 3, 30), (0.1, 60), (None, 60)])
def test_a_trial_ends_early_if_the_source_has_nothing_left_to_learn(
    accuracy: float | None, steps: int
) -> None:
    """The network reads the class off its input, which is right in two of three classes."""
    trainer, setup, estimates = learner(accuracy, np.array([0, 1, 1]))
    trial = trial_of(trainer, setup, estimates, 90)
    assert (trial.steps, trial.accuracy) == (steps, pytest.approx(2 / 3))


def test_a_source_that_makes_no_mistake_is_not_trained() -> None:
    trainer, setup, estimates = learner(1.0, np.arange(3))
    trial = trial_of(trainer, setup, estimates, 90)
    assert (trial.steps, trial.accuracy, trial.scores) == (60, 1.0, estimates.output_scores)
    assert trainer.loss is None


def learner(
    accuracy: float | None, validation_classes: npt.NDArray[np.int64]
) -> tuple[Trainer, TrainingSetup, EdgeEstimates]:
    """Return a network that learns to read the class off its input.

    Args:
        accuracy: The accuracy before the trial.
        validation_classes: The classes of the validation data, by input.
    """
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(3, "softmax", name="y")(inputs))
    classes = np.arange(90) % 3
    x = np.eye(3, dtype=np.float32)[classes]
    train, validation = (Dataset({"x": x}, {"y": own}) for own in (classes, validation_classes[classes]))
    setup = TrainingSetup(
        train, validation, None, TrainingParams(batch_size=30, optimizer="adam", learning_rate=0.1)
    )
    estimates = EdgeEstimates(
        features=NetworkFeatures(model="m", kind="k", blocks=0),
        source_steps=60,
        profiles={},
        scaled=(),
        accuracy=accuracy,
        output_scores=(OutputScore("y", Metric.ACCURACY, 1.0),),
        step_seconds=1e-3,
    )
    return Trainer(model, setup, 0), setup, estimates
