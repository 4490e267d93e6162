"""LiteRT in a process of its own: it ends its process at some valid networks."""

from collections.abc import Callable
from typing import Final, TypeVar

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.isolation.process import DisposableProcess, ProcessEndedError

T = TypeVar("T")

#: Characters of LiteRT's own errors that are shown.
_SHOWN: Final = 200

#: That of this process.
_LITERT: Final = DisposableProcess()


class LiteRtError(MistifyError):
    """LiteRT cannot run a network on this machine.

    Attributes:
        reason: LiteRT's message on the network, or the way in which its process ended.
    """

    def __init__(self, network: str, reason: str) -> None:
        self.reason = reason
        problem = Problem(
            "the network",
            f"{network}: {reason}",
            "one that LiteRT runs on this machine, at this precision",
            'choose another precision, such as "quantization": "float16" or "dynamic"',
        )
        super().__init__(ErrorCode.INVALID_MODEL, "LiteRT cannot run this network", [problem])


def in_litert(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function that opens networks in LiteRT.

    Args:
        function: A function at the top level of a module that imports no TensorFlow.
        *arguments: Values that can be pickled, as the result must be.

    Raises:
        LiteRtError: LiteRT refuses a network, or ends its process at it.
        MemoryError: There is too little memory.
    """
    try:
        return _LITERT.call(function, *arguments)
    except ProcessEndedError as error:
        raise LiteRtError("one at which LiteRT ends", str(error)) from error
    except (RuntimeError, ValueError) as error:
        raise LiteRtError("one that LiteRT refuses", " ".join(str(error).split())[:_SHOWN]) from error
