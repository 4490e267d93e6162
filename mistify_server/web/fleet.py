"""Routes for names in configs and for the fleet: models, devices, and tuning groups."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from mistify.costs.devices import Device
from mistify.fleet import DeviceReport
from mistify_server.fleet import MOST_DEVICES_PER_PAGE
from mistify_server.services import Services
from mistify_server.web.jobs import PageToken
from mistify_server.web.problems import responses


class GroupModel(BaseModel):
    """A group of devices that tune together."""

    name: str
    job: str
    batch: int
    correlation: str
    settings: Mapping[str, Any]


class FleetPage(BaseModel):
    """A page of devices that run packages, by name."""

    devices: list[DeviceReport]
    next_page_token: str


def fleet_routes(services: Services) -> APIRouter:
    """Return the routes to the services."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/models", responses=dict(responses()))
    async def model_names() -> list[str]:
        """List the models that configs can refer to by name, besides files and libraries."""
        return await asyncio.to_thread(services.models.all_names)

    @router.get("/devices", responses=dict(responses()))
    async def measured_devices() -> list[Device]:
        """List the measured devices of the caller's tenant."""
        return await asyncio.to_thread(services.devices.devices)

    @router.get("/fleet", responses=dict(responses()))
    async def fleet(
        page_size: Annotated[
            int, Query(ge=1, le=MOST_DEVICES_PER_PAGE, description="Maximum number of devices")
        ] = 100,
        page_token: PageToken = "",
    ) -> FleetPage:
        """List the devices that run packages with their monitors' last reports, by name."""
        fleet = await services.fleets.ready()
        reports, token = await asyncio.to_thread(fleet.page, page_size, page_token)
        return FleetPage(devices=list(reports), next_page_token=token)

    @router.get("/groups", responses=dict(responses()))
    async def groups() -> list[GroupModel]:
        """List the groups of devices that tune together."""
        kept = await asyncio.to_thread(services.tuning.groups)
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
