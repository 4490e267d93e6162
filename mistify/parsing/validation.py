"""Problems with a user's values: pydantic's errors as `Problem`s with JSON paths."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails

from mistify.errors import Problem
from mistify.wording import counted

__all__ = ["Settings"]

_T = TypeVar("_T")

#: The keys and indices that lead to a value.
Keys: TypeAlias = tuple[str | int, ...]

#: A setting's text, without the white space around it.
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=1024, strip_whitespace=True)]

#: The most problems of one kind that are reported: nobody reads more, and each takes time to explain.
MOST_PROBLEMS: Final = 1_000

#: Placeholder for an unavailable value.
_UNKNOWN: Final = object()

#: Expectations by the type of pydantic's error, where its own message is written for programmers.
_EXPECTATIONS: Final[Mapping[str, str]] = {
    "dict_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "a text",
    "too_short": "{min_length} or more items",
    "too_long": "at most {max_length} items",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
}

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A key or an index in a JSON path.
_PART: Final = re.compile(r'\.?[A-Za-z_][A-Za-z0-9_]*|\[(?:\d+|"(?:[^"\\]|\\.)*+")\]')
_SHOWN = 80
#: The most names in a message.
_LISTED: Final = 40


class InvalidValue(ValueError):  # noqa: N818 (not named like an error: each becomes a `Problem`)
    """An invalid value, the expected one, and the way to fix it."""

    def __init__(self, value: object, expected: str, fix: str) -> None:
        super().__init__(f"got {shown(value)}; expected {expected}; {fix}")
        self.value = value
        self.expected = expected
        self.fix = fix

    def problem(self, place: str) -> Problem:
        """Return the problem of this value at a JSON path."""
        return Problem(place, shown(self.value), self.expected, self.fix)


class Settings(BaseModel):
    """The base class of settings in user input: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def shown(value: object) -> str:
    """Return a value as JSON, shortened to one line."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]  # thousands of goals may share a long text
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


def paths_around(path: str) -> Iterator[str]:
    """Yield a JSON path, and those of the values around it: `[3].goal.size`, `[3].goal`, `[3]`."""
    ends, part = list[int](), _PART.match(path)
    while part is not None:
        ends.append(part.end())
        part = _PART.match(path, part.end())
    yield from (path[:end] for end in reversed(ends))


def some_of(names: Collection[str]) -> str:
    """Return names with commas between them: the first ones, and how many others there are."""
    listed = ", ".join([*names][:_LISTED])
    return f"{listed} and {len(names) - _LISTED:,} more" if len(names) > _LISTED else listed


def unknown_name(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return the known names as an expectation, and the way to fix an unknown name."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5) or [
        candidate for candidate in known if candidate.casefold() == name.casefold()
    ]
    fix = f'did you mean "{close[0]}"?' if close else "remove it or use a known name"
    return f"one of {some_of(known)}", fix


def explained(
    mistakes: Iterable[_T], problem_of: Callable[[_T], Problem], place: str = ""
) -> Iterator[Problem]:
    """Yield the problems of the first `MOST_PROBLEMS` mistakes, and the number of the others.

    Args:
        problem_of: Returns the problem of a mistake.
        place: The place of the others.
    """
    remaining = iter(mistakes)
    yield from map(problem_of, islice(remaining, MOST_PROBLEMS))
    yield from further(sum(1 for _ in remaining), place)


def first_of(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the first `MOST_PROBLEMS` problems, and the number of the others."""
    return explained(problems, lambda problem: problem)


def further(count: int, place: str = "") -> Iterator[Problem]:
    """Yield the problem that there are further mistakes, if there are any."""
    if count:
        fix = "correct the others first, and try again"
        yield Problem(place or "other places", f"up to {counted(count, 'further mistake')}", "none", fix)


def mistake_of(check: Callable[[], object]) -> InvalidValue | None:
    """Return the mistake that a check raises; None if it passes."""
    try:
        check()
    except InvalidValue as error:
        return error
    return None


def together(title: str, mistakes: Iterable[tuple[Keys, InvalidValue]]) -> ValidationError:
    """Combine several mistakes found by one validator into an error.

    Args:
        mistakes: Each with its place below the validated value.
    """
    details = [
        InitErrorDetails(type="value_error", loc=place, input=mistake.value, ctx={"error": mistake})
        for place, mistake in mistakes
    ]
    return ValidationError.from_exception_data(title, details)


def problems_of(
    error: ValidationError | Iterable[ErrorDetails],
    model: type[BaseModel],
    place: str = "",
    value: Any = _UNKNOWN,
) -> list[Problem]:
    """Convert the first errors of a validation to problems, one for each place, and say how many follow.

    Args:
        error: Raised by `model.model_validate`, or some of its details.
        model: The `description` of a field, and the first of its `examples`, become the expectation and the
            fix in its problems.
        place: JSON path of the validated value.
        value: The validated value, to distinguish places in it from names that pydantic adds.
    """
    innermost: dict[tuple[Keys, int], ErrorDetails] = {}
    errors = error.errors() if isinstance(error, ValidationError) else list(error)
    for number, details in enumerate(errors[:MOST_PROBLEMS]):
        keys = existing(details, value)
        same = keys, -1 if keys != details["loc"] else number  # a union reports one error for each type
        if same not in innermost or len(innermost[same]["loc"]) < len(details["loc"]):
            innermost[same] = details
    places = [keys for keys, _ in innermost]
    return [
        _problem(details, model, keys, place)
        for (keys, _), details in innermost.items()
        if not (details["type"] == "too_short" and _any_inside(keys, places))
    ] + list(further(len(errors[MOST_PROBLEMS:]), place))


def _any_inside(keys: Keys, places: Iterable[Keys]) -> bool:
    """Check whether a place lies inside a value, such as a list, which counts its valid items alone."""
    return any(len(place) > len(keys) and place[: len(keys)] == keys for place in places)


def existing(details: ErrorDetails, value: Any) -> Keys:
    """Return the place of an error, up to the last part that exists in the value or is missing there.

    Pydantic adds names: the types of a union, "[key]", and fields of values written as a name alone.
    """
    keys = details["loc"]
    if value is _UNKNOWN:
        return keys
    for number, key in enumerate(keys):
        inner = range(len(value)) if isinstance(value, list | tuple) else value
        if not (isinstance(inner, Mapping | range) and key in inner):
            missing = isinstance(value, Mapping) and details["type"] == "missing"
            return keys[: number + missing]
        value = value[key]
    return keys


def _problem(details: ErrorDetails, model: type[BaseModel], place: Keys, start: str) -> Problem:
    keys, path = details["loc"], json_path(place, start)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, InvalidValue):
        return cause.problem(path)
    if details["type"] == "extra_forbidden":
        key = str(keys[-1])
        return Problem(path, f"the key {shown(key)}", *unknown_name(key, _keys(model_at(model, keys[:-1]))))
    if details["type"] in ("model_type", "model_attributes_type"):
        fields = ", ".join(_keys(model_at(model, keys)))
        return Problem(path, shown(details["input"]), "an object", f"its keys can be {fields}")
    value = "nothing" if details["type"] == "missing" else shown(details["input"])
    return Problem(path, value, *_advice(field_at(model, keys) or field_at(model, place), details))


def _advice(field: FieldInfo | None, details: ErrorDetails) -> tuple[str, str]:
    """Return what a field expects, and an example."""
    expected, fix = _without_examples(details)
    if field is None:
        return expected, fix
    if field.examples:
        fix = f"for example {json.dumps(field.examples[0])}"
    elif field.description:
        fix = _message(details)
    return field.description or expected, fix


def _without_examples(details: ErrorDetails) -> tuple[str, str]:
    """Return the expectation of an error, and the way to fix the value."""
    if (known := _EXPECTATIONS.get(details["type"])) is not None:
        return known.format(**details.get("ctx", {})), "correct it"
    message = _message(details)
    expected = message.removeprefix("Input should be ")
    return (expected, "correct it") if expected != message else ("another value", message)


def _message(details: ErrorDetails) -> str:
    return details["msg"].removeprefix("Value error, ")


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields by their keys in user input."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def field_at(model: type[BaseModel], keys: Sequence[str | int]) -> FieldInfo | None:
    """Return the field at these keys; None if there is none."""
    return _keys(model_at(model, keys[:-1])).get(str(keys[-1])) if keys else None


def model_at(model: type[BaseModel], keys: Sequence[str | int]) -> type[BaseModel]:
    """Return the model that validates the value at these keys."""
    annotation: Any = model
    for key in keys:
        annotation = _annotation_at(annotation, key)
        model = next(filter(_is_model, (annotation, *get_args(annotation))), model)
    return model


def _annotation_at(annotation: Any, key: str | int) -> Any:
    """Return the type of the value at a key of an object, or an index of a list."""
    if isinstance(key, int):
        return annotation  # its type arguments are searched
    for candidate in (annotation, *get_args(annotation)):
        if _is_model(candidate):
            field = _keys(candidate).get(str(key))
            return None if field is None else field.annotation
        if get_origin(candidate) is dict:
            return get_args(candidate)[1]
    return None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
