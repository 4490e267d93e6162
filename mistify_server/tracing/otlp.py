"""Traces that OpenTelemetry's SDK sends to a collector.

The SDK's own environment variables apply: samplers, limits, batches, headers, certificates and the resource.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify_server.tracing.context import TraceContext, current_traceparent, within
from mistify_server.tracing.traces import Attributes, FinishedSpan, Span, Traces

_NAME: Final = "mistify"
_SERVICE: Final = "mistify-server"
_DISTRIBUTION: Final = "mistify-porting"

#: The path of an HTTP collector below its address.
_PATH: Final = "/v1/traces"

_GRPC, _HTTP = "grpc", "http/protobuf"

#: The first one that is set decides; HTTP is the default of OpenTelemetry.
_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

#: HTTP statuses from this one are failures of the server.
_SERVER_FAILURES: Final = 500

#: Time for the last spans when the server stops, in milliseconds.
_FLUSH_MS: Final = 5_000


def exporter_to(address: str | None) -> SpanExporter:
    """Return what sends spans to a collector.

    Args:
        address: The URL of the collector; None for the address in the environment.

    Raises:
        MistifyError: INVALID_CONFIG, the environment names another protocol.
    """
    variable = next((name for name in _PROTOCOL_VARIABLES if os.environ.get(name)), "")
    protocol = os.environ.get(variable, _HTTP)
    if protocol == _GRPC:
        return GrpcExporter(endpoint=address)
    if protocol == _HTTP:
        if address is not None and not address.endswith(_PATH):
            address = f"{address.rstrip('/')}{_PATH}"
        return HttpExporter(endpoint=address)
    raise MistifyError(
        ErrorCode.INVALID_CONFIG,
        f'{variable}: got "{protocol}"; expected {_GRPC} or {_HTTP}; set one of them',
    )


class OtlpTraces(Traces):
    """Sends spans in batches, from a thread of its own; without a collector they are dropped."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._ids = _ChosenIds()
        self._provider = TracerProvider(resource=_resource(), id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME, version(_DISTRIBUTION))

    @property
    @override
    def enabled(self) -> bool:
        return True

    @contextmanager
    @override
    def call(self, name: str, caller: str, attributes: Attributes) -> Iterator[Span]:
        with self._recorded(name, caller, SpanKind.SERVER, attributes) as span:
            yield span

    @contextmanager
    @override
    def span(self, name: str, attributes: Attributes) -> Iterator[Span]:
        position = current_traceparent()
        if not position:
            yield Span()
            return
        with self._recorded(name, position, SpanKind.INTERNAL, attributes) as span:
            yield span

    @override
    def record(self, span: FinishedSpan, parent: str) -> None:
        with self._ids.chosen(span.span_id):
            own = self._tracer.start_span(
                span.name, _context_of(parent), attributes=dict(span.attributes), start_time=span.began_ns
            )
        if span.error:
            own.set_status(Status(StatusCode.ERROR, span.error))
        for child in span.children:
            self.record(child, _traceparent_of(own))
        own.end(span.ended_ns)

    @override
    def close(self) -> None:
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()

    @contextmanager
    def _recorded(self, name: str, parent: str, kind: SpanKind, attributes: Attributes) -> Iterator[Span]:
        own = self._tracer.start_span(name, _context_of(parent), kind, dict(attributes))
        span = _RecordedSpan(own)
        try:
            with within(_traceparent_of(own)):
                yield span
        except MistifyError as error:
            if kind is SpanKind.SERVER and error.code.http_status < _SERVER_FAILURES:
                span.describe({"error.type": error.code.name})
            else:
                span.fail(error.code.name, error.message)
            raise
        except Exception as error:
            own.record_exception(error)
            span.fail(type(error).__qualname__, str(error))
            raise
        except BaseException:  # the server stops, or the caller has gone
            own.add_event("cancelled")
            raise
        finally:
            own.end()


class _RecordedSpan(Span):
    def __init__(self, own: trace.Span) -> None:
        self._own = own

    @override
    def describe(self, attributes: Attributes) -> None:
        self._own.set_attributes(dict(attributes))

    @override
    def rename(self, name: str) -> None:
        self._own.update_name(name)

    @override
    def note(self, event: str, attributes: Attributes) -> None:
        self._own.add_event(event, dict(attributes))

    @override
    def fail(self, kind: str, reason: str) -> None:
        self._own.set_attribute("error.type", kind)
        self._own.set_status(Status(StatusCode.ERROR, reason))


class _ChosenIds(RandomIdGenerator):
    """Random ids, except for spans with an id of their own."""

    def __init__(self) -> None:
        self._chosen: ContextVar[str] = ContextVar("chosen", default="")

    @contextmanager
    def chosen(self, span_id: str) -> Iterator[None]:
        """Give a span that starts in the block an id; a random one if it is empty."""
        token = self._chosen.set(span_id)
        try:
            yield
        finally:
            self._chosen.reset(token)

    @override
    def generate_span_id(self) -> int:
        chosen = self._chosen.get()
        return int(chosen, 16) if chosen else super().generate_span_id()


def _resource() -> Resource:
    """Return what the spans are about: this server, unless the environment says more."""
    own = Resource(
        {
            "service.name": _SERVICE,
            "service.version": version(_DISTRIBUTION),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
    return Resource.create().merge(own).merge(OTELResourceDetector().detect())


def _context_of(traceparent: str) -> Context:
    position = TraceContext.parse(traceparent)
    if position is None:
        return Context()
    span = SpanContext(
        int(position.trace_id, 16),
        int(position.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(position.flags),
    )
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def _traceparent_of(span: trace.Span) -> str:
    own = span.get_span_context()
    return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
