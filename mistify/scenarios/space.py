"""The space of a network's tasks, as described in `tasks.json` (NN-Factory, 3.3).

    {"properties": {"how many": ["has", "exactly:2"], "which": ["1", "2", "3", "4"]},
     "names": {"odd": ["1", "3"]},
     "tasks": {"two-odd": ["exactly:2", "odd"], "has-4": ["has", "4"]}}

A task has a value for every axis, or several values for an axis with names for several values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from mistify.errors import Problem, invalid_config
from mistify.parsing.jsonc import JsonError, read_json
from mistify.parsing.validation import (
    InvalidValue,
    Keys,
    Settings,
    json_path,
    problems_of,
    shown,
    some_of,
    together,
    unknown_name,
)
from mistify.scenarios.task import Task
from mistify.scenarios.words import SEPARATOR, NamedWords, composed

#: The file name in errors about a text from an unknown file.
_TASKS: Final = "tasks.json"

#: The name of a task in errors.
THE_TASK: Final = "the task"

#: The place of problems with a file as a whole.
WHOLE: Final = "the file"


class TaskSpace(Settings):
    """The tasks that data answer, and all other combinations of their properties.

    Attributes:
        axes: Axis -> its values; written as "properties".
        names: Name -> the values of one axis that it stands for.
        tasks: Task -> its properties, in the order of the columns of the data.
    """

    axes: NamedWords = Field(alias="properties", min_length=1)
    names: NamedWords = Field(default_factory=dict)
    tasks: NamedWords = Field(min_length=1)

    @classmethod
    def read(cls, source: Path | str, name: str = _TASKS) -> "TaskSpace":
        """Read a space from a file, or from its text.

        Args:
            source: A path, or the JSON text itself.
            name: The name of a text in errors; a file has its own.

        Raises:
            MistifyError: INVALID_CONFIG with every problem, by its place in the file.
            OSError: The file cannot be read.
        """
        if isinstance(source, Path):
            return cls.read(_text_of(source), source.name)
        try:
            value, problems = read_json(source)
        except JsonError as error:
            raise invalid_config([error.problem], name) from error
        if not problems:
            try:
                return cls.model_validate(value)
            except ValidationError as error:
                problems = problems_of(error, cls, value=value)
        raise invalid_config([replace(problem, place=problem.place or WHOLE) for problem in problems], name)

    @model_validator(mode="after")
    def _consistent(self) -> "TaskSpace":
        mistakes = [*self._repeated_values(), *self._unusable_names()]
        if not mistakes:
            mistakes = [
                (("tasks", name, *keys), mistake)
                for name, properties in self.tasks.items()
                for keys, mistake in self._mistakes(properties)
            ]
        if not mistakes:
            mistakes = [*self._repeated_tasks(), *self._hidden_tasks()]
        if mistakes:
            raise together(type(self).__name__, mistakes)
        return self

    @property
    def size(self) -> int:
        """The number of values of all axes, which is the length of an encoded task."""
        return len(self._positions)

    @cached_property
    def listed(self) -> Mapping[Task, int]:
        """The tasks that the space lists, in order, each with the index of its column in the data."""
        return {self._task(properties): column for column, properties in enumerate(self.tasks.values())}

    def parse(self, task: Sequence[str] | str, place: str = "task") -> Task:
        """Return the task that a user has written.

        Args:
            task: The name of a listed task, or properties: a list, or a text with commas between them.
            place: JSON path of the task in errors.

        Raises:
            MistifyError: INVALID_CONFIG with every problem: its place, the value, and what was expected.
        """
        words = [composed(each) for each in (task.split(SEPARATOR) if isinstance(task, str) else task)]
        if len(words) == 1 and words[0] not in self._known:
            if words[0] not in self.tasks:
                known = {*self.tasks, *self._known}
                raise invalid_config(
                    [Problem(place, shown(words[0]), *unknown_name(words[0], known))], THE_TASK
                )
            return self._task(self.tasks[words[0]])
        if problems := [each.problem(json_path(keys, place)) for keys, each in self._mistakes(words)]:
            raise invalid_config(problems, THE_TASK)
        return self._task(words)

    def words(self, axis: str) -> tuple[str, ...]:
        """Return everything that a task may name for an axis: its values, then names for several of them."""
        names = (name for name in self.names if self._known[name][0] == axis)
        return (*self.axes[axis], *names)

    def takes_several(self, axis: str) -> bool:
        """Check whether a task may have several values of an axis, for which there are names."""
        return any(len(several) > 1 and self._known[name][0] == axis for name, several in self.names.items())

    def encode(self, task: Task) -> npt.NDArray[np.float32]:
        """Return a task as a 0 or 1 for each value of each axis, with names expanded [size]."""
        encoded = np.zeros(self.size, np.float32)
        encoded[[self._positions[value] for values in task.values.values() for value in values]] = 1
        return encoded

    def with_tasks(self, columns: Collection[int]) -> "TaskSpace":
        """Return a space of the same properties that lists only the tasks with some columns of the data."""
        tasks = {name: own for column, (name, own) in enumerate(self.tasks.items()) if column in columns}
        return TaskSpace.model_validate({"properties": self.axes, "names": self.names, "tasks": tasks})

    def is_trained(self, task: Task) -> bool:
        """Check whether the space lists a task, perhaps under another name."""
        return task in self.listed

    def nearest(self, task: Task, count: int = 3) -> tuple[Task, ...]:
        """Return the listed tasks that share most values with a task (Jaccard index), the nearest first."""
        wanted = frozenset().union(*task.values.values())

        def overlap(listed: Task) -> float:
            other = frozenset().union(*listed.values.values())
            return len(wanted & other) / len(wanted | other)

        return tuple(sorted(self.listed, key=overlap, reverse=True)[:count])

    @cached_property
    def _known(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """The properties that a task may name: values and names, each with its axis and values."""
        values = {value: (axis, (value,)) for axis, values in self.axes.items() for value in values}
        return values | {name: (values[several[0]][0], several) for name, several in self.names.items()}

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        """The index of each value in an encoded task."""
        values = [value for values in self.axes.values() for value in values]
        return {value: index for index, value in enumerate(values)}

    def _task(self, properties: Sequence[str]) -> Task:
        """Return the task with these properties, which are known."""
        values = {axis: frozenset[str]() for axis in self.axes}
        for each in properties:
            axis, several = self._known[each]
            values[axis] |= frozenset(several)
        return Task(tuple(self._canonical(values)), values)

    def _canonical(self, values: Mapping[str, frozenset[str]]) -> Iterator[str]:
        by_values = {frozenset(several): name for name, several in reversed(self.names.items())}
        for chosen in values.values():
            if len(chosen) > 1 and chosen in by_values:
                yield by_values[chosen]
            else:
                yield from sorted(chosen, key=self._positions.__getitem__)

    def _mistakes(self, properties: Sequence[str]) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield the mistakes in the properties of a task, each with its place."""
        of_axis: dict[str, list[str]] = {axis: [] for axis in self.axes}
        unknown = False
        for index, each in enumerate(properties):
            if each in self._known:
                of_axis[self._known[each][0]].append(each)
            else:
                unknown = True
                yield (index,), InvalidValue(each, *unknown_name(each, self._known))
        for axis, named in of_axis.items():
            if len(named) > 1 and not self.takes_several(axis):
                expected = f'one value of "{axis}": {some_of(self.axes[axis])}'
                yield (), InvalidValue(named, expected, "leave the others out")
            if not named and not unknown:
                values = [*self.axes[axis], *(name for name in self.names if self._known[name][0] == axis)]
                expected = f'a value of "{axis}" as well: {some_of(values)}'
                yield (), InvalidValue([*properties], expected, f'add one, for example "{values[0]}"')

    def _repeated_values(self) -> Iterator[tuple[Keys, InvalidValue]]:
        seen = set[str]()
        for axis, values in self.axes.items():
            for index, value in enumerate(values):
                if value in seen:
                    place = ("properties", axis, index)
                    yield place, InvalidValue(value, "a value that no other property has", "rename one")
                seen.add(value)

    def _unusable_names(self) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield names that are values themselves, and of values that are unknown, repeated or of two axes."""
        axis_of = {value: axis for axis, values in self.axes.items() for value in values}
        for name, several in self.names.items():
            if name in axis_of:
                yield ("names", name), InvalidValue(name, "a name that is no value", "rename it")
            unknown = [(index, value) for index, value in enumerate(several) if value not in axis_of]
            for index, value in unknown:
                yield ("names", name, index), InvalidValue(value, *unknown_name(value, axis_of))
            for index, value in enumerate(several):
                if value in several[:index]:
                    yield ("names", name, index), InvalidValue(value, "each value once", "leave it out")
            if not unknown and len({axis_of[value] for value in several}) > 1:
                mistake = InvalidValue(several, "values of one axis", "make a name for each axis")
                yield ("names", name), mistake

    def _repeated_tasks(self) -> Iterator[tuple[Keys, InvalidValue]]:
        first: dict[Task, str] = {}
        for name, properties in self.tasks.items():
            other = first.setdefault(self._task(properties), name)
            if other != name:
                mistake = InvalidValue(properties, f'a task other than "{other}"', "leave one of them out")
                yield ("tasks", name), mistake

    def _hidden_tasks(self) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield tasks whose names are properties, which would be read in their place."""
        for name, properties in self.tasks.items():
            if name in self._known and (
                any(self._mistakes([name])) or self._task([name]) != self._task(properties)
            ):
                yield ("tasks", name), InvalidValue(name, "a name that is no property", "rename the task")


def _text_of(path: Path) -> str:
    """Return the text of a file."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(
            WHOLE, f"bytes that are not UTF-8 ({error.reason})", "UTF-8 text", "save it as UTF-8"
        )
        raise invalid_config([problem], path.name) from error
