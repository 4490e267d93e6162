"""The `quantization` of a config: the precision of a package."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from mistify.costs.quantization import Quantization
from mistify.parsing.validation import InvalidValue, Settings, unknown_name


def _known(name: object) -> object:
    if isinstance(name, str) and name not in set(Quantization):
        raise InvalidValue(name, *unknown_name(name, Quantization))
    return name


class QuantizationConfig(Settings):
    """The `quantization` of a config: a precision alone, or an object with its settings.

    Attributes:
        precision: The precision of the package, to which its limits on memory, size and latency apply.
        inputs: The type of an integer package's inputs and outputs: float32, converted in the package, or
            int8.
    """

    precision: Annotated[Quantization, BeforeValidator(_known)] = Field(
        default=Quantization.NONE, description="a precision", examples=[Quantization.INT8]
    )
    inputs: Literal["float32", "int8"] = Field(
        default="float32", description='"float32" or "int8"', examples=["int8"]
    )

    @property
    def integer_inputs(self) -> bool:
        """Whether inputs and outputs are int8."""
        return self.inputs == "int8"

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, raw: Any) -> Any:
        return {"precision": raw} if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _check_inputs(self) -> "QuantizationConfig":
        if self.integer_inputs and not self.precision.integer:
            raise InvalidValue(
                self.model_dump(mode="json"),
                f"float32 inputs for a network of precision {self.precision.value}",
                'leave "inputs" out, or ask for the precision "int8"',
            )
        return self
