"""File permissions that apply to root as well."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Version 3 of Linux's calls `capget` and `capset`: effective, permitted and inheritable bits, in two halves.
_VERSION: Final = 0x20080522
_WORDS: Final = 6

#: The bits of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, with which root ignores permissions.
_IGNORES_PERMISSIONS: Final = 1 << 1 | 1 << 2

_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextmanager
def permissions_obeyed() -> Iterator[None]:
    """Apply the permissions of files to this thread within the block, even if it is root's.

    The user stays the same, so that a checkout which only its owner may read can still be read.
    """
    if os.geteuid() != 0:
        yield
        return
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    before, within = (ctypes.c_uint32 * _WORDS)(), (ctypes.c_uint32 * _WORDS)()
    _call("capget", header, before)
    within[:] = before[:]
    within[0] &= ~_IGNORES_PERMISSIONS
    _call("capset", header, within)
    try:
        yield
    finally:
        _call("capset", header, before)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name} failed")
