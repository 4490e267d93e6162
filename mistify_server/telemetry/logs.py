"""The log of a server: lines for people, or a line of JSON for each event.

Modules log by the standard library. What a line is about (`job`, `goal`, `edge`, `worker`) is bound where the
work on it begins, by structlog's context variables, or given as `extra`.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TextIO

import structlog
from structlog.typing import Processor


class LogFormat(StrEnum):
    """The format of a log."""

    TEXT = "text"
    JSON = "json"


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
    """Return what writes records into a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_WRITING[chosen]],
            foreign_pre_chain=_READING,
        )
    )
    return handler


def set_up_log(chosen: LogFormat) -> None:
    """Write on standard error what is logged in this process, Python's warnings as well."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(chosen, sys.stderr)])
    logging.captureWarnings(True)
