"""Requests for roll-outs, which are checked before anything is started."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest

from mistify.errors import MistifyError
from mistify.rollouts import NewRollout, RolloutCriteria, check_new_rollout
from tests.support.fleets import new_rollout


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"package": ""}, ["package"]),
        ({"package": "a/b", "devices": ""}, ["package", "devices"]),
        ({"devices": "x" * 201}, ["devices"]),
        ({"stages": ()}, ["stages"]),
        ({"stages": (0.1, 0.5)}, ["stages"]),
        ({"stages": (0.5, 0.1, 1.0)}, ["stages"]),
        ({"stages": (0.0, 1.0)}, ["stages"]),
        ({"stages": (nan, 1.0)}, ["stages"]),
        ({"criteria": RolloutCriteria(after_seconds=-1.0)}, ["criteria.after_seconds"]),
        ({"criteria": RolloutCriteria(devices=0, errors=2.0)}, ["criteria.devices", "criteria.errors"]),
        (
            {"criteria": RolloutCriteria(latency=0.0, agreement=-0.1)},
            ["criteria.agreement", "criteria.latency"],
        ),
        (
            {"criteria": RolloutCriteria(nan, errors=nan, latency=nan, agreement=nan)},
            ["criteria.after_seconds", "criteria.errors", "criteria.agreement", "criteria.latency"],
        ),
    ],
)
def test_all_problems_of_a_roll_out_are_reported(changes: dict[str, Any], places: list[str]) -> None:
    new: NewRollout = replace(new_rollout(), **changes)
    with pytest.raises(MistifyError) as caught:
        check_new_rollout(new)
    assert [problem.place for problem in caught.value.problems] == places
