"""Wrappers for the methods of gRPC handlers, with or without streaming."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

#: Method of a handler with a single response; it takes one request or a stream of requests.
Unary: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
Stream: TypeAlias = Callable[[Any, Any], AsyncIterator[Any]]


def surrounded(
    handler: Any, unary: Callable[[Unary], Unary], stream: Callable[[Stream], Stream], *, decodes: bool = True
) -> Any:
    """Return a handler with a wrapper around its method.

    Args:
        handler: A gRPC handler.
        unary: Wraps a method that returns one response.
        stream: Wraps a method that yields several responses.
        decodes: Whether gRPC decodes the requests; otherwise, the wrapped method gets their bytes.
    """
    codecs = handler.request_deserializer if decodes else None, handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(unary(handler.stream_unary), *codecs)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream(handler.unary_stream), *codecs)
    return grpc.unary_unary_rpc_method_handler(unary(handler.unary_unary), *codecs)
