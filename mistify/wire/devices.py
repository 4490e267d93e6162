"""Conversion of measured devices to protobuf and back; the counterpart of `porting` for `devices.proto`."""

from datetime import UTC, datetime

from mistify.costs.devices import Device, DeviceTable, Setting
from mistify.costs.operators import OperatorKind
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.fleet import DeviceStatus
from mistify.package.option_kinds import OptionKind, option_id
from mistify.parsing.validation import unknown_name
from mistify.rollouts import Instruction
from mistify.v1 import devices_pb2 as pb
from mistify.wire.messages import Converter, unknown

_CONVERTER = Converter()


def table_to_proto(table: DeviceTable) -> pb.DeviceTable:
    """Return a table as a message."""
    return _CONVERTER.to_message(table, pb.DeviceTable)


def table_from_proto(message: pb.DeviceTable) -> DeviceTable:
    """Return the table in a message.

    Raises:
        MistifyError: INVALID_CONFIG, it contains an unknown operation.
    """
    kinds = set(OperatorKind)
    for number, reading in enumerate(message.readings):
        for place, operation in enumerate(reading.operations):
            if operation.kind not in kinds:
                raise _unknown_operation(f"readings[{number}].operations[{place}].kind", operation.kind)
    return _CONVERTER.from_message(message, DeviceTable)


def device_to_proto(device: Device) -> pb.Device:
    """Return a device as a message."""
    return pb.Device(
        name=device.name,
        machine=device.machine,
        runtime=device.runtime,
        settings=[_CONVERTER.to_message(setting, pb.DeviceSetting) for setting in device.settings],
        registered_unix_ms=int(device.registered.timestamp() * 1000),
    )


def device_from_proto(message: pb.Device) -> Device:
    """Return the device in a message.

    Raises:
        MistifyError: INVALID_MESSAGE, it was registered at a time that no calendar has.
    """
    try:
        registered = datetime.fromtimestamp(message.registered_unix_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise unknown(Device, message.registered_unix_ms) from error
    return Device(
        name=message.name,
        machine=message.machine,
        runtime=message.runtime,
        settings=tuple(_CONVERTER.from_message(setting, Setting) for setting in message.settings),
        registered=registered,
    )


def status_to_proto(status: DeviceStatus) -> pb.DeviceStatus:
    """Return the status of a device as a message."""
    return _CONVERTER.to_message(status, pb.DeviceStatus)


def status_from_proto(message: pb.DeviceStatus) -> DeviceStatus:
    """Return the status in a message, including messages from before options had ids."""
    return _CONVERTER.from_message(message if message.option else _with_ids(message), DeviceStatus)


def instruction_to_proto(instruction: Instruction) -> pb.ReportStatusResponse:
    """Return the response to a status as a message."""
    return _CONVERTER.to_message(instruction, pb.ReportStatusResponse)


def instruction_from_proto(message: pb.ReportStatusResponse) -> Instruction:
    """Return the response to a status in a message."""
    return _CONVERTER.from_message(message, Instruction)


def _with_ids(message: pb.DeviceStatus) -> pb.DeviceStatus:
    """Return a message in which options are identified by ids, not only by numbers."""
    kind = OptionKind.SUBNET if message.HasField("pool") else OptionKind.BRANCH
    named = pb.DeviceStatus()
    named.CopyFrom(message)
    named.option, named.options = option_id(kind, message.branch), message.branches
    if message.HasField("last_switch"):
        named.last_switch.previous = option_id(kind, message.last_switch.previous_place)
    return named


def _unknown_operation(place: str, name: str) -> MistifyError:
    problem = Problem(place, f'"{name}"', *unknown_name(name, OperatorKind))
    return MistifyError(ErrorCode.INVALID_CONFIG, "the table: nothing was registered", [problem])
