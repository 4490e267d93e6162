"""Collection of all problems in a user's input."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from mistify.errors import MistifyError, Problem
from mistify.parsing.validation import InvalidValue

T = TypeVar("T")


class ProblemCollector:
    """Collects problems, so that users see all of them at once.

    Attributes:
        problems: Problems in the order of discovery. On the server, places are relative to the list of
            configs (`[3].dataset.train`); in a worker, to one config (`dataset.train`).
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def __bool__(self) -> bool:
        return bool(self.problems)

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems."""
        self.problems += problems

    def check(self, place: str, look: Callable[[], T]) -> T | None:
        """Return the result of `look`, or None if it finds a value that cannot be used.

        Args:
            place: JSON path of the value.
            look: May raise `InvalidValue`, which becomes a problem at that place.
        """
        try:
            return look()
        except InvalidValue as error:
            self.problems.append(error.problem(place))
            return None

    def load(self, place: str, load: Callable[[], T]) -> T | None:
        """Return the result of `load`, or None if a model, data or settings cannot be used.

        Args:
            place: Place of the model, data or settings. Errors in settings keep the places below it.
            load: May raise a `MistifyError`, from which the problems are added.
        """
        try:
            return load()
        except MistifyError as error:
            problems = error.problems or (Problem(place, str(error), "something usable", "correct it"),)
            self.problems += [Problem(_place(place, p), p.value, p.expected, p.fix) for p in problems]
            return None


def _place(place: str, problem: Problem) -> str:
    return problem.place if problem.place.startswith((f"{place}.", "algorithm.config")) else place
