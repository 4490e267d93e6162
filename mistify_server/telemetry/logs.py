"""The log of a server: lines for people, or a line of JSON for each event.

Modules use the standard library's logging. The subject of a line (`job`, `goal`, `edge`, `worker`) is bound
where the work on it begins, by structlog's context variables, or given as `extra`.
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
from structlog.typing import Processor


class LogFormat(StrEnum):
    """The format of a log."""

    TEXT = "text"
    JSON = "json"


_STANDARD_ERROR: Final = 2

#: Seconds until the last lines are given up: a process that goes on may have the pipe as well.
_END_SECONDS: Final = 1.0

_READING: Final[Sequence[Processor]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)

# Tracebacks without the values of variables: tokens and configs may be among them.
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


def log_handler(chosen: LogFormat, stream: TextIO) -> logging.Handler:
    """Return a handler that writes records into a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_WRITING[chosen]],
            foreign_pre_chain=_READING,
        )
    )
    return handler


def set_up_log(chosen: LogFormat) -> None:
    """Write this process's log, including Python's warnings, to standard error.

    As JSON, this includes lines that libraries, such as gRPC, write there themselves.
    """
    stream = sys.stderr if chosen is LogFormat.TEXT else _own_standard_error()
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(chosen, stream)])
    logging.captureWarnings(True)


def _own_standard_error() -> TextIO:
    """Return standard error for the log alone: everything else written there goes into the log."""
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
        """Pass the last lines on: the pipe ends with its last writer."""
        sys.stderr.flush()
        os.dup2(own.fileno(), _STANDARD_ERROR)
        thread.join(_END_SECONDS)

    atexit.register(end)
    return own
