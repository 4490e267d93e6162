"""The log of a server: readable lines, or one line of JSON per event.

Modules use the standard library's logging. The context of a line (`job`, `goal`, `edge`, `worker`) is either
bound with structlog's context variables where the work begins, or passed as `extra`. Lines of traced work
have the ids of its trace and span.
"""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor
from typing_extensions import override

from mistify_server.tracing.context import TraceContext, current_traceparent


class LogFormat(StrEnum):
    """The format of a log."""

    TEXT = "text"
    JSON = "json"


_STANDARD_ERROR: Final = 2

#: Maximum wait for the last lines, in seconds: a surviving child process may keep the pipe open.
_END_SECONDS: Final = 1.0


def _with_trace(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Add the position in a trace to a line."""
    position = TraceContext.parse(current_traceparent())
    if position is not None:
        line.update(trace_id=position.trace_id, span_id=position.span_id)
    return line


_READING: Final[Sequence[Processor]] = (
    structlog.contextvars.merge_contextvars,
    _with_trace,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)

# Tracebacks omit the values of variables, which may include tokens and configs.
_WRITING: Final[Mapping[LogFormat, Sequence[Processor]]] = {
    LogFormat.TEXT: (
        structlog.dev.ConsoleRenderer(
            colors=False,
            pad_event_to=0,
            pad_level=False,
            timestamp_key="time",
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ),
    LogFormat.JSON: (
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(sort_keys=True),
    ),
}


class _LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, and drops those for which it has no room, as on a full disk."""

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Report errors, except those of writing: standard error may lead back here through a pipe.

        The reports would fill it, and their only reader, which would also write them, would wait for itself.
        """
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_handler(chosen: LogFormat, stream: TextIO) -> logging.Handler:
    """Return a handler that writes records to a stream."""
    handler = _LineHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_WRITING[chosen]],
            foreign_pre_chain=_READING,
        )
    )
    return handler


def set_up_log(chosen: LogFormat) -> None:
    """Write this process's log, including Python's warnings, to standard error.

    In JSON format, this includes lines that libraries such as gRPC write to standard error directly.
    """
    stream = sys.stderr if chosen is LogFormat.TEXT else _own_standard_error()
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(chosen, stream)])
    logging.captureWarnings(True)


def _own_standard_error() -> TextIO:
    """Reserve standard error for the log: everything else written there is redirected into the log."""
    own = os.fdopen(os.dup(_STANDARD_ERROR), "w", buffering=1)
    reading, writing = os.pipe()
    os.dup2(writing, _STANDARD_ERROR)
    os.close(writing)
    logger = logging.getLogger("stderr")

    def pass_on() -> None:
        with os.fdopen(reading, errors="replace") as lines:
            for line in filter(None, map(str.rstrip, lines)):
                logger.warning("%s", line)

    thread = threading.Thread(target=pass_on, name="stderr", daemon=True)
    thread.start()

    def end() -> None:
        """Forward the last lines: the pipe ends with its last writer."""
        sys.stderr.flush()
        os.dup2(own.fileno(), _STANDARD_ERROR)
        thread.join(_END_SECONDS)

    atexit.register(end)
    return own
