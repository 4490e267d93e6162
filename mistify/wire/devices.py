"""Measured devices as protobuf and back; the counterpart of `serde` for `devices.proto`."""

from dataclasses import asdict
from datetime import UTC, datetime

from mistify.costs.devices import Device, DeviceTable, OperatorTiming, Power, Setting
from mistify.costs.operators import Operation, OperatorKind
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import unknown_name
from mistify.v1 import devices_pb2 as pb


def table_to_proto(table: DeviceTable) -> pb.DeviceTable:
    """A table as a message."""
    return pb.DeviceTable(
        name=table.name,
        machine=table.machine,
        runtime=table.runtime,
        readings=[
            pb.Reading(
                operations=[pb.Operation(**asdict(operation)) for operation in reading.operations],
                integer=reading.integer,
                threads=reading.threads,
                median_ms=reading.median_ms,
            )
            for reading in table.readings
        ],
        powers=[pb.Power(**asdict(power)) for power in table.powers],
    )


def table_from_proto(message: pb.DeviceTable) -> DeviceTable:
    """A table from a message.

    Raises:
        MistifyError: INVALID_CONFIG, it has an operation that nobody knows.
    """
    return DeviceTable(
        name=message.name,
        machine=message.machine,
        runtime=message.runtime,
        readings=tuple(_reading(number, reading) for number, reading in enumerate(message.readings)),
        powers=tuple(Power(power.integer, power.threads, power.watts) for power in message.powers),
    )


def device_to_proto(device: Device) -> pb.Device:
    """A device as a message."""
    return pb.Device(
        name=device.name,
        machine=device.machine,
        runtime=device.runtime,
        settings=[pb.DeviceSetting(**asdict(setting)) for setting in device.settings],
        registered_unix_ms=int(device.registered.timestamp() * 1000),
    )


def device_from_proto(message: pb.Device) -> Device:
    """A device from a message."""
    return Device(
        name=message.name,
        machine=message.machine,
        runtime=message.runtime,
        settings=tuple(
            Setting(
                setting.integer,
                setting.threads,
                setting.median_error,
                setting.p90_error,
                setting.watts if setting.HasField("watts") else None,
            )
            for setting in message.settings
        ),
        registered=datetime.fromtimestamp(message.registered_unix_ms / 1000, UTC),
    )


def _reading(number: int, message: pb.Reading) -> OperatorTiming:
    operations = tuple(
        _operation(f"readings[{number}].operations[{place}]", operation)
        for place, operation in enumerate(message.operations)
    )
    return OperatorTiming(operations, message.integer, message.threads, message.median_ms)


def _operation(place: str, message: pb.Operation) -> Operation:
    if message.kind not in set(OperatorKind):
        problem = Problem(f"{place}.kind", f'"{message.kind}"', *unknown_name(message.kind, OperatorKind))
        raise MistifyError(ErrorCode.INVALID_CONFIG, "the table: nothing was registered", [problem])
    return Operation(
        kind=OperatorKind(message.kind),
        positions=message.positions,
        c_in=message.c_in,
        c_out=message.c_out,
        kernel=message.kernel,
        stride=message.stride,
        times=message.times,
    )
