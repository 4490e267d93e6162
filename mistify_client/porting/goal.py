"""The goal of a config that may contain only one."""

from collections.abc import Sequence

from mistify.config.porting import PortingConfig
from mistify.errors import Problem, invalid_config


def only_goal(goals: Sequence[PortingConfig], source: str) -> PortingConfig:
    """Return the only goal of a config.

    Args:
        goals: All goals of the config, at least one.
        source: The name of the config in errors.

    Raises:
        MistifyError: INVALID_CONFIG, there are several goals.
    """
    if len(goals) > 1:
        raise invalid_config([Problem(source, f"{len(goals)} goals", "one", "leave the others out")], source)
    return goals[0]
