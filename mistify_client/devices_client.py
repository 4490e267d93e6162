"""The client of the server's devices: register one, list them."""

from functools import cached_property

from mistify import serde_devices as serde
from mistify.devices import Device, DeviceTable
from mistify.v1 import devices_pb2 as pb
from mistify.v1.devices_pb2_grpc import DevicesStub
from mistify_client.retry import retried
from mistify_client.service import ServiceClient

#: Deadlines of the calls, in seconds. The server fits a model before it answers.
REGISTER_SECONDS = 300.0
LIST_SECONDS = 30.0


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
        request, call = serde.table_to_proto(table), self._connection.call
        answer = retried(lambda: call(self._stub.RegisterDevice, request, REGISTER_SECONDS), self._backoff)
        return serde.device_from_proto(answer)

    def report(self, device: str, job_id: str, goal_id: str, median_ms: float) -> tuple[float, float]:
        """Tell what the package of a goal takes on a device; later predictions follow it.

        Returns:
            What was predicted for it in milliseconds, and how many times as long as by the measured operators
            alone networks are predicted to take from now on.

        Raises:
            MistifyError: NOT_FOUND, there is no such device or goal, or nothing was predicted.
        """
        request = pb.ReportLatencyRequest(device=device, job_id=job_id, goal_id=goal_id, median_ms=median_ms)
        call = self._connection.call
        answer = retried(lambda: call(self._stub.ReportLatency, request, LIST_SECONDS), self._backoff)
        return answer.predicted_ms, answer.factor

    def devices(self) -> list[Device]:
        """All devices, by name."""
        request, call = pb.ListDevicesRequest(), self._connection.call
        answer = retried(lambda: call(self._stub.ListDevices, request, LIST_SECONDS), self._backoff)
        return [serde.device_from_proto(device) for device in answer.devices]
