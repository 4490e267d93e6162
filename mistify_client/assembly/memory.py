"""The memory of a device: available memory, and memory returned to the system."""

import ctypes
from typing import Final

#: Exists in glibc only; other C libraries keep less memory.
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def available_bytes() -> int:
    """Return the number of bytes that can be allocated without swapping."""
    import psutil  # noqa: PLC0415 - slow to import, and only subnets need it

    return int(psutil.virtual_memory().available)


def return_memory() -> None:
    """Return the memory of closed networks to the system; glibc would keep it for later allocations."""
    if _TRIM is not None:
        _TRIM(0)
