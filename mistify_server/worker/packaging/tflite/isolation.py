"""LiteRT in a separate process, because it crashes on some valid networks."""

from collections.abc import Callable
from typing import Final, TypeVar

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.isolation.process import DisposableProcess, ProcessEndedError

T = TypeVar("T")

#: Maximum length of LiteRT's own errors in messages.
_SHOWN: Final = 200

#: The LiteRT process that belongs to this process.
_LITERT: Final = DisposableProcess()


class LiteRtError(MistifyError):
    """LiteRT cannot run a network on this machine.

    Attributes:
        reason: LiteRT's error message, or a description of how its process ended.
    """

    def __init__(self, network: str, reason: str) -> None:
        self.reason = reason
        problem = Problem(
            "the network",
            f"{network}: {reason}",
            "one that LiteRT can run on this machine at this precision",
            'choose another precision, such as "quantization": "float16" or "dynamic"',
        )
        super().__init__(ErrorCode.INVALID_MODEL, "LiteRT cannot run this network", [problem])


def start_litert() -> None:
    """Start LiteRT's process ahead of its first call."""
    _LITERT.start()


def in_litert(function: Callable[..., T], *arguments: object) -> T:
    """Run a function that opens networks in LiteRT's process, and return its result.

    Args:
        function: A top-level function of a module without TensorFlow.
        *arguments: Arguments, which must be picklable, like the result.

    Raises:
        LiteRtError: LiteRT rejects a network or crashes on it.
        MemoryError: LiteRT's process ran out of memory.
    """
    try:
        return _LITERT.call(function, *arguments)
    except ProcessEndedError as error:
        raise LiteRtError("one on which LiteRT crashes", str(error)) from error
    except (RuntimeError, ValueError) as error:
        raise LiteRtError("one that LiteRT rejects", " ".join(str(error).split())[:_SHOWN]) from error
