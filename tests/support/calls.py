"""Calls of every method that the protocol describes."""

from typing import Any

import grpc

from mistify.v1 import devices_pb2, files_pb2, porting_pb2, rollouts_pb2, tuning_pb2

_SERVICES = {
    "Porting": porting_pb2,
    "Devices": devices_pb2,
    "Rollouts": rollouts_pb2,
    "Files": files_pb2,
    "Tuning": tuning_pb2,
}


def described_calls() -> dict[str, Any]:
    """Return the descriptions of the server's methods by path."""
    return {
        f"/{service.full_name}/{method.name}": method
        for name, module in _SERVICES.items()
        for service in [module.DESCRIPTOR.services_by_name[name]]
        for method in service.methods
    }


async def status_of(
    channel: grpc.aio.Channel, path: str, method: Any, token: str | None = None
) -> grpc.StatusCode:
    """Return the status of a call with an empty request."""
    return (await outcome_of(channel, path, method, b"", token))[0]


async def outcome_of(
    channel: grpc.aio.Channel, path: str, method: Any, request: bytes, token: str | None = None
) -> tuple[grpc.StatusCode, str]:
    """Return the status and the message of a call with a serialized request."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    options: dict[str, Any] = {"timeout": 30, "metadata": metadata}
    try:
        if method.client_streaming:
            call: Any = channel.stream_unary(path)
            await call(iter([request]), **options)
        elif method.server_streaming:
            call = channel.unary_stream(path)
            async for _ in call(request, **options):
                pass
        else:
            call = channel.unary_unary(path)
            await call(request, **options)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
