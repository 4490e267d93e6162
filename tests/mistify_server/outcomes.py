"""Outcomes of jobs and calls."""

from typing import Any

import pytest

from mistify.errors import MistifyError
from mistify.jobs.job import GoalState, Job


def goals(job: Job) -> dict[str, GoalState]:
    """Return the state of each goal."""
    return {goal.id: goal.state for goal in job.goals}


def parents(job: Job) -> dict[str, str | None]:
    """Return the parent of each goal; None for the source."""
    return {goal.id: goal.parent for goal in job.goals}


async def failure(call: Any) -> MistifyError:
    """Return the error of a failing call."""
    with pytest.raises(MistifyError) as raised:
        await call
    return raised.value
