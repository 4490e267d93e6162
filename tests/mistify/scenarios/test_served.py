"""The costs that can be expected of networks within a limit."""

import pytest
from pydantic import ValidationError

from mistify.scenarios.served import ServedTasks

SERVED = {
    "space": {"properties": {"which": ["a", "b"]}, "tasks": {"only-a": ["a"]}},
    "quality": {"tasks": ["a"], "limits": [0.1, 0.4, 1.0], "scores": [[0.6, 0.8, 0.7]]},
    "costs": {"flops": [100.0, 300.0, 500.0]},
}


def test_costs_are_interpolated_between_limits() -> None:
    served = ServedTasks.model_validate(SERVED)
    assert [served.cost("flops", limit) for limit in (0.1, 0.4, 1.0)] == [100, 300, 500]
    assert served.cost("flops", 0.2) == pytest.approx(200)  # half of the way, as 0.2 / 0.1 is 0.4 / 0.2
    assert ServedTasks.model_validate_json(served.model_dump_json(by_alias=True)) == served


def test_every_limit_has_a_cost() -> None:
    with pytest.raises(ValidationError, match="a cost for each of the 3 limits"):
        ServedTasks.model_validate({**SERVED, "costs": {"flops": [1.0, 2.0]}})
