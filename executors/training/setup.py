"""Training setups: data, teacher, and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import keras

from executors.data import Array, Dataset
from executors.training.params import TrainingParams
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric

__all__ = ["TrainingSetup"]


@dataclass(frozen=True)
class TrainingSetup:
    """The data, the teacher and the settings for training a network.

    Attributes:
        validation: Examples for all choices, which are never used for training.
        teacher: Output name -> the teacher's predictions for the training data [examples, ...]; None to train
            on the targets alone.
        settings: The metric, the losses, the class weights and the changes to images in the config.
        mirrored: The teacher's predictions for images mirrored left to right, if steps flip images; None to
            use the predictions for the original images.
        teacher_model: A network that predicts the changed images of each step as a teacher; None to use
            `teacher`, with predictions for the original images.
        has_validation_labels: Whether the targets of `validation` are true labels rather than predictions.
    """

    train: Dataset
    validation: Dataset
    teacher: Mapping[str, Array] | None
    params: TrainingParams
    settings: DataSettings = field(default_factory=DataSettings)
    mirrored: Mapping[str, Array] | None = None
    teacher_model: keras.Model | None = None
    has_validation_labels: bool = True

    @property
    def metric(self) -> Metric:
        """The metric by which networks are compared."""
        return self.settings.metric or Metric.ACCURACY
