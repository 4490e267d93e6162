"""Handlers of calls with wrappers around their methods, whichever side streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

#: What a handler does for a request, or a stream of them.
Unary: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
Stream: TypeAlias = Callable[[Any, Any], AsyncIterator[Any]]


def surrounded(handler: Any, unary: Callable[[Unary], Unary], stream: Callable[[Stream], Stream]) -> Any:
    """Return a handler with wrappers around its method.

    Args:
        handler: A handler of gRPC.
        unary: Wraps a method that returns one response.
        stream: Wraps a method that yields several.
    """
    codecs = handler.request_deserializer, handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(unary(handler.stream_unary), *codecs)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream(handler.unary_stream), *codecs)
    return grpc.unary_unary_rpc_method_handler(unary(handler.unary_unary), *codecs)
