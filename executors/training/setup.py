"""What networks are trained with: data, teacher, optimizer and rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from executors.data import Array, Dataset
from mistify.config.dataset import DataSettings
from mistify.config.metric import Metric


@dataclass(frozen=True)
class TrainingSetup:
    """What networks learn from.

    Attributes:
        train: Training data.
        test: Data that accuracy is measured on, never trained on.
        teacher: The teacher's predictions for the training data, name of the output -> [examples, ...],
            None to learn from the targets alone.
        batch_size: Examples of a step.
        optimizer: `sgd` (with Nesterov momentum and weight decay) or `adam`.
        learning_rate: The highest learning rate.
        distillation: Part of the loss that comes from the teacher.
        temperature: Softening of both outputs in distillation.
        settings: How the data are trained on and measured with.
    """

    train: Dataset
    test: Dataset
    teacher: Mapping[str, Array] | None
    batch_size: int
    optimizer: str
    learning_rate: float
    distillation: float
    temperature: float
    settings: DataSettings = field(default_factory=DataSettings)

    @property
    def metric(self) -> Metric:
        """What is measured on the test data."""
        return self.settings.metric or Metric.ACCURACY

    def on(self, train: Dataset) -> "TrainingSetup":
        """The same settings on other training data, for which there is no teacher."""
        return replace(self, train=train, teacher=None)
