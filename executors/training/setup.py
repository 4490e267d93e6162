"""Setups of training: data, teacher, and settings."""

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
    """The data, the teacher and the settings that a network is trained with.

    Attributes:
        validation: Examples for all choices, which are never trained on.
        teacher: Output name -> the teacher's predictions for the training data [examples, ...]; None to learn
            from the targets alone.
        settings: Settings of the data.
        mirrored: The teacher's predictions for images mirrored left to right, where the images of a step are
            flipped; None to learn its predictions for the images as they are.
        teacher_model: A network whose predictions for the changed images of each step are learned; None to
            learn those of `teacher`, for the images as they are.
    """

    train: Dataset
    validation: Dataset
    teacher: Mapping[str, Array] | None
    params: TrainingParams
    settings: DataSettings = field(default_factory=DataSettings)
    mirrored: Mapping[str, Array] | None = None
    teacher_model: keras.Model | None = None

    @property
    def metric(self) -> Metric:
        """The metric by which networks are compared."""
        return self.settings.metric or Metric.ACCURACY
