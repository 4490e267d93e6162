"""A process of its own whose linear algebra runs in one thread, with the best kernels for the machine."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Final, TypeVar

from threadpoolctl import threadpool_info

_T = TypeVar("_T")

#: How many threads libraries take; read when NumPy is imported.
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

#: Overrides of what OpenBLAS finds out about the machine, which may be slower.
_OVERRIDES: Final = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def in_one_thread(function: Callable[..., _T], *arguments: object) -> _T:
    """Return the result of a module's function in such a process.

    Raises:
        RuntimeError: Linear algebra has more threads there all the same.
    """
    spawned = get_context("spawn")
    with _environment(), ProcessPoolExecutor(1, mp_context=spawned) as pool:
        return pool.submit(checked, function, *arguments).result()


def checked(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function if linear algebra has one thread in this process.

    Raises:
        RuntimeError: It has more.
    """
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    if not libraries or any(library["num_threads"] != 1 for library in libraries):
        raise RuntimeError(f"expected one thread for linear algebra; got {libraries}")
    return function(*arguments)


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment variables for processes started inside the block."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    for name in _OVERRIDES:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
