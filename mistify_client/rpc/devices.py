"""The client of the server's devices: register one, list them."""

from dataclasses import dataclass
from functools import cached_property

from mistify.costs.devices import Device, DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.quantities import format_time
from mistify.v1 import devices_pb2 as pb
from mistify.v1.devices_pb2_grpc import DevicesStub
from mistify.wire import devices as wire
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import retried

#: Deadlines of the calls, in seconds. The server fits a model before it answers.
REGISTER_SECONDS = 300.0
LIST_SECONDS = 30.0


@dataclass(frozen=True)
class Refinement:
    """What a package took on a device, and what had been predicted.

    From now on predictions are `factor` times those by the measured operators alone.
    """

    taken_ms: float
    predicted_ms: float
    factor: float

    def __str__(self) -> str:
        took, predicted = (format_time(figure, 4) for figure in (self.taken_ms, self.predicted_ms))
        return f"{took}, predicted {predicted}; predictions are now times {self.factor:.3g}"


class DevicesClient(ServiceClient):
    """The devices of a server. All methods wait for one that is away, and may be repeated."""

    @cached_property
    def _stub(self) -> DevicesStub:
        return DevicesStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    def register(self, table: DeviceTable) -> Device:
        """Let goals name a device; it takes the place of an earlier one of that name.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the table, and nothing was kept.
        """
        request, call = wire.table_to_proto(table), self._connection.call
        answer = retried(lambda: call(self._stub.RegisterDevice, request, REGISTER_SECONDS), self._backoff)
        return wire.device_from_proto(answer)

    def report(self, device: str, job_id: str, goal_id: str, taken_ms: float) -> Refinement:
        """Tell what the package of a goal takes on a device; later predictions follow it.

        Raises:
            MistifyError: NOT_FOUND, there is no such device or goal, nothing was predicted, or the device was
                measured again since.
        """
        request = pb.ReportLatencyRequest(device=device, job_id=job_id, goal_id=goal_id, median_ms=taken_ms)
        call = self._connection.call
        answer = retried(lambda: call(self._stub.ReportLatency, request, LIST_SECONDS), self._backoff)
        return Refinement(taken_ms, answer.predicted_ms, answer.factor)

    def devices(self) -> list[Device]:
        """All devices, by name."""
        request, call = pb.ListDevicesRequest(), self._connection.call
        answer = retried(lambda: call(self._stub.ListDevices, request, LIST_SECONDS), self._backoff)
        return [wire.device_from_proto(device) for device in answer.devices]

    def threads(self, device: str) -> tuple[int, ...]:
        """With how many threads a device was measured: what is predicted is that of the fastest of them.

        Raises:
            MistifyError: NOT_FOUND, there is no such device.
        """
        found = next((known for known in self.devices() if known.name == device), None)
        if found is None:
            message = f'there is no device "{device}"; `mistify devices` lists them'
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        return tuple(sorted({setting.threads for setting in found.settings}))
