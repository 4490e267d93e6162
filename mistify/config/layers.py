"""Rules for layers that adaptation must not change, or not cut below a number of channels."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from pydantic import PlainValidator

from mistify.parsing.validation import InvalidValue

#: The rule of a layer that must not change.
KEEP: Final = "keep"

_AT_LEAST: Final = "at_least"


@dataclass(frozen=True)
class LayerRule:
    """A rule for a layer. Such a layer is never removed.

    Attributes:
        at_least: The minimum number of output channels; None keeps all channels that the layer reads and
            writes, at all positions. Its weights are still trained.
    """

    at_least: int | None = None


def _rule(raw: object) -> LayerRule:
    if raw == KEEP:
        return LayerRule()
    if isinstance(raw, dict) and raw.keys() == {_AT_LEAST}:
        count = raw[_AT_LEAST]
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return LayerRule(count)
    raise InvalidValue(raw, f'"{KEEP}" or a number of channels above 0', f'write {{"{_AT_LEAST}": 16}}')


#: Rules by shell patterns of layer names: `stem*`, `head_?`. A layer obeys all matching rules.
LayerRules: TypeAlias = dict[str, Annotated[LayerRule, PlainValidator(_rule)]]
