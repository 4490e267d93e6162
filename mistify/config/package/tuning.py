"""The `tuning` of a config: how a package is trained on the device, and adapted to its data (paper 5.1)."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from mistify.parsing.validation import InvalidValue, Settings, together

_PARTS: Final = '"none", "network", "head", "biases", or the number of last blocks'


def _part(part: object) -> object:
    """Check which part of a network is trained."""
    if part in ("none", "network", "head", "biases") or (type(part) is int and part > 0):
        return part
    raise InvalidValue(part, _PARTS, "write one of them, for example 2")


Part = Annotated[Literal["none", "network", "head", "biases"] | int, BeforeValidator(_part)]


class TuningConfig(Settings):
    """The `tuning` of a config: how a package is trained on the device, and adapted without labels.

    Training is available in float32, without branches and compression; adaptation in every precision but
    those with integer activations. Neither is available for models without layers.

    Attributes:
        trainable: The part to train: nothing, the network, its head (the layers that make the outputs), its
            head and the biases and scales of all layers, or a number of last blocks. A block is the layers
            with weights between two places where the whole network passes through one tensor.
        optimizer: Adam's step sizes do not depend on the range of the inputs; "sgd" learns very slowly from
            values such as pixels from 0 to 255.
        batch_size: The examples per training step.
        micro_batch: The examples that a step computes at once; it adds up their gradients, which takes less
            memory. By default, all of them.
        adaptation: Whether the package describes its folded batch norms, so that a device can follow a shift
            of its data without labels.
    """

    trainable: Part = Field(default="none", description=_PARTS, examples=["head"])
    optimizer: Literal["sgd", "adam"] = Field(
        default="adam", description='"adam" or "sgd" (with momentum)', examples=["sgd"]
    )
    batch_size: int = Field(
        default=32, ge=1, le=4096, description="the examples per step, from 1 to 4096", examples=[32]
    )
    micro_batch: int | None = Field(
        default=None, ge=1, description="a number that divides batch_size without a rest", examples=[8]
    )
    adaptation: bool = Field(default=False, description="true or false", examples=[True])

    @model_validator(mode="after")
    def _micro_batches_fill_batches(self) -> "TuningConfig":
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            mistake = InvalidValue(
                self.micro_batch,
                f"a number that divides the {self.batch_size} examples of a step without a rest",
                "write another number, or change batch_size",
            )
            raise together("TuningConfig", [(("micro_batch",), mistake)])
        return self
