"""A single task: a set of requested properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """A task of a `TaskSpace`, which makes it; tasks with the same values are equal.

    Attributes:
        properties: Properties in canonical order: axis by axis, and a name in place of the values that it
            stands for.
        values: Axis -> the requested values, with names expanded.
    """

    properties: tuple[str, ...]
    values: Mapping[str, frozenset[str]] = field(compare=False)

    def __str__(self) -> str:
        """Return the canonical text, such as `exactly:2, odd`."""
        return ", ".join(self.properties)
