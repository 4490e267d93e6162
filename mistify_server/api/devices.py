"""Servicer of devices."""

from typing import Any

from mistify.v1 import devices_pb2 as pb
from mistify.v1 import devices_pb2_grpc
from mistify.wire import devices as wire
from mistify_server.devices.service import DeviceService


class DevicesServicer(devices_pb2_grpc.DevicesServicer):
    """Adapter from gRPC to the service."""

    def __init__(self, service: DeviceService) -> None:
        self._service = service

    async def RegisterDevice(self, request: pb.DeviceTable, context: Any) -> pb.Device:  # noqa: N802
        """Keep a device."""
        return wire.device_to_proto(await self._service.register(wire.table_from_proto(request)))

    async def ReportLatency(  # noqa: N802
        self, request: pb.ReportLatencyRequest, context: Any
    ) -> pb.ReportLatencyResponse:
        """Improve the predictions for a device."""
        report = (request.device, request.job_id, request.goal_id, request.median_ms)
        predicted_ms, factor = self._service.report(*report)
        return pb.ReportLatencyResponse(predicted_ms=predicted_ms, factor=factor)

    async def ListDevices(  # noqa: N802
        self, request: pb.ListDevicesRequest, context: Any
    ) -> pb.ListDevicesResponse:
        """Show all devices."""
        return pb.ListDevicesResponse(devices=map(wire.device_to_proto, self._service.devices()))
