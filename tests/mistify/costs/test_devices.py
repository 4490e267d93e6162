"""Validation of device tables."""

from dataclasses import replace

import pytest

from mistify.costs.devices import DeviceTable, OperatorTiming, Power, check_table
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.errors import ErrorCode, MistifyError

READING = OperatorTiming(
    (Operation(OperatorKind.CONVOLUTION, 9, 3, 4, 9, 4, 2), elementwise(OperatorKind.ADD, 9, 8)),
    True,
    2,
    0.25,
)
TABLE = DeviceTable("my-board", "armv8", "ai-edge-litert 2", (READING, replace(READING, integer=False)))


def test_a_valid_table_is_accepted():
    check_table(TABLE)


@pytest.mark.parametrize(
    ("table", "place", "inputs"),
    [
        (replace(TABLE, name="My Board"), "name", '"My Board"'),
        (replace(TABLE, name="raspberry-pi"), "name", '"raspberry-pi"'),
        (replace(TABLE, readings=()), "readings", "0"),
        (replace(TABLE, powers=(Power(False, 1, 2.0), Power(True, 1, 0.0))), "powers[1].watts", "0"),
        (replace(TABLE, readings=(READING, replace(READING, median_ms=0.0))), "readings[1].median_ms", "0"),
        (
            replace(TABLE, readings=(replace(READING, median_ms=float("nan")),)),
            "readings[0].median_ms",
            "nan",
        ),
        (replace(TABLE, readings=(replace(READING, threads=0),)), "readings[0].threads", "0"),
        (replace(TABLE, readings=(replace(READING, operations=()),)), "readings[0].operations", "none"),
        (
            replace(TABLE, readings=(replace(READING, operations=(Operation(OperatorKind.ADD, 3, 0, 0),)),)),
            "readings[0].operations[0].c_in",
            "0",
        ),
    ],
)
def test_an_invalid_table_is_refused_with_the_place_of_the_mistake(table, place, inputs):
    with pytest.raises(MistifyError) as caught:
        check_table(table)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == (place, inputs)
