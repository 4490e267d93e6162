"""Calls of services without a server, which would find out who calls."""

from collections.abc import Iterator
from contextlib import contextmanager

from mistify_server.identity.callers import Caller, set_caller


@contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """Be a caller of the services within the block."""
    token = set_caller(caller)
    try:
        yield
    finally:
        token.var.reset(token)
