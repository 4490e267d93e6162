"""Opening of traces: without a collector, OpenTelemetry is not even imported."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify_server.tracing.traces import NO_TRACES, Traces

#: Variables of OpenTelemetry that name a collector.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_log = logging.getLogger(__name__)


def checked_collector(address: str) -> str:
    """Return the URL of a collector unchanged if it is one."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValue(
            address,
            "the URL of a collector such as http://127.0.0.1:4318",
            "begin it with http:// or https://",
        )
    return address


@asynccontextmanager
async def open_traces(collector: str | None = None) -> AsyncIterator[Traces]:
    """Record traces within the block, and send the last ones at its end.

    Args:
        collector: The URL of the collector; None for the one that OpenTelemetry's variables name, if any.

    Raises:
        MistifyError: INVALID_CONFIG, OpenTelemetry is not installed, or its variables are invalid.
    """
    traces = _traces(collector)
    try:
        yield traces
    finally:
        if traces.enabled:
            await asyncio.to_thread(traces.close)


def _traces(collector: str | None) -> Traces:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").casefold() == "true"
    if disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        if collector is not None:
            _log.warning("OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER turns off the traces of the settings")
        return NO_TRACES
    if collector is None and not any(os.environ.get(name) for name in _ENDPOINTS):
        return NO_TRACES
    try:
        from mistify_server.tracing.otlp import OtlpTraces, exporter_to  # noqa: PLC0415 (optional)
    except ModuleNotFoundError as error:
        message = (
            f"traces need {error.name}, which is not installed; run pip install 'mistify-porting[telemetry]'"
        )
        if collector is not None:
            raise MistifyError(ErrorCode.INVALID_CONFIG, message) from error
        _log.warning(message)  # the variables may be meant for other programs
        return NO_TRACES
    return OtlpTraces(exporter_to(collector))
