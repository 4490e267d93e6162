"""The form for another scenario: a task, limits and a device."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlencode

from mistify.errors import MistifyError, Problem, invalid_config
from mistify.scenarios.classes import class_texts
from mistify_server.jobs.served import ServedBatch
from mistify_server.web.pages.goal_fields import ACCURACY, limit_titles

#: Names of fields with values of a task, and with limits, before a number or the key of an axis.
_TASK: Final = "task-"
_LIMIT: Final = "limit-"

#: The other fields, by their keys in a goal.
_OTHERS: Final = ("hardware", "id")

#: The groups of fields for the task and for the limits, and everything else that may have problems.
TASK: Final = "task"
LIMITS: Final = "adaptation_goal"
ELSEWHERE: Final = ""

#: The place of the form's goal in errors.
_GOAL: Final = "[0]"


@dataclass(frozen=True)
class Choice:
    """A value that a task can have.

    Attributes:
        word: How a task names it.
    """

    word: str
    label: str
    chosen: bool


@dataclass(frozen=True)
class Choices:
    """A field for the values of an axis.

    Attributes:
        several: Whether several of them can be chosen.
    """

    name: str
    title: str
    choices: Sequence[Choice]
    several: bool


@dataclass(frozen=True)
class ScenarioForm:
    """The form for a batch, empty or as it was entered.

    Attributes:
        entered: Field -> its values.
        problems: Field, or group of fields -> what is wrong with it.
    """

    batch: ServedBatch
    entered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def axes(self) -> list[Choices]:
        """The fields for the task."""
        return [self._choices(number, *axis) for number, axis in enumerate(_axes(self.batch))]

    @property
    def limits(self) -> Mapping[str, str]:
        """The titles of the fields for limits, and for the accuracy, by their names."""
        return {f"{_LIMIT}{key}": title for key, title in limit_titles().items()}

    def value(self, name: str) -> str:
        """Return the text in a field; empty if nothing was entered."""
        return next(iter(self.entered.get(name, ())), "").strip()

    def config(self) -> str:
        """Return the config of the goal that was entered.

        Raises:
            MistifyError: INVALID_CONFIG, no task was chosen.
        """
        own = {key: value for key in _OTHERS if (value := self.value(key))}
        limits = {name.removeprefix(_LIMIT): value for name in self.limits if (value := self.value(name))}
        named = ["task", *(key for key in (*own, *limits) if key not in ("id", ACCURACY))]
        goal = {
            "id": "-".join(f"{{{key}}}" for key in named),
            "task": self._task(),
            "adaptation_goal": limits,
        }
        return json.dumps({**self.batch.common, **goal, **own})

    def with_problems(self, error: MistifyError) -> "ScenarioForm":
        """Return the form with each problem of its goal at its field."""
        problems: dict[str, list[str]] = {}
        for problem in error.problems:
            name = self._field_of(problem)
            problems.setdefault(name, []).append(problem.complaint if name else str(problem))
        return replace(self, problems=problems or {ELSEWHERE: [error.message]})

    def _field_of(self, problem: Problem) -> str:
        """Return the field, or the group of fields, with a problem."""
        part, _, key = problem.place.removeprefix(f"{_GOAL}.").partition(".")
        part = part.partition("[")[0]
        if part == LIMITS and f"{_LIMIT}{key}" in self.limits:
            return f"{_LIMIT}{key}"
        return part if part in (TASK, LIMITS, *_OTHERS) else ELSEWHERE

    def _task(self) -> Any:
        words = [word for axis in self.axes for word in self.entered.get(axis.name, ())]
        if not words:
            raise invalid_config([Problem(f"{_GOAL}.task", "nothing", "a task", "choose its values")])
        return {"classes": words} if self.batch.tasks.classes else words

    def _choices(self, number: int, title: str, labels: Mapping[str, str], several: bool) -> Choices:
        name = f"{_TASK}{number}"
        chosen = self.entered.get(name, () if several else [*labels][:1])
        return Choices(name, title, [Choice(*one, one[0] in chosen) for one in labels.items()], several)


def query_of(batch: ServedBatch, properties: Sequence[str]) -> str:
    """Return the query of a page whose form has a task filled in."""
    chosen = [
        (f"{_TASK}{number}", word)
        for number, (_, labels, _) in enumerate(_axes(batch))
        for word in labels
        if word in properties
    ]
    return urlencode([("batch", str(batch.number)), *chosen])


def _axes(batch: ServedBatch) -> Iterator[tuple[str, Mapping[str, str], bool]]:
    """Yield the title of each axis, the words for its values with labels, and whether a task has several."""
    space, classes = batch.tasks.space, batch.tasks.classes
    if classes:
        words = class_texts(range(len(classes)), classes)
        yield "classes", dict(zip(words, classes, strict=True)), True
        return
    for axis in space.axes:
        yield axis, {word: word for word in space.words(axis)}, space.takes_several(axis)
