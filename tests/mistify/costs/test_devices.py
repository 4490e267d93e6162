"""Tables of devices: what is refused, and where; to the wire and back."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mistify.costs.devices import Device, DeviceTable, OperatorTiming, Power, Setting, check_table
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.errors import ErrorCode, MistifyError
from mistify.wire import devices as serde

READING = OperatorTiming(
    (Operation(OperatorKind.CONVOLUTION, 9, 3, 4, 9, 4, 2), elementwise(OperatorKind.ADD, 9, 8)),
    True,
    2,
    0.25,
)
TABLE = DeviceTable("my-board", "armv8", "ai-edge-litert 2", (READING, replace(READING, integer=False)))


@pytest.mark.parametrize("powers", [(), (Power(False, 1, 2.5), Power(True, 2, 3.75))])
def test_a_table_travels_as_it_is(powers):
    table = replace(TABLE, powers=powers)
    assert serde.table_from_proto(serde.table_to_proto(table)) == table


def test_a_device_travels_as_it_is():
    device = Device(
        "my-board",
        "armv8",
        "ai-edge-litert 2",
        (Setting(False, 1, 0.05, 0.1), Setting(True, 2, 0.02, 0.04, watts=2.5)),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    assert serde.device_from_proto(serde.device_to_proto(device)) == device


def test_a_good_table_is_taken():
    check_table(TABLE)


@pytest.mark.parametrize(
    ("table", "place", "given"),
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
def test_what_is_no_table_is_refused_with_its_place(table, place, given):
    with pytest.raises(MistifyError) as caught:
        check_table(table)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert (problem.place, problem.given) == (place, given)


def test_an_unknown_operator_is_refused_with_its_place():
    message = serde.table_to_proto(TABLE)
    message.readings[1].operations[0].kind = "convolutoin"
    with pytest.raises(MistifyError) as caught:
        serde.table_from_proto(message)
    (problem,) = caught.value.problems
    assert problem.place == "readings[1].operations[0].kind"
    assert problem.fix == 'did you mean "convolution"?'
