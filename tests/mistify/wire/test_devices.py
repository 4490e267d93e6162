from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mistify.costs.devices import Device, DeviceTable, OperatorTiming, Power, Setting
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.errors import MistifyError
from mistify.wire import devices

READING = OperatorTiming(
    (Operation(OperatorKind.CONVOLUTION, 9, 3, 4, 9, 4, 2), elementwise(OperatorKind.ADD, 9, 8)),
    True,
    2,
    0.25,
)
TABLE = DeviceTable("my-board", "armv8", "ai-edge-litert 2", (READING, replace(READING, integer=False)))


@pytest.mark.parametrize("powers", [(), (Power(False, 1, 2.5), Power(True, 2, 3.75))])
def test_a_table_survives_the_wire(powers):
    table = replace(TABLE, powers=powers)
    assert devices.table_from_proto(devices.table_to_proto(table)) == table


def test_a_device_survives_the_wire():
    device = Device(
        "my-board",
        "armv8",
        "ai-edge-litert 2",
        (Setting(False, 1, 0.05, 0.1), Setting(True, 2, 0.02, 0.04, watts=2.5)),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    assert devices.device_from_proto(devices.device_to_proto(device)) == device


def test_an_unknown_operator_is_refused_with_its_place():
    message = devices.table_to_proto(TABLE)
    message.readings[1].operations[0].kind = "convolutoin"
    with pytest.raises(MistifyError) as caught:
        devices.table_from_proto(message)
    (problem,) = caught.value.problems
    assert problem.place == "readings[1].operations[0].kind"
    assert problem.fix == 'did you mean "convolution"?'
