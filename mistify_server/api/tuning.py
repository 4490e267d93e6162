"""Servicer of tuning with peers."""

from collections.abc import AsyncIterator
from typing import Any

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import tuning_pb2 as pb
from mistify.v1 import tuning_pb2_grpc
from mistify.wire import tuning as wire
from mistify_server.tuning.service import TuningService


class TuningServicer(tuning_pb2_grpc.TuningServicer):
    """Adapter from gRPC to the service."""

    def __init__(self, service: TuningService) -> None:
        self._service = service

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.Membership:  # noqa: N802
        """Add a member to a group."""
        return wire.membership_to_proto(await self._service.join(wire.key_from_proto(request.key)))

    async def Publish(  # noqa: N802
        self, requests: AsyncIterator[pb.PublishRequest], context: Any
    ) -> pb.PublishResponse:
        """Receive a published model."""
        header = (await _header(requests)).header
        publication = wire.publication_from_proto(header.publication)
        data = (request.data async for request in requests)
        await self._service.publish(wire.key_from_proto(header.key), publication, data)
        return pb.PublishResponse(version=publication.version)

    async def Peers(self, request: pb.PeersRequest, context: Any) -> AsyncIterator[pb.PeersResponse]:  # noqa: N802
        """Stream the models of peers."""
        key = wire.key_from_proto(request.key)
        async for part in self._service.peers(key, request.count, request.held):
            yield wire.peer_to_proto(part)

    async def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveResponse:  # noqa: N802
        """Remove a member."""
        await self._service.leave(wire.key_from_proto(request.key))
        return pb.LeaveResponse()


async def _header(requests: AsyncIterator[pb.PublishRequest]) -> pb.PublishRequest:
    async for request in requests:
        if request.HasField("header"):
            return request
        break
    raise MistifyError(ErrorCode.INVALID_PUBLICATION, "the first message of an upload has to be its header")
