"""The `exits` of a config: places at which a network may answer early (CrowdHMTware III-A1)."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from mistify.parsing.quantities import format_share, parse_figure
from mistify.parsing.validation import InvalidValue, Settings
from mistify.wording import listed

#: With a larger loss, a smaller network is better than an early answer.
_MOST: Final = 0.2

_EXPECTED: Final = f'a loss of accuracy above 0 and up to {_MOST:g}, such as 0.01 or "1%"'


def _loss(value: object) -> float:
    """Parse a loss of accuracy, as a share of all examples."""
    try:
        loss = parse_figure(value)
    except ValueError as error:
        raise InvalidValue(value, _EXPECTED, "write a share in that range") from error
    if not 0 < loss <= _MOST:
        raise InvalidValue(value, _EXPECTED, "write a share in that range")
    return loss


Loss = Annotated[float, BeforeValidator(_loss), PlainSerializer(format_share)]


class ExitsConfig(Settings):
    """The exits of a package, at which its network answers early if it is confident.

    Attributes:
        loss: The accuracy that early answers may cost, as shares of all examples. Each loss has a confidence
            of its own from which exits answer, and becomes an option of the package.
        after: The layers behind which heads may be; by default, the server chooses.
    """

    loss: tuple[Loss, ...] = Field(
        default=(0.005, 0.01),
        min_length=1,
        max_length=4,
        description="a list of one to four losses of accuracy",
        examples=[[0.005, 0.01]],
    )

    after: tuple[str, ...] = Field(
        default=(), description="a list of names of layers", examples=[["add_3", "add_6"]]
    )

    @model_validator(mode="after")
    def _losses_differ(self) -> "ExitsConfig":
        if len({f"{loss:.3g}" for loss in self.loss}) < len(self.loss):
            raise InvalidValue(list(self.loss), "losses that differ in three digits", "name each once")
        return self

    def __str__(self) -> str:
        return f"losses of {listed([format_share(loss) for loss in self.loss])}"
