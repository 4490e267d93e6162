"""The algorithm that adapts networks, as named in a porting config (paper, 4.2)."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from mistify.parsing.validation import Settings, Text

#: The name that selects an algorithm for each edge automatically.
AUTO = "auto"


class AlgorithmConfig(Settings):
    """The adaptation algorithm (4.2), its name in lower case, and its settings; a name alone is enough.

    `auto` chooses an algorithm for each edge of the goal tree; its settings are those that all algorithms
    share.

    Attributes:
        name: The name of an algorithm, or "auto".
        config: Settings of the algorithm.
    """

    name: Annotated[Text, AfterValidator(str.lower)] = Field(
        default=AUTO, description="the name of an algorithm", examples=[AUTO]
    )
    config: dict[str, object] = Field(
        default_factory=dict,
        description="an object with the algorithm's settings",
        examples=[{"tune_steps": 300}],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, raw: Any) -> Any:
        return {"name": raw} if isinstance(raw, str) else raw
