"""Target accuracies of goals: shares up to 1, and limits on errors, which may exceed 1."""

import pytest

from tests.mistify.config.test_porting import entry, parse, problems


@pytest.mark.parametrize("accuracy", ["90", 90, {"": "90"}])
@pytest.mark.parametrize("dataset", [{}, {"metric": "f1"}])
def test_a_percentage_without_a_percent_sign_is_refused_with_a_fix(accuracy, dataset):
    data = {"train": "a.npz", "test": "b.npz", **dataset}
    (problem,) = problems(entry(dataset=data, adaptation_goal={"FLOP": "0.5x", "accuracy": accuracy}))
    assert problem.place == "[0].adaptation_goal.accuracy"
    assert problem.value == "90.0"
    assert problem.fix.startswith('write "90%" or "0.9"; if the target limits an error')


@pytest.mark.parametrize(
    ("dataset", "accuracy", "refused"),
    [
        ({"metric": "mse"}, "90", False),
        ({"metrics": {"price": "mae"}}, {"price": 2.5}, False),
        ({}, {"price": 2.5}, False),  # a number is an error by default
        ({"metrics": {"price": "f1"}}, {"price": 2.5}, True),
        ({}, "100%", False),
        ({}, 250, True),
    ],
)
def test_limits_on_errors_may_exceed_1(dataset, accuracy, refused):
    data = {"train": "a.npz", "test": "b.npz", **dataset}
    goal = entry(dataset=data, adaptation_goal={"FLOP": "0.5x", "accuracy": accuracy})
    if refused:
        assert len(problems(goal)) == 1
    else:
        parse(goal)
