"""Routes of what configs can name, and of the fleet: models, devices, groups that tune together."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from mistify.costs.devices import Device
from mistify_server.coordinator.service import TuningService
from mistify_server.devices.service import DeviceService
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.web.problems import responses


class GroupModel(BaseModel):
    """A group of devices that tune together."""

    name: str
    job: str
    batch: int
    correlation: str
    settings: Mapping[str, Any]


def fleet_routes(models: ModelRepository, devices: DeviceService, tuning: TuningService) -> APIRouter:
    """Return the routes over the services."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/models", responses=dict(responses()))
    async def model_names() -> list[str]:
        """List the models that configs can name, beside those of files and of libraries."""
        return await asyncio.to_thread(models.all_names)

    @router.get("/devices", responses=dict(responses()))
    async def measured_devices() -> list[Device]:
        """List the devices that were measured."""
        return await asyncio.to_thread(devices.devices)

    @router.get("/groups", responses=dict(responses()))
    async def groups() -> list[GroupModel]:
        """List the groups of devices that tune together."""
        kept = await asyncio.to_thread(tuning.groups)
        return [
            GroupModel(
                name=group.name,
                job=group.job_id,
                batch=group.batch,
                correlation=group.correlation,
                settings=group.settings,
            )
            for group in kept
        ]

    return router
