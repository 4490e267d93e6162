"""Servicer of roll-outs."""

# ruff: noqa: N802 (gRPC names the methods of a servicer)

import asyncio
from collections.abc import Callable
from typing import Any

from mistify.rollouts import RolloutProgress
from mistify.v1 import rollouts_pb2 as pb
from mistify.v1 import rollouts_pb2_grpc
from mistify.wire import rollouts as wire
from mistify_server.identity.tenants import ByTenant
from mistify_server.rollouts.service import RolloutService


class RolloutsServicer(rollouts_pb2_grpc.RolloutsServicer):
    """Adapter from gRPC to the service of the caller's tenant."""

    def __init__(self, services: ByTenant[RolloutService]) -> None:
        self._services = services

    async def StartRollout(self, request: pb.StartRolloutRequest, context: Any) -> pb.RolloutProgress:
        """Start a roll-out."""
        return await _answer((await self._services.ready()).start, wire.new_rollout_from_proto(request))

    async def ListRollouts(self, request: pb.ListRolloutsRequest, context: Any) -> pb.ListRolloutsResponse:
        """Return the newest roll-outs."""
        newest = await asyncio.to_thread((await self._services.ready()).newest)
        return pb.ListRolloutsResponse(rollouts=map(wire.progress_to_proto, newest))

    async def GetRollout(self, request: pb.RolloutId, context: Any) -> pb.RolloutProgress:
        """Return a roll-out."""
        return await _answer((await self._services.ready()).get, request.id)

    async def PauseRollout(self, request: pb.RolloutId, context: Any) -> pb.RolloutProgress:
        """Pause a roll-out."""
        return await _answer((await self._services.ready()).pause, request.id)

    async def ResumeRollout(self, request: pb.RolloutId, context: Any) -> pb.RolloutProgress:
        """Resume a roll-out."""
        return await _answer((await self._services.ready()).resume, request.id)

    async def RollBack(self, request: pb.RolloutId, context: Any) -> pb.RolloutProgress:
        """Roll back a roll-out."""
        return await _answer((await self._services.ready()).roll_back, request.id)


async def _answer(method: Callable[..., RolloutProgress], *arguments: object) -> pb.RolloutProgress:
    """Return the result of a method of the service, which uses the store."""
    return wire.progress_to_proto(await asyncio.to_thread(method, *arguments))
