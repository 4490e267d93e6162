"""Twenty goals on many kinds of hardware in a terminal: a line or two for each, and no word divided."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from mistify.jobs.job import GoalState, Job
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.follow import finish
from tests.support.many_goals import job_of

WIDTHS = (80, 100, 160)
JOBS = {"one output": job_of(20), "two outputs": job_of(20, ("class", "box"))}

#: Wide enough for every line.
UNDIVIDED = 10_000


def printed(job: Job, width: int) -> list[str]:
    """Return the lines that a terminal shows of a finished job."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    assert isinstance(console.file, io.StringIO)
    finish(job, DamagedPackages(), Path("out"), console)
    return console.file.getvalue().splitlines()


def words(lines: list[str]) -> set[str]:
    return set(re.split(r"\s+", "\n".join(lines)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", JOBS)
def test_twenty_goals_take_at_most_two_lines_each(name: str, width: int) -> None:
    lines = printed(JOBS[name], width)
    assert len(lines) <= 2 * 20 + 10
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", JOBS)
def test_no_word_is_divided(name: str, width: int) -> None:
    """Every word is one of those on a terminal on which nothing is divided, or a rule below a heading."""
    divided = words(printed(JOBS[name], width)) - words(printed(JOBS[name], UNDIVIDED))
    assert {word for word in divided if word.strip("\N{BOX DRAWINGS LIGHT HORIZONTAL}")} == set()


@pytest.mark.parametrize("width", WIDTHS)
def test_each_goal_is_a_line_with_its_id_its_score_and_its_verdict(width: int) -> None:
    job = JOBS["two outputs"]
    rows = [line.split() for line in printed(job, width) if line.startswith("classifier")]
    assert [row[0] for row in rows[:20]] == [goal.id for goal in job.goals]
    for goal, row in zip(job.goals, rows, strict=False):
        assert f"{100 * (goal.accuracy or 0):.1f}%" in row
        assert row[-1] == ("no" if goal.state is GoalState.UNMET else "predicted" if goal.note else "yes")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_figure_that_most_goals_limit_is_kept(width: int) -> None:
    """Sixteen of twenty goals limit a latency elsewhere, which is predicted."""
    lines = printed(JOBS["two outputs"], width)
    assert "predicted" in "\n".join(lines[:3]).split()
    assert "388us" in next(line for line in lines if line.startswith(JOBS["two outputs"].goals[0].id)).split()


def test_many_goals_have_the_scores_of_their_outputs_in_columns() -> None:
    job = JOBS["two outputs"]
    lines = printed(job, 200)
    assert {"class", "box"} <= set("\n".join(lines[:4]).split())
    first = job.goals[0]
    row = next(line for line in lines if line.startswith(first.id)).split()
    assert [f"{100 * score.value:.1f}%" for score in first.output_scores] == row[-5:-3]
