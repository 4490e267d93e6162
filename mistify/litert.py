"""LiteRT's two executions of networks; nothing else imports them.

Interpreters open without a word on standard error.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any, Final

from ai_edge_litert.interpreter import Interpreter, OpResolverType

__all__ = ["Interpreter", "OpResolverType", "open_compiled", "open_interpreter"]

_STANDARD_ERROR: Final = 2

#: Written by LiteRT when a process first allocates tensors; no setting of its Python package turns it off.
_NOTICE: Final = b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"

_noticed: Final = Event()


def open_interpreter(network: bytes | Path, threads: int | None) -> Interpreter:
    """Return an interpreter of a `.tflite`, given as its content or its path.

    Args:
        threads: None leaves the number to LiteRT.

    Raises:
        ValueError: It is no `.tflite`.
    """
    if not _noticed.is_set():
        _noticed.set()
        # With an interpreter of its own: shapes may be missing that inputs have yet to be given.
        with _without_notice(), suppress(RuntimeError):
            _interpreter(network, threads).allocate_tensors()
    return _interpreter(network, threads)


def open_compiled(network: bytes, threads: int) -> Any:
    """Return a `CompiledModel`, by which LiteRT reaches accelerators, on the processor alone.

    Args:
        network: The content of a `.tflite`.

    Raises:
        RuntimeError: It is no `.tflite`.
    """
    from ai_edge_litert.compiled_model import CompiledModel  # noqa: PLC0415 - with what GPUs and NPUs need
    from ai_edge_litert.options import Options  # noqa: PLC0415

    options = Options.create()
    options.cpu_options.num_threads = threads
    return CompiledModel.from_buffer(network, environment=_environment(), options=options)


@cache
def _environment() -> Any:
    """Return the only environment of the process: each one looks for accelerators."""
    from ai_edge_litert.environment import Environment  # noqa: PLC0415 - as above

    return Environment.create()


def _interpreter(network: bytes | Path, threads: int | None) -> Interpreter:
    if isinstance(network, Path):
        return Interpreter(model_path=str(network), num_threads=threads)
    return Interpreter(model_content=network, num_threads=threads)


@contextmanager
def _without_notice() -> Iterator[None]:
    """Keep the notice off standard error; other text written there meanwhile follows at the end."""
    try:
        saved = os.dup(_STANDARD_ERROR)
    except OSError:  # closed, as that of a daemon may be
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
