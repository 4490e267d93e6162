"""Rules for layers that adaptations must leave as they are, or not cut below some channels."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from pydantic import PlainValidator

from mistify.parsing.validation import InvalidValue

#: The rule of a layer that stays as it is.
KEEP: Final = "keep"

_AT_LEAST: Final = "at_least"


@dataclass(frozen=True)
class LayerRule:
    """A rule for a layer, which stays in the network whatever happens to the others.

    Attributes:
        at_least: The number of its output channels that stay; None keeps all channels that it reads and
            writes, at all positions. Its weights are trained like others.
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


#: Rules by patterns of layers' names, as the shell's: `stem*`, `head_?`. A layer obeys all that match it.
LayerRules: TypeAlias = dict[str, Annotated[LayerRule, PlainValidator(_rule)]]
