"""The losses of plug-ins, by their names in configs."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import PlainValidator

from mistify.parsing.validation import InvalidValue
from mistify.plugins import plug_ins

#: The entry points of losses that plug-ins add.
LOSSES: Final = "mistify.losses"

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _loss_name(raw: object) -> str:
    if isinstance(raw, str) and _NAME.fullmatch(raw):
        return raw
    expected = "the name of a plug-in's loss, or FILE.py:name with the name in lower case"
    raise InvalidValue(raw, expected, f"see {LOSSES} in docs/metrics.md")


LossName: TypeAlias = Annotated[str, PlainValidator(_loss_name)]


def known_losses() -> tuple[str, ...]:
    """Return the names of all known losses, without importing plug-ins."""
    return tuple(plug_ins(LOSSES))
