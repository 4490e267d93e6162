"""An in-memory device service over real gRPC."""

# ruff: noqa: N802 (gRPC names the methods of a servicer)

import queue
from concurrent.futures import ThreadPoolExecutor

import grpc

from mistify.v1 import devices_pb2 as pb
from mistify.v1.devices_pb2_grpc import DevicesServicer, add_DevicesServicer_to_server
from mistify.wire import devices as wire
from tests.mistify_client.conftest import PortingFake


class Devices(DevicesServicer):
    """A service that predicts 0.5 ms for every network and device, or refuses calls."""

    def __init__(self):
        self.reports, self.statuses, self.error = [], queue.Queue(), None

    def ReportLatency(self, request, context):
        self._refuse(context)
        self.reports.append((request.device, request.job_id, request.goal_id, request.median_ms))
        return pb.ReportLatencyResponse(predicted_ms=0.5, factor=1.25)

    def ReportStatus(self, request, context):
        self._refuse(context)
        self.statuses.put(wire.status_from_proto(request))
        return pb.ReportStatusResponse()

    def _refuse(self, context):
        if self.error is not None:
            PortingFake._abort(context, self.error)


def serve(devices, address):
    """Start a server at a `reserved_address`."""
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 1)])
    add_DevicesServicer_to_server(devices, server)
    server.add_insecure_port(address)
    server.start()
    return server
