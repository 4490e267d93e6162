"""Problems with a user's values: pydantic's errors as `Problem`s with JSON paths."""

import json
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mistify.errors import Problem

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 80


class InvalidValue(ValueError):  # noqa: N818 (reads as what it is; every one of them ends up in a `Problem`)
    """A value that cannot be used, what was expected, and how to fix it."""

    def __init__(self, value: object, expected: str, fix: str) -> None:
        super().__init__(f"got {shown(value)}; expected {expected}; {fix}")
        self.value = value
        self.expected = expected
        self.fix = fix

    def problem(self, place: str) -> Problem:
        """Return the problem of this value at a JSON path."""
        return Problem(place, shown(self.value), self.expected, self.fix)


class Settings(BaseModel):
    """The base of values that users write: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def shown(value: object) -> str:
    """Return a value as JSON, shortened to one line."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def json_path(keys: Iterable[str | int], start: str = "") -> str:
    """Return a JSON path such as `[3].adaptation_goal.FLOP` from its keys and indices."""
    path = start
    for key in keys:
        if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f"[{json.dumps(key)}]"
    return path


def unknown_name(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return what was expected in place of an unknown name, and how to fix it."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5) or [
        candidate for candidate in known if candidate.casefold() == name.casefold()
    ]
    fix = f'did you mean "{close[0]}"?' if close else "remove it or use a known name"
    return f"one of {', '.join(known)}", fix


def problems_of(error: ValidationError, model: type[BaseModel], place: str = "") -> list[Problem]:
    """Return every error of a validation as a problem.

    Args:
        error: what `model.model_validate` raised.
        model: its class. The `description` and the first of the `examples` of a field say in the
            problem what was expected and how to fix it.
        place: the JSON path of the validated value.
    """
    return [_problem(details, model, place) for details in error.errors()]


def _problem(details: ErrorDetails, model: type[BaseModel], place: str) -> Problem:
    keys = details["loc"]
    path = json_path(keys, place)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, InvalidValue):
        return cause.problem(path)
    if details["type"] == "extra_forbidden":
        key = str(keys[-1])
        return Problem(path, f"the key {shown(key)}", *unknown_name(key, _keys(_model_at(model, keys[:-1]))))
    if details["type"] in ("model_type", "model_attributes_type"):
        fields = ", ".join(_keys(_model_at(model, keys)))
        return Problem(path, shown(details["input"]), "an object", f"its keys can be {fields}")
    value = "nothing" if details["type"] == "missing" else shown(details["input"])
    return Problem(path, value, *_advice(model, keys, details["msg"]))


def _advice(model: type[BaseModel], keys: Sequence[str | int], message: str) -> tuple[str, str]:
    """Return what a field expects, and an example of it."""
    field = _keys(_model_at(model, keys[:-1])).get(str(keys[-1])) if keys else None
    expected, fix = _without_examples(message)
    if field is None:
        return expected, fix
    if field.examples:
        fix = f"write for example {json.dumps(field.examples[0])}"
    elif field.description:
        fix = message
    return field.description or expected, fix


def _without_examples(message: str) -> tuple[str, str]:
    """Return what Pydantic expects by its message, and what to do."""
    expected = message.removeprefix("Input should be ")
    return (expected, "correct it") if expected != message else ("another value", message)


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields by the keys that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_at(model: type[BaseModel], keys: Sequence[str | int]) -> type[BaseModel]:
    """Return the model that validates the value below these keys."""
    annotation: Any = model
    for key in keys:
        annotation = _annotation_at(annotation, key)
        model = next(filter(_is_model, (annotation, *get_args(annotation))), model)
    return model


def _annotation_at(annotation: Any, key: str | int) -> Any:
    """Return the type of the value below a key of an object, or an index of a list."""
    if isinstance(key, int):
        return annotation  # whose arguments are looked through
    for candidate in (annotation, *get_args(annotation)):
        if _is_model(candidate):
            field = _keys(candidate).get(str(key))
            return None if field is None else field.annotation
        if get_origin(candidate) is dict:
            return get_args(candidate)[1]
    return None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
