"""Routes for roll-outs of packages to the fleet."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from mistify.errors import ErrorCode
from mistify.rollouts import EVERY_DEVICE, NewRollout, RolloutCriteria, RolloutProgress
from mistify_server.identity.tenants import ByTenant
from mistify_server.rollouts.service import RolloutService
from mistify_server.web.bodies import described_body, small_body
from mistify_server.web.problems import responses

_DEFAULT = RolloutCriteria()


class NewRolloutModel(BaseModel):
    """A roll-out to start: the package of a goal replaces the one that was shipped for the goal `package`.

    `devices` is a pattern for their names, and `stages` are shares of these devices, ascending to 1. The
    other fields are what a stage needs before the next one starts, and the limits beyond which the roll-out
    stops; `latency` is a multiple of that before, and null stands for no limit.
    """

    model_config = ConfigDict(extra="forbid")

    job_id: str
    goal_id: str
    package: str
    devices: str = EVERY_DEVICE
    stages: Annotated[list[float], Field(min_length=1)] = list(NewRollout.stages)
    after_seconds: float = _DEFAULT.after_seconds
    min_devices: int = _DEFAULT.devices
    errors: float = _DEFAULT.errors
    latency: float | None = _DEFAULT.latency
    agreement: float | None = _DEFAULT.agreement

    @property
    def new_rollout(self) -> NewRollout:
        """The roll-out."""
        criteria = RolloutCriteria(
            self.after_seconds, self.min_devices, self.errors, self.latency, self.agreement
        )
        return NewRollout(self.job_id, self.goal_id, self.package, self.devices, tuple(self.stages), criteria)


def rollout_routes(services: ByTenant[RolloutService]) -> APIRouter:
    """Return the routes to the roll-outs of the caller's tenant."""
    router = APIRouter(prefix="/v1/rollouts", tags=["roll-outs"])
    unknown, ended = responses(ErrorCode.NOT_FOUND), responses(ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)

    @router.get("", responses=dict(responses()))
    async def newest() -> list[RolloutProgress]:
        """List the newest roll-outs with the state of their devices, the last one first."""
        return await asyncio.to_thread((await services.ready()).newest)

    @router.post(
        "",
        status_code=201,
        responses=dict(responses(ErrorCode.INVALID_CONFIG, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)),
        openapi_extra=described_body(NewRolloutModel),
    )
    async def start(request: Request, response: Response) -> RolloutProgress:
        """Start a roll-out."""
        new = await small_body(request, NewRolloutModel)
        progress = await asyncio.to_thread((await services.ready()).start, new.new_rollout)
        response.headers["location"] = f"/v1/rollouts/{progress.rollout.id}"
        return progress

    @router.get("/{rollout_id}", responses=dict(unknown))
    async def rollout(rollout_id: str) -> RolloutProgress:
        """Return a roll-out with the state of its devices."""
        return await asyncio.to_thread((await services.ready()).get, rollout_id)

    @router.post("/{rollout_id}/pause", responses=dict(ended))
    async def pause(rollout_id: str) -> RolloutProgress:
        """Admit no further devices and stages; devices that have the package keep it."""
        return await asyncio.to_thread((await services.ready()).pause, rollout_id)

    @router.post("/{rollout_id}/resume", responses=dict(ended))
    async def resume(rollout_id: str) -> RolloutProgress:
        """Undo a pause; the minimum time of the stage starts again."""
        return await asyncio.to_thread((await services.ready()).resume, rollout_id)

    @router.post("/{rollout_id}/back", responses=dict(ended))
    async def back(rollout_id: str) -> RolloutProgress:
        """End a roll-out; its devices return to their previous package."""
        return await asyncio.to_thread((await services.ready()).roll_back, rollout_id)

    return router
