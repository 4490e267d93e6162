"""The `branches` of a config: the budgets of a package's networks, switched on the device (paper 6)."""

import re
from fractions import Fraction
from math import log
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from mistify.parsing.validation import InvalidValue, Settings

#: Beyond these multiples, a branch has nothing in common with the network whose first layers it shares.
_LEAST: Final = Fraction(1, 20)
_MOST: Final = Fraction(20)

#: Exponents of more digits would be numbers of more digits than memory has room for.
_LITERAL: Final = re.compile(r"[+-]?(\d+/\d+|\d*\.?\d*([eE][+-]?\d\d?)?)", re.ASCII)

_EXPECTED: Final = 'a multiple of the goal\'s budget between "1/20x" and "20x", such as "1/3x"'


def _multiple(value: object) -> float:
    """Parse a multiple of a budget: "1/3x", "0.5x", 2."""
    text = value.removesuffix("x").strip() if isinstance(value, str) else str(value)
    try:
        is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
        if not is_number or len(text) > 32 or not _LITERAL.fullmatch(text):
            raise ValueError(text)
        multiple = Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise InvalidValue(value, _EXPECTED, "write a fraction or a number followed by x") from error
    if not _LEAST <= multiple <= _MOST:
        raise InvalidValue(value, _EXPECTED, "choose one in that range")
    return float(multiple)


Multiple = Annotated[float, BeforeValidator(_multiple), PlainSerializer(lambda value: f"{value!r}x")]


class BranchesConfig(Settings):
    """A number of branches with budgets spread evenly, on a logarithmic scale, around the goal's.

    Attributes:
        count: The number of branches, including the goal's own network.
        from_: The budget of the smallest, as a multiple of the goal's.
        to: The budget of the largest.
        saved_model: Whether the package also has them as a TensorFlow SavedModel.
    """

    model_config = ConfigDict(serialize_by_alias=True)  # the same keys in tasks and in configs

    count: int = Field(default=3, ge=2, le=16, description="a number from 2 to 16", examples=[3])
    from_: Multiple = Field(
        default="1/3x", validate_default=True, alias="from", description=_EXPECTED, examples=["1/3x"]
    )
    to: Multiple = Field(default="3x", validate_default=True, description=_EXPECTED, examples=["3x"])
    saved_model: bool = Field(default=False, description="true or false", examples=[True])

    @model_validator(mode="after")
    def _range_includes_goal(self) -> "BranchesConfig":
        if not self.from_ <= 1 <= self.to or self.from_ == self.to:
            raise InvalidValue(
                f"from {self.from_:g}x to {self.to:g}x",
                "two different multiples that enclose the goal, 1x, or include it",
                'for example "from": "1/3x", "to": "3x"',
            )
        return self

    @property
    def shares(self) -> tuple[float, ...]:
        """The budgets as multiples of the goal's, ascending; the one nearest to 1 is replaced by 1."""
        steps = self.count - 1
        even = [self.from_ * (self.to / self.from_) ** (step / steps) for step in range(self.count)]
        own = min(even, key=lambda share: round(abs(log(share)), 9))
        return tuple(1.0 if share == own else share for share in even)
