"""Setups of training: data, teacher, and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from executors.data import Array, Dataset
from mistify.config.dataset import DataSettings
from mistify.config.metric import Metric

#: Learning rates that suit most networks.
_LEARNING_RATES: Final = {"sgd": 0.01, "adam": 2e-3}


def _usual_rate(params: dict[str, Any]) -> float:
    return _LEARNING_RATES[params.get("optimizer", "sgd")]


class TrainingParams(BaseModel):
    """Settings of training, the same for every algorithm.

    Attributes:
        batch_size: Examples of a training step.
        optimizer: `sgd`, with Nesterov momentum and weight decay, or `adam`, which networks without batch
            norms may need.
        learning_rate: The optimizer's highest learning rate, which an algorithm may scale to how far it has
            to go; without one, one that suits it.
        distillation: Part of the loss that comes from the teacher's outputs.
        temperature: Softening of both outputs in distillation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(default=64, ge=1, le=4096)
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = Field(default_factory=_usual_rate, gt=0, le=1)
    distillation: float = Field(default=0.7, ge=0, le=1)
    temperature: float = Field(default=2.0, gt=0)


@dataclass(frozen=True)
class TrainingSetup:
    """The data, the teacher and the settings that a network is trained with.

    Attributes:
        train: Training data.
        validation: Examples that are never trained on, by which everything is chosen.
        teacher: The teacher's predictions for the training data, name of the output -> [examples, ...];
            None to learn from the targets alone.
        params: Settings of training.
        settings: How the data are trained on and measured with.
    """

    train: Dataset
    validation: Dataset
    teacher: Mapping[str, Array] | None
    params: TrainingParams
    settings: DataSettings = field(default_factory=DataSettings)

    @property
    def metric(self) -> Metric:
        """The metric by which networks are compared."""
        return self.settings.metric or Metric.ACCURACY
