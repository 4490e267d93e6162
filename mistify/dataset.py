"""What a config says of its data besides where they are."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mistify.metric import Metric
from mistify.validation import Settings

Weight = Annotated[float, Field(gt=0)]
ClassWeights: TypeAlias = Literal["balanced"] | tuple[Weight, ...]


class DataSettings(Settings):
    """How data are read, trained on and measured with.

    Attributes:
        metric: What is measured on the test data; without one, what suits the targets.
    """

    metric: Metric | None = Field(
        default=None, description=f"one of {', '.join(Metric)}", examples=[Metric.F1.value]
    )
