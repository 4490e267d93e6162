"""Collectors of OpenTelemetry: real receivers of OTLP, over HTTP and over gRPC."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was received; ids are hexadecimal, and empty for no parent."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: bool
    message: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    resource: dict[str, Any]


@dataclass
class Collector:
    """The spans that a collector has received."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def receive(self, request: ExportTraceServiceRequest) -> None:
        for of_resource in request.resource_spans:
            resource = values(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                self.spans.extend(received(span, resource) for span in scope.spans)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def children(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        """Return the spans within another one, in the order of their begin."""
        within = [span for span in self.spans if span.parent_id == parent.span_id]
        return sorted(within, key=lambda span: span.began_ns)

    def tree(self, span: ReceivedSpan) -> Any:
        """Return the names of the spans within another one, each with those within it if there are any."""
        return [
            (child.name, self.tree(child)) if self.children(child) else child.name
            for child in self.children(span)
        ]

    def root(self) -> ReceivedSpan:
        """Return the only span whose parent was not received; there is one trace."""
        assert len({span.trace_id for span in self.spans}) == 1
        known = {span.span_id for span in self.spans}
        assert len(known) == len(self.spans)
        (root,) = [span for span in self.spans if span.parent_id not in known]
        return root


def received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=values(span.attributes),
        events=[(event.name, values(event.attributes)) for event in span.events],
        resource=resource,
    )


def values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def http_collector() -> Iterator[Collector]:
    """Receive spans over HTTP within the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_traces = self.path == "/v1/traces"
            if is_traces:
                collector.receive(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if is_traces else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """Receive spans over gRPC within the block."""
    collector = Collector()

    class Servicer(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:  # noqa: N802 (as above)
            collector.receive(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Servicer(), server)  # type: ignore[no-untyped-call]
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
