"""The time in which all goals of a config should be done, given from outside of the config."""

import json
from typing import Any

from mistify.parsing.jsonc import JsonError, read_json


def with_time(text: str, time: str) -> str:
    """Return a config whose goals should be done within a time, in place of the times that it names.

    Args:
        text: A config, which may be invalid; then it is returned unchanged, so that checks report it.
        time: The setting `time` of an algorithm, such as "10min".
    """
    try:
        value, problems = read_json(text)
    except JsonError:
        return text
    return text if problems else json.dumps(_timed(value, time), ensure_ascii=False)


def _timed(value: Any, time: str) -> Any:
    match value:
        case list():
            return [_timed_goal(goal, time) for goal in value]
        case {"goals": list(goals)}:
            defaults = _timed_goal(value.get("defaults", {}), time)
            # An algorithm of a goal replaces the default one.
            own = [_timed_goal(goal, time) if _has_algorithm(goal) else goal for goal in goals]
            return {**value, "defaults": defaults, "goals": own}
        case _:
            return _timed_goal(value, time)


def _has_algorithm(goal: Any) -> bool:
    return isinstance(goal, dict) and "algorithm" in goal


def _timed_goal(goal: Any, time: str) -> Any:
    if not isinstance(goal, dict):
        return goal
    match goal.get("algorithm", {}):
        case str(name):
            return {**goal, "algorithm": {"name": name, "config": {"time": time}}}
        case dict(algorithm) if isinstance(config := algorithm.get("config", {}), dict):
            return {**goal, "algorithm": {**algorithm, "config": {**config, "time": time}}}
        case _:
            return goal
