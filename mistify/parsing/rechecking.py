"""Find every mistake in a value: replace invalid parts, so that dependent parts are checked, too.

Pydantic runs the validators of a whole model only if each field is valid, and no further checks if the model
is invalid: one mistake hides others.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mistify.errors import Problem
from mistify.parsing.validation import MOST_PROBLEMS, Keys, existing, field_at, json_path, problems_of, shown

#: Validation context in which the outermost model skips checks across its fields.
FIELDS_ALONE: Final = "fields alone"

#: Maximum number of replacement rounds for a value: replacing one mistake may reveal the next.
_MOST_ROUNDS: Final = 20

_NOTHING: Final = object()

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Rechecked(Generic[M]):
    """A value parsed into its model as far as possible, and every mistake in it.

    Attributes:
        model: The value, with invalid parts replaced; None if no replacement is valid.
        replaced: Places of the replacements, as keys and indices.
    """

    model: M | None
    problems: tuple[Problem, ...]
    replaced: frozenset[Keys]

    def as_written(self, *keys: str | int) -> bool:
        """Check whether nothing was replaced at a place, inside it, or around it."""
        return not any(place[: len(keys)] == keys[: len(place)] for place in self.replaced)


def rechecked(model: type[M], value: Any, place: str = "") -> Rechecked[M]:
    """Parse a value into a model and return it with every mistake in it.

    Args:
        model: A model whose validators raise `InvalidValue`. Checks of the outermost model across fields must
            be skipped in the context `FIELDS_ALONE`.
        value: Parsed from JSON.
        place: JSON path of the value.
    """
    checking = _Rechecking(model, value)
    problems: list[Problem] = []
    context: str | None = None
    for _ in range(_MOST_ROUNDS):
        try:
            valid = model.model_validate(checking.value, context=context)
        except ValidationError as error:
            errors = error.errors()
            if len(errors) > MOST_PROBLEMS:  # nobody reads what else there is
                problems += problems_of(errors, model, place, value)
                break
            if checking.fill(errors):
                continue
            mistakes = problems_of(filter(checking.is_mistake, errors), model, place, value)
            problems += (checking.as_written(problem, place) for problem in mistakes)
            before = context
            if any(not details["loc"] for details in errors):  # each of its fields is valid
                context = FIELDS_ALONE
            if not checking.leave_out(errors) and context == before:
                break  # the next round would find the same
        else:
            return Rechecked(valid, tuple(dict.fromkeys(problems)), frozenset(checking.replaced))
    return Rechecked(None, tuple(dict.fromkeys(problems)), frozenset(checking.replaced))


class _Rechecking:
    """A value whose mistakes are removed, or replaced by examples if a value is required.

    Attributes:
        value: The value with the replacements made so far.
        replaced: Place of a mistake -> the example that can replace it, if there is one.
    """

    def __init__(self, model: type[BaseModel], value: Any) -> None:
        self._model = model
        self._original = value
        self.value = deepcopy(value)
        self.replaced: dict[Keys, list[Any]] = {}

    def fill(self, errors: list[ErrorDetails]) -> bool:
        """Insert examples where a removed value is required; return whether there was any."""
        places = [existing(details, self.value) for details in errors]
        missed = {place for place in self.replaced if any(_depends(other, place) for other in places)}
        filled = False
        for place in missed:
            examples = self.replaced[place]
            if examples and _is_in(self.value, place[:-1]):
                _at(self.value, place[:-1])[place[-1]] = examples.pop()
                filled = True
        return filled

    def is_mistake(self, details: ErrorDetails) -> bool:
        """Check whether an error is the user's, rather than a consequence of a removed value."""
        place = existing(details, self.value)
        return not any(_depends(place, other) and not _is_in(self.value, other) for other in self.replaced)

    def as_written(self, problem: Problem, start: str) -> Problem:
        """Return a problem with the user's own value instead of an example."""
        for place in self.replaced:
            if place[:-1] and json_path(place[:-1], start) == problem.place:
                return replace(problem, value=shown(_at(self._original, place[:-1])))
        return problem

    def leave_out(self, errors: list[ErrorDetails]) -> bool:
        """Remove the values that errors refer to; for an item of a list, the whole list.

        Returns:
            Whether there was any.
        """
        removed = False
        places = {self._in_an_object(existing(details, self.value)): details["type"] for details in errors}
        for place, kind in places.items():
            if place and _is_in(self.value, place[:-1]):
                field = None if kind == "extra_forbidden" else field_at(self._model, place)
                examples = field.examples[:1] if field is not None and field.examples else []
                self.replaced.setdefault(place, deepcopy(examples))
                removed |= _at(self.value, place[:-1]).pop(place[-1], _NOTHING) is not _NOTHING
        return removed

    def _in_an_object(self, place: Keys) -> Keys:
        """Return the place of a value in an object, or of the list that contains the value."""
        while place and not isinstance(_at(self.value, place[:-1]), dict):
            place = place[:-1]
        return place


def _depends(place: Keys, left_out: Keys) -> bool:
    """Check whether an error may result from a removed value: at the same place, next to it or around it.

    Values next to the fields of the outermost model do not depend on them.
    """
    around = left_out[:-1]
    return place[: len(left_out)] == left_out or (bool(around) and around in (place, place[:-1]))


def _is_in(value: Any, place: Keys) -> bool:
    """Check whether nested dictionaries contain a sequence of keys."""
    for key in place:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _at(value: Any, place: Iterable[str | int]) -> Any:
    for key in place:
        value = value[key]
    return value
