"""Authentication of callers with the server's token."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError

_HEADER = "authorization"
_HEALTH = "/grpc.health.v1.Health/"


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that refuses calls without `authorization: Bearer TOKEN`, except health checks."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Pass a call on, or replace its handler by a refusal."""
        handler = await continuation(details)
        header = dict(details.invocation_metadata or ()).get(_HEADER, "")
        header = header if isinstance(header, bytes) else header.encode()
        if (
            handler is None
            or details.method.startswith(_HEALTH)
            or hmac.compare_digest(header, self._expected)
        ):
            return handler
        # This works for every kind of method: it does not wait for the requests of a stream, which may never
        # come.
        return grpc.stream_unary_rpc_method_handler(_refuse)


async def _refuse(_requests: Any, _context: Any) -> None:
    raise MistifyError(
        ErrorCode.UNAUTHENTICATED,
        "the token is missing or wrong; send the token from the server's --token-file",
    )
