"""The gRPC server with all services."""

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from mistify.jobs.job import Job
from mistify.v1 import (
    devices_pb2,
    devices_pb2_grpc,
    files_pb2,
    files_pb2_grpc,
    porting_pb2,
    porting_pb2_grpc,
    rollouts_pb2,
    rollouts_pb2_grpc,
    tuning_pb2,
    tuning_pb2_grpc,
)
from mistify.wire.limits import MAX_MESSAGE_BYTES
from mistify_server.api.auth import AccessInterceptor
from mistify_server.api.devices import DevicesServicer
from mistify_server.api.errors import ErrorInterceptor
from mistify_server.api.files import FilesServicer
from mistify_server.api.porting import PortingServicer
from mistify_server.api.requests import RequestInterceptor
from mistify_server.api.rollouts import RolloutsServicer
from mistify_server.api.timing import TimingInterceptor
from mistify_server.api.tracing import TracingInterceptor
from mistify_server.api.tuning import TuningServicer
from mistify_server.file_descriptors import most_connections
from mistify_server.services import Services

#: Full names of the services.
SERVICES = (
    porting_pb2.DESCRIPTOR.services_by_name["Porting"].full_name,
    devices_pb2.DESCRIPTOR.services_by_name["Devices"].full_name,
    rollouts_pb2.DESCRIPTOR.services_by_name["Rollouts"].full_name,
    files_pb2.DESCRIPTOR.services_by_name["Files"].full_name,
    tuning_pb2.DESCRIPTOR.services_by_name["Tuning"].full_name,
)

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Two servers on one port would each get some of the calls.
    ("grpc.so_reuseport", 0),
    # By default, gRPC rejects calls that have waited for 30 s, or beyond 1,000 pending ones. That many
    # watchers may arrive at once on a busy machine.
    ("grpc.server_max_unrequested_time_in_server", 600),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    # Close idle connections: clients reconnect with their next call.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 30_000),
    # A TLS connection has buffers of this size, which its first long message fills, such as the events so far
    # of a watched job. The default is 16 KiB, for each of thousands of watchers.
    ("grpc.tsi.max_frame_size", 8192),
    # Notice a caller that vanished without closing the connection.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class _ByName:
    """Adds services to a server by the names of their methods only.

    Generated code registers each method as well. gRPC then waits for the next call of any method by a future
    for each, to which it subscribes again at every call.
    """

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, _service: str, _handlers: object) -> None:
        """Register no method."""


def grpc_server(services: Services, health_service: Any, report_page: Callable[[Job], str]) -> Any:
    """Return a server of services, which is not started.

    Args:
        health_service: The servicer of `grpc.health.v1.Health`.
        report_page: Makes the report of a job.
    """
    own = services.access
    access = AccessInterceptor(own.authenticator, own.audit, own.calls)
    interceptors = [TimingInterceptor(services.metrics), ErrorInterceptor(), RequestInterceptor(), access]
    if services.traces.enabled:
        interceptors.append(TracingInterceptor(services.traces))
    options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", most_connections()))
    server = grpc.aio.server(interceptors=interceptors, options=options)
    handlers = _ByName(server)
    porting_servicer = PortingServicer(
        services.porting, services.removals, services.packages, services.usage, report_page
    )
    porting_pb2_grpc.add_PortingServicer_to_server(porting_servicer, handlers)  # type: ignore[no-untyped-call]
    tuning_pb2_grpc.add_TuningServicer_to_server(TuningServicer(services.tuning), handlers)  # type: ignore[no-untyped-call]
    devices = DevicesServicer(services.devices, services.reports)
    devices_pb2_grpc.add_DevicesServicer_to_server(devices, handlers)  # type: ignore[no-untyped-call]
    rollouts_pb2_grpc.add_RolloutsServicer_to_server(RolloutsServicer(services.rollouts), handlers)  # type: ignore[no-untyped-call]
    files_servicer = FilesServicer(services.uploads, services.porting.check_quota)
    files_pb2_grpc.add_FilesServicer_to_server(files_servicer, handlers)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(health_service, handlers)
    return server
