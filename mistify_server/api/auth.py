"""Authentication of callers by the server's token."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError

_HEADER = "authorization"
_HEALTH = "/grpc.health.v1.Health/"


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Refusal of calls without `authorization: Bearer TOKEN`; health checks need none."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Let a call pass, or put a refusal in its place."""
        handler = await continuation(details)
        header = dict(details.invocation_metadata or ()).get(_HEADER, "")
        header = header if isinstance(header, bytes) else header.encode()
        if (
            handler is None
            or details.method.startswith(_HEALTH)
            or hmac.compare_digest(header, self._expected)
        ):
            return handler
        # Whatever the method is: of a stream, no request is waited for, which may never come.
        return grpc.stream_unary_rpc_method_handler(_refuse)


async def _refuse(_requests: Any, _context: Any) -> None:
    raise MistifyError(
        ErrorCode.UNAUTHENTICATED,
        "the call has no token or the wrong one; send the token from the server's --token-file",
    )
