"""A config may have a million mistakes: the first ones are explained, and the others counted."""

import json
from typing import Any

import pytest

from mistify.config.reading import read_batch
from mistify.errors import Problem
from mistify.parsing.validation import MOST_PROBLEMS
from tests.mistify.config.test_all_mistakes import RIGHT

MANY = 10 * MOST_PROBLEMS
UNKNOWN = {f"k{number}": 1 for number in range(MANY)}


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """Return the problems that are made from now on."""
    made: list[Problem] = []
    after = Problem.__post_init__

    def counting(problem: Problem) -> None:
        after(problem)
        made.append(problem)

    monkeypatch.setattr(Problem, "__post_init__", counting)
    return made


@pytest.mark.parametrize(
    ("content", "others"),
    [
        ([{**RIGHT, **UNKNOWN}], MANY - MOST_PROBLEMS),
        ([{**RIGHT, "adaptation_goal": UNKNOWN}], MANY - MOST_PROBLEMS),
        ([{**RIGHT, "dataset": {**RIGHT["dataset"], **UNKNOWN}}], MANY - MOST_PROBLEMS),
        ({"goals": [RIGHT], **UNKNOWN}, MANY - MOST_PROBLEMS),
        ([{**RIGHT, **dict(list(UNKNOWN.items())[:700])}] * 10, 8 * 700),
        (list(range(MANY)), MANY - MOST_PROBLEMS),
    ],
    ids=["keys", "limits", "data", "file", "goals with many", "many goals"],
)
def test_the_first_mistakes_are_explained(content: Any, others: int, explained: list[Problem]) -> None:
    problems = read_batch(json.dumps(content)).problems
    assert MOST_PROBLEMS <= len(problems) < 2 * MOST_PROBLEMS
    assert len(explained) < 5 * MOST_PROBLEMS
    (rest,) = (problem.value for problem in problems if "further" in problem.value)
    assert rest == f"up to {others:,} further mistakes"


@pytest.mark.parametrize("text", ["[[" + ",".join(["NaN"] * MANY) + "]]"])
def test_further_problems_of_the_text_are_counted(text: str) -> None:
    problems = read_batch(text).problems
    assert f"up to {MANY - MOST_PROBLEMS:,} further mistakes" in [problem.value for problem in problems]
    assert len(problems) < 2 * MOST_PROBLEMS
