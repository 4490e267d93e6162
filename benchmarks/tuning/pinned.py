"""A separate process with single-threaded linear algebra, and the best kernels for the machine."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Final, TypeVar

from threadpoolctl import threadpool_info

_T = TypeVar("_T")

#: Environment variables for the number of threads; they are read when NumPy is imported.
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

#: Environment variables that override OpenBLAS's detection of the machine; overrides may be slower.
_OVERRIDES: Final = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def in_one_thread(function: Callable[..., _T], *arguments: object) -> _T:
    """Return the result of a module's function in such a process.

    Raises:
        RuntimeError: Linear algebra uses several threads in that process.
    """
    spawned = get_context("spawn")
    with _environment(), ProcessPoolExecutor(1, mp_context=spawned) as pool:
        return pool.submit(checked, function, *arguments).result()


def checked(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function after checking that linear algebra uses one thread in this process.

    Raises:
        RuntimeError: It uses more.
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
