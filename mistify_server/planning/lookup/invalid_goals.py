"""Repair of invalid goals, so that their valid parts can still be looked up."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from mistify.config.porting import PortingConfig
from mistify_server.planning.lookup.models import BUILTIN_DATA, BUILTIN_MODELS

#: Replacements for wrong or missing parts that need no lookup.
_STAND_INS: Mapping[str, Any] = {
    "id": "stand-in",
    "model": BUILTIN_MODELS[0],
    "dataset": {part: BUILTIN_DATA[part] for part in ("train", "test")},
    "adaptation_goal": {"FLOP": "1x"},
}


def repaired_configs(
    invalid: Mapping[int, tuple[Any, ValidationError]],
) -> Iterator[tuple[int, PortingConfig]]:
    """Yield invalid configs without their invalid parts, by index; values that are not objects are dropped.

    Args:
        invalid: The `invalid` of `mistify.config.reading.BatchReading`.
    """
    for index, (value, error) in invalid.items():
        if isinstance(value, dict):
            config = _repaired(value, error)
            if config is not None:
                yield index, config


def _repaired(value: dict[str, Any], error: ValidationError) -> PortingConfig | None:
    """Return a config without the wrong values, or, if it is still invalid, without their enclosing parts."""
    wrong = [details["loc"] for details in error.errors()]
    for keys in (wrong, [place[:1] for place in wrong]):
        try:
            return PortingConfig.model_validate(_without(value, keys))
        except ValidationError:
            continue
    return None


def _without(value: dict[str, Any], places: Iterable[tuple[int | str, ...]]) -> dict[str, Any]:
    rest = deepcopy(value)
    for place in places:
        _remove(rest, place)
    for part, stand_in in _STAND_INS.items():
        own = rest.get(part)
        if own is None:
            rest[part] = stand_in
        elif part == "dataset" and isinstance(own, dict) and "unlabelled" not in own:
            rest[part] = {**stand_in, **own}
    return rest


def _remove(value: Any, place: tuple[int | str, ...]) -> None:
    """Remove the value at a place, or else its nearest existing parent."""
    *path, last = place or ("",)
    for key in path:
        inner = value.get(key) if isinstance(value, dict) else None
        if not isinstance(inner, dict):
            last = key
            break
        value = inner
    if isinstance(value, dict):
        value.pop(last, None)
