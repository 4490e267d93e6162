"""The service of devices in memory, over real gRPC."""

# ruff: noqa: N802 (gRPC names the methods of a servicer)

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import grpc

from mistify.costs.devices import Device, Setting
from mistify.v1 import devices_pb2 as pb
from mistify.v1.devices_pb2_grpc import DevicesServicer, add_DevicesServicer_to_server
from mistify.wire import devices
from tests.mistify_client.conftest import PortingFake

SETTINGS = tuple(Setting(integer, threads, 0.1, 0.2) for integer in (False, True) for threads in (2, 1))
MY_BOARD = Device("my-board", "x86_64", "LiteRT", SETTINGS, datetime(2026, 1, 2, tzinfo=UTC))


class Devices(DevicesServicer):
    """Knows one device, and predicts 0.5 ms for everything there; or refuses."""

    def __init__(self):
        self.reports, self.known, self.error = [], [MY_BOARD], None

    def ReportLatency(self, request, context):
        self._refuse(context)
        self.reports.append((request.device, request.job_id, request.goal_id, request.median_ms))
        return pb.ReportLatencyResponse(predicted_ms=0.5, factor=1.25)

    def ListDevices(self, request, context):
        self._refuse(context)
        return pb.ListDevicesResponse(devices=map(devices.device_to_proto, self.known))

    def _refuse(self, context):
        if self.error is not None:
            PortingFake._abort(context, self.error)


def serve(devices, address="127.0.0.1:0"):
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    add_DevicesServicer_to_server(devices, server)
    port = server.add_insecure_port(address)
    server.start()
    return server, f"127.0.0.1:{port}"
