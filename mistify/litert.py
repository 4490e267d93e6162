"""The two ways to run networks in LiteRT, which no other module imports.

Interpreters write nothing to standard error when they open.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any, Final

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from mistify.machine import MOST_THREADS

__all__ = ["Interpreter", "OpResolverType", "open_compiled", "open_interpreter"]

_STANDARD_ERROR: Final = 2

#: Written by LiteRT when a process first allocates tensors; its Python package has no setting to suppress it.
_NOTICE: Final = b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"

_noticed: Final = Event()


def open_interpreter(network: bytes | Path, threads: int | None) -> Interpreter:
    """Return an interpreter for a `.tflite` file, given its content or its path.

    Args:
        threads: None leaves the number to LiteRT.

    Raises:
        ValueError: It is not a `.tflite` file, or there are too many threads.
    """
    _check_threads(threads)
    if not _noticed.is_set():
        _noticed.set()
        # Triggers the notice with a separate interpreter: input shapes may still be unknown.
        with _without_notice(), suppress(RuntimeError):
            _interpreter(network, threads).allocate_tensors()
    return _interpreter(network, threads)


def open_compiled(network: bytes | Path, threads: int, weights: Path | None = None) -> Any:
    """Return a `CompiledModel`, LiteRT's interface to accelerators, on the CPU alone.

    Args:
        network: The content of a `.tflite` file, or its path, which is mapped into memory.
        weights: The file of the packed weights, which is mapped into memory. If there is none, LiteRT
            writes it. LiteRT does not notice if its content is damaged, or belongs to another network.

    Raises:
        RuntimeError: It is not a `.tflite` file.
        ValueError: There are too many threads.
    """
    _check_threads(threads)
    from ai_edge_litert.compiled_model import CompiledModel  # noqa: PLC0415 - loads GPU and NPU libraries
    from ai_edge_litert.options import Options  # noqa: PLC0415

    options = Options.create()
    options.cpu_options.num_threads = threads
    if weights is not None:
        options.cpu_options.xnnpack_weight_cache_path = str(weights)
    if isinstance(network, Path):
        return CompiledModel.from_file(str(network), environment=_environment(), options=options)
    return CompiledModel.from_buffer(network, environment=_environment(), options=options)


@cache
def _environment() -> Any:
    """Return the only environment of the process: creating one searches for accelerators."""
    from ai_edge_litert.environment import Environment  # noqa: PLC0415 - as above

    return Environment.create()


def _check_threads(threads: int | None) -> None:
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"{threads} threads cannot be started; expected 1 to {MOST_THREADS}")


def _interpreter(network: bytes | Path, threads: int | None) -> Interpreter:
    if isinstance(network, Path):
        return Interpreter(model_path=str(network), num_threads=threads)
    return Interpreter(model_content=network, num_threads=threads)


@contextmanager
def _without_notice() -> Iterator[None]:
    """Suppress the notice on standard error; other text written during the block follows at its end."""
    try:
        saved = os.dup(_STANDARD_ERROR)
    except OSError:  # closed, as in a daemon
        yield
        return
    written = os.memfd_create("standard-error")
    try:
        os.dup2(written, _STANDARD_ERROR)
        yield
    finally:
        os.dup2(saved, _STANDARD_ERROR)
        os.lseek(written, 0, os.SEEK_SET)
        with os.fdopen(saved, "wb") as standard_error, os.fdopen(written, "rb") as content:
            standard_error.write(content.read().replace(_NOTICE, b""))
