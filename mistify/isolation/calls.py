"""The protocol between a process and the subprocess that runs its calls: pickled messages over a socket."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True)
class Call:
    """A function of a module, with its arguments; a reporting function takes a callback as its last one."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    reports: bool


@dataclass(frozen=True)
class Report:
    """A report from a running function."""

    content: Any


@dataclass(frozen=True)
class Returned:
    """The result of a function."""

    result: Any


@dataclass(frozen=True)
class Raised:
    """The exception raised by a function."""

    error: Exception


def answer_calls(connection: Connection) -> None:
    """Run calls one after the other until the other side closes the connection."""
    with suppress(EOFError, ConnectionError):
        while True:
            connection.send(_answer(connection.recv(), connection))


def _answer(call: Call, connection: Connection) -> Returned | Raised:
    arguments = call.arguments
    if call.reports:
        arguments += (lambda content: connection.send(Report(content)),)
    try:
        return Returned(call.function(*arguments))
    except Exception as error:
        return Raised(error)
