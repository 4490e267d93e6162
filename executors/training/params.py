"""Training settings, defined without TensorFlow."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainingParams(BaseModel):
    """Training settings common to all algorithms.

    Attributes:
        batch_size: Examples per training step.
        optimizer: `sgd`, with Nesterov momentum and weight decay, `adam`, or `auto`: `adam` for networks
            without batch norms, unless a learning rate is given; otherwise `sgd`.
        learning_rate: The optimizer's highest learning rate, which an algorithm may scale by the distance to
            the goal; by default one that suits the optimizer. Stages that are always trained with Adam,
            such as supernets, use it only with `adam`.
        distillation: Weight of the teacher's outputs in the loss.
        temperature: Softening of both outputs in distillation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(default=64, ge=1, le=4096)
    optimizer: Literal["auto", "sgd", "adam"] = "auto"
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="a learning rate above 0 and up to 1", examples=[0.01]
    )
    distillation: float = Field(default=0.7, ge=0, le=1)
    temperature: float = Field(default=2.0, gt=0)
