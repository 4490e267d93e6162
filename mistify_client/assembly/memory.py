"""The memory of a device: available memory, and memory given back."""

import ctypes
from typing import Final

#: Of glibc; other libraries have none, and keep less.
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def available_bytes() -> int:
    """Return how many bytes can be allocated without swapping."""
    import psutil  # noqa: PLC0415 - slow to import, and only subnets need it

    return int(psutil.virtual_memory().available)


def return_memory() -> None:
    """Return the memory of closed networks to the system; glibc would keep it for later allocations."""
    if _TRIM is not None:
        _TRIM(0)
