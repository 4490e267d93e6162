"""Shorthand for goals: defaults for all of them, and lists of hardware, of limits and of tasks.

    {"defaults": {"id": "{hardware}-{latency}", "model": "net.keras"},
     "goals": [{"hardware": ["jetson-nano", "pi-4"], "adaptation_goal": {"latency": ["30ms", "60ms"]}}]}

stands for four goals. They are expanded to goals as in Figure 3, so code that reads them does not depend on
the shorthand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias

from mistify.errors import Problem
from mistify.parsing.validation import InvalidValue, explained, json_path, paths_around, shown, unknown_name

Object: TypeAlias = dict[str, Any]

_DEFAULTS: Final = "defaults"
_GOALS: Final = "goals"
_HARDWARE: Final = "hardware"
_LIMITS: Final = "adaptation_goal"

#: A list of tasks has a separate key, because a single task may be a list.
_TASK: Final = "task"
_TASKS: Final = "tasks"

#: Objects that are not merged key by key: a goal's own replaces the default.
_NOT_MERGED: Final = frozenset({_HARDWARE, "algorithm", _TASK})

#: Maximum after expansion of one file; larger numbers are a mistake, and would exhaust memory.
MOST_GOALS: Final = 100_000

#: Maximum length of an id before it is expanded, and of each name in it: thousands of goals may have it.
_LONGEST_PATTERN: Final = 256

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Entry:
    """One goal after expansion.

    Attributes:
        value: The goal as an element of a list of configs.
        place: JSON path of the goal in the file.
        moved: JSON path in the goal -> JSON path in the file, for values from elsewhere in the file.
    """

    value: Any
    place: str
    moved: Mapping[str, str] = field(default_factory=dict)

    def place_of(self, path: str) -> str:
        """Return the JSON path in the file for a path in the goal, such as `.hardware.name`."""
        for around in paths_around(path):
            if around in self.moved:
                return self.moved[around] + path[len(around) :]
        return self.place + path


def entries_of(
    value: object, problems: list[Problem], check_count: Callable[[int], object] = lambda _: None
) -> list[Entry]:
    """Return the goals in a file's JSON, each expanded.

    Args:
        value: A list of configs, one config, or an object with `defaults` and `goals`.
        problems: Collects the problems of the shorthand.
        check_count: Called with the number of goals before they are expanded; may raise an error.
    """
    if isinstance(value, dict) and (_GOALS in value or _DEFAULTS in value):
        entries = _with_defaults(value, problems)
    else:
        goals = value if isinstance(value, list) else [value]
        entries = [Entry(goal, f"[{index}]") for index, goal in enumerate(goals)]
    count = sum(prod(len(values) for _, values in _lists(entry.value)) for entry in entries)
    check_count(count)
    if count > MOST_GOALS:
        problems.append(
            Problem("the lists", f"{count:,} goals", f"at most {MOST_GOALS:,}", "shorten the lists")
        )
        return []
    return [written for entry in entries for written in _expanded(entry, problems)]


def in_the_file(problems: Iterable[Problem], entries: Sequence[Entry]) -> list[Problem]:
    """Return problems of goals, `[INDEX].PATH`, at their places in the file, without duplicates."""
    return list(dict.fromkeys(replace(each, place=_moved(each.place, entries)) for each in problems))


def _moved(place: str, entries: Sequence[Entry]) -> str:
    index = re.match(r"\[(\d+)\]", place)
    if index is None or int(index[1]) >= len(entries):
        return place
    return entries[int(index[1])].place_of(place[index.end() :])


def _with_defaults(file: Object, problems: list[Problem]) -> list[Entry]:
    """Return the goals of a file with the defaults filled in."""
    known = {_DEFAULTS: (dict, "an object"), _GOALS: (list, "a list of goals")}
    unknown = [key for key in file if key not in known]
    problems += explained(
        unknown, lambda key: Problem(json_path([key]), f"the key {shown(key)}", *unknown_name(key, known))
    )
    for key, (kind, expected) in known.items():
        if not isinstance(file.get(key, kind()), kind):
            problems.append(InvalidValue(file[key], expected, "see docs/config.md").problem(key))
            return []
    defaults = file.get(_DEFAULTS, {})
    entries = []
    for index, goal in enumerate(file.get(_GOALS, [])):
        place = f"{_GOALS}[{index}]"
        moved: dict[str, str] = {}
        value = _merged(defaults, goal, moved) if isinstance(goal, dict) else goal
        entries.append(Entry(value, place, moved))
    return entries


def _merged(defaults: Object, goal: Object, moved: dict[str, str], keys: tuple[str, ...] = ()) -> Object:
    """Return a goal with defaults for the keys that it lacks; objects are merged key by key."""
    merged = dict(goal)
    has_tasks = not keys and not goal.keys().isdisjoint((_TASK, _TASKS))
    for key, default in defaults.items():
        path = (*keys, key)
        if has_tasks and key in (_TASK, _TASKS):
            continue
        if key not in goal:
            merged[key] = default
            moved[_inside(path)] = json_path((_DEFAULTS, *path))
        elif (
            isinstance(default, dict)
            and isinstance(goal[key], dict)
            and not (path == (key,) and key in _NOT_MERGED)
        ):
            merged[key] = _merged(default, goal[key], moved, path)
    return merged


def _lists(goal: object) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield the lists in a goal that expand to one goal per value, with their keys."""
    if isinstance(goal, dict):
        if isinstance(goal.get(_HARDWARE), list):
            yield (_HARDWARE,), goal[_HARDWARE]
        if isinstance(goal.get(_TASKS), list) and _TASK not in goal:
            yield (_TASKS,), goal[_TASKS]
        limits = goal.get(_LIMITS)
        for key, limit in limits.items() if isinstance(limits, dict) else ():
            if isinstance(limit, list):
                yield (_LIMITS, key), limit


def _expanded(entry: Entry, problems: list[Problem]) -> Iterator[Entry]:
    """Yield a goal for each combination of the values in a goal's lists."""
    lists = list(_lists(entry.value))
    for keys, values in lists:
        if not values:
            place = entry.place_of(_inside(keys))
            problems.append(
                InvalidValue([], "at least one value", "add one, or leave the key out").problem(place)
            )
    for chosen in product(*(enumerate(values) for _, values in lists)):
        value, moved = entry.value, dict(entry.moved)
        for (keys, _), (index, single) in zip(lists, chosen, strict=True):
            value = _with_value(value, keys, single)
            moved[_inside(_keys_of_value(keys))] = f"{entry.place_of(_inside(keys))}[{index}]"
        numbers = {
            _keys_of_value(keys)[-1]: index for (keys, _), (index, _) in zip(lists, chosen, strict=True)
        }
        yield Entry(_named(value, numbers, entry, problems), entry.place, moved)


def _inside(keys: tuple[str, ...]) -> str:
    """Return the JSON path of a value in a goal, such as `.hardware.name`."""
    goal = json_path([0])
    return json_path(keys, goal).removeprefix(goal)


def _keys_of_value(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys under which a value of the list at some keys is stored."""
    return (_TASK,) if keys == (_TASKS,) else keys


def _with_value(goal: Object, keys: tuple[str, ...], value: object) -> Object:
    """Return a goal with one value in place of the list at some keys."""
    if keys == (_TASKS,):
        return {key: each for key, each in goal.items() if key != _TASKS} | {_TASK: value}
    first, *rest = keys
    return {**goal, first: _with_value(goal[first], tuple(rest), value) if rest else value}


def _named(goal: Any, numbers: Mapping[str, int], entry: Entry, problems: list[Problem]) -> Any:
    """Return a goal with its id, made from a pattern or from the differences between the goals of one list.

    Args:
        goal: A goal with a pattern as its id.
        numbers: Key of the goal -> index of its value in its list, which names the value if it has no name.
        entry: The goal as written in the file.
        problems: Collects the problems of the pattern.
    """
    pattern = goal.get("id") if isinstance(goal, dict) else None
    if not isinstance(pattern, str) or len(pattern) > _LONGEST_PATTERN:
        return goal  # the check of the id reports it
    names = {name: str(number + 1) for name, number in numbers.items()} | _names(goal)
    wanted = _PLACEHOLDER.findall(pattern)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        place = entry.place_of(".id")
        expected, fix = unknown_name(unknown[0], names)
        problems.append(InvalidValue(pattern, f"in braces: {expected}", fix).problem(place))
        return goal
    suffixes = () if wanted else (names[name] for name in numbers)
    made = _PLACEHOLDER.sub(lambda match: names[match[1]], pattern)
    return {**goal, "id": "-".join([made, *suffixes])}


def _names(goal: Object) -> dict[str, str]:
    """Return the values of placeholders in an id: the hardware's name, the task, and the limits."""
    hardware, limits, task = goal.get(_HARDWARE), goal.get(_LIMITS), goal.get(_TASK)
    named = hardware.get("name") if isinstance(hardware, dict) else hardware
    words = task.get("classes") if isinstance(task, dict) else task
    asked = "-".join(map(str, words)) if isinstance(words, list) else words
    values = {_HARDWARE: named, _TASK: asked, **(limits if isinstance(limits, dict) else {})}
    return {
        name: _NOT_IN_IDS.sub("-", str(value)[:_LONGEST_PATTERN]).strip("-")
        for name, value in values.items()
        if isinstance(value, str | int | float)
    }
