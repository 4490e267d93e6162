"""The client of the devices service: register a device, report latencies and status, list devices."""

from dataclasses import dataclass
from functools import cached_property

from mistify.costs.devices import Device, DeviceTable
from mistify.fleet import DeviceStatus
from mistify.parsing.quantities import format_time
from mistify.rollouts import Instruction
from mistify.v1 import devices_pb2 as pb
from mistify.v1.devices_pb2_grpc import DevicesStub
from mistify.wire import devices as wire
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import retried

#: Deadlines of the calls, in seconds. The server fits a latency model before it responds.
REGISTER_SECONDS = 300.0
LIST_SECONDS = 30.0


@dataclass(frozen=True)
class Refinement:
    """The measured latency of a package on a device, with the predicted one.

    Later predictions are `factor` times the sum over the measured operators.

    Attributes:
        measured_ms: Milliseconds of one inference on the device.
        predicted_ms: Milliseconds predicted before the measurement.
        factor: The correction of later predictions.
    """

    measured_ms: float
    predicted_ms: float
    factor: float

    def __str__(self) -> str:
        took, predicted = (format_time(figure, 4) for figure in (self.measured_ms, self.predicted_ms))
        return f"{took}, predicted {predicted}; predictions are now times {self.factor:.3g}"


class DevicesClient(ServiceClient):
    """A client of the devices service. All methods wait for an unreachable server, and may be repeated."""

    @cached_property
    def _stub(self) -> DevicesStub:
        return DevicesStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    def register(self, table: DeviceTable) -> Device:
        """Register a device, so that goals can name it; replace an earlier one of the same name.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the table; nothing was stored.
        """
        request, call = wire.table_to_proto(table), self._connection.call
        answer = retried(lambda: call(self._stub.RegisterDevice, request, REGISTER_SECONDS), self._backoff)
        return wire.device_from_proto(answer)

    def report(self, device: str, job_id: str, goal_id: str, measured_ms: float) -> Refinement:
        """Report the measured latency of a goal's package, which corrects later predictions for the device.

        Args:
            measured_ms: Median latency of one inference, in milliseconds.

        Raises:
            MistifyError: NOT_FOUND if there is no such device or goal, if there is no prediction, or if the
                device has been measured again since.
        """
        request = pb.ReportLatencyRequest(
            device=device, job_id=job_id, goal_id=goal_id, median_ms=measured_ms
        )
        call = self._connection.call
        answer = retried(lambda: call(self._stub.ReportLatency, request, LIST_SECONDS), self._backoff)
        return Refinement(measured_ms, answer.predicted_ms, answer.factor)

    def report_status(self, status: DeviceStatus) -> Instruction:
        """Report the status of a device, which replaces its previous one.

        Returns:
            The package that the device should run, if the server's roll-outs want one.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the status; NO_ROOM, the server has too many
                devices.
        """
        request, call = wire.status_to_proto(status), self._connection.call
        answer = retried(lambda: call(self._stub.ReportStatus, request, LIST_SECONDS), self._backoff)
        return wire.instruction_from_proto(answer)

    def devices(self) -> list[Device]:
        """Return all devices, sorted by name."""
        request, call = pb.ListDevicesRequest(), self._connection.call
        answer = retried(lambda: call(self._stub.ListDevices, request, LIST_SECONDS), self._backoff)
        return [wire.device_from_proto(device) for device in answer.devices]
