"""What is wrong with what a task names, collected while it is looked at."""

from collections.abc import Callable
from typing import TypeVar

from mistify.errors import MistifyError, Problem
from mistify.parsing.validation import InvalidValue

T = TypeVar("T")


class ProblemCollector:
    """Collects problems.

    Attributes:
        problems: By what they are of: `model`, `dataset.train`, `algorithm.config.NAME`.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @property
    def told(self) -> list[tuple[str, str, str, str]]:
        """The problems as a worker tells of them."""
        return [(p.place, p.given, p.expected, p.fix) for p in self.problems]

    def collect(self, subject: str, look: Callable[[], T]) -> T | None:
        """What is found, or None and the problems, told of the subject."""
        try:
            return look()
        except MistifyError as error:
            found = error.problems or (Problem(subject, str(error), "something usable", "correct it"),)
            self.problems += [Problem(_place(subject, p), p.given, p.expected, p.fix) for p in found]
            return None

    def examine(self, setting: str, look: Callable[[], T]) -> T | None:
        """What is made of a setting of the data, or None and the problem with it."""
        try:
            return look()
        except InvalidValue as error:
            self.problems.append(error.problem(f"dataset.{setting}"))
            return None


def _place(subject: str, problem: Problem) -> str:
    return problem.place if problem.place.startswith("algorithm.config") else subject
