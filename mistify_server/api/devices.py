"""Servicer of devices."""

import asyncio
from typing import Any

from mistify.v1 import devices_pb2 as pb
from mistify.v1 import devices_pb2_grpc
from mistify.wire import devices as wire
from mistify_server.hardware.service import DeviceService
from mistify_server.identity.tenants import ByTenant
from mistify_server.rollouts.reports import DeviceReports


class DevicesServicer(devices_pb2_grpc.DevicesServicer):
    """Adapter from gRPC to the services."""

    def __init__(self, service: DeviceService, reports: ByTenant[DeviceReports]) -> None:
        self._service = service
        self._reports = reports

    async def RegisterDevice(self, request: pb.DeviceTable, context: Any) -> pb.Device:  # noqa: N802
        """Register a device."""
        return wire.device_to_proto(await self._service.register(wire.table_from_proto(request)))

    async def ReportLatency(  # noqa: N802
        self, request: pb.ReportLatencyRequest, context: Any
    ) -> pb.ReportLatencyResponse:
        """Adjust the predictions for a device."""
        report = (request.device, request.job_id, request.goal_id, request.median_ms)
        predicted_ms, factor = await self._service.report(*report)
        return pb.ReportLatencyResponse(predicted_ms=predicted_ms, factor=factor)

    async def ListDevices(  # noqa: N802
        self, request: pb.ListDevicesRequest, context: Any
    ) -> pb.ListDevicesResponse:
        """Return the devices of the caller's tenant."""
        devices = await asyncio.to_thread(self._service.devices)
        return pb.ListDevicesResponse(devices=map(wire.device_to_proto, devices))

    async def ReportStatus(self, request: pb.DeviceStatus, context: Any) -> pb.ReportStatusResponse:  # noqa: N802
        """Store the status of a device, and return which package it should run."""
        status = wire.status_from_proto(request)
        reports = await self._reports.ready()
        return wire.instruction_to_proto(await reports.answer(status))
