import pytest

from mistify.errors import Problem, invalid_config
from mistify.wording import counted, listed, names_by, numbered


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 goals"), (1, "1 goal"), (2, "2 goals"), (1234, "1,234 goals")]
)
def test_counts_agree_with_their_nouns(count, words):
    assert counted(count, "goal") == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "n0"),
        (2, "n0 and n1"),
        (6, "n0, n1, n2, n3, n4 and n5"),
        (7, "n0, n1, n2, n3, n4 and 2 others"),
        (10_000, "n0, n1, n2, n3, n4 and 9,995 others"),
    ],
)
def test_long_lists_are_shortened(count, words):
    assert listed([f"n{number}" for number in range(count)]) == words


def test_a_name_that_is_taken_gets_a_number():
    taken = []
    for _ in range(3):
        taken.append(numbered("conv", taken))
    assert taken == ["conv", "conv_2", "conv_3"]


def test_names_are_grouped_in_order():
    assert list(names_by([("a", 2), ("b", 1), ("c", 2)]).items()) == [(2, ["a", "c"]), (1, ["b"])]


def test_an_error_in_many_goals_is_reported_once():
    def problem(index: int, value: str) -> Problem:
        return Problem(f"[{index}].adaptation_goal.FLOP", value, "a count", "correct it")

    error = invalid_config([*(problem(index, '"5Q"') for index in range(1000)), problem(1000, '"6Q"')])
    assert str(error).splitlines() == [
        "the config: 1,001 problems, nothing was started",
        "  [0].adaptation_goal.FLOP, [1].adaptation_goal.FLOP, [2].adaptation_goal.FLOP, "
        '[3].adaptation_goal.FLOP, [4].adaptation_goal.FLOP and 995 others: got "5Q"; expected a count; '
        "correct it",
        '  [1000].adaptation_goal.FLOP: got "6Q"; expected a count; correct it',
    ]
    assert len(error.problems) == 1001
