"""Problems with a user's input, collected until all of it has been checked."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from mistify.errors import MistifyError, Problem
from mistify.parsing.validation import InvalidValue

T = TypeVar("T")


class ProblemCollector:
    """Collects problems, so that a user learns of all of them at once.

    Attributes:
        problems: Problems in the order in which they were found. The server gives each its place in the
            configs (`[3].dataset.train`), a worker its place in a config (`dataset.train`).
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
            place: Place of the value.
            look: Raises `InvalidValue`, which becomes a problem at that place.
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
            load: Raises `MistifyError`, whose problems are added.
        """
        try:
            return load()
        except MistifyError as error:
            problems = error.problems or (Problem(place, str(error), "something usable", "correct it"),)
            self.problems += [Problem(_place(place, p), p.value, p.expected, p.fix) for p in problems]
            return None


def _place(place: str, problem: Problem) -> str:
    return problem.place if problem.place.startswith((f"{place}.", "algorithm.config")) else place
