"""The route for reports, which are pages to save or send."""

import asyncio

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from mistify.errors import ErrorCode
from mistify_server.jobs.service import PortingService
from mistify_server.web.pages.report_page import report_page, report_policy
from mistify_server.web.problems import responses


def report_routes(service: PortingService) -> APIRouter:
    """Return the route to a service."""
    router = APIRouter(prefix="/v1", tags=["jobs"])

    @router.get(
        "/jobs/{job_id}/report.html",
        response_class=HTMLResponse,
        responses=dict(responses(ErrorCode.NOT_FOUND, ErrorCode.INVALID_CONFIG)),
    )
    async def report(job_id: str) -> HTMLResponse:
        """Return the current state of a job with all its goals as a self-contained page."""
        part = await service.part(job_id)
        page = await asyncio.to_thread(report_page, part.job)
        policy = f"{report_policy()}; frame-ancestors 'none'"
        return HTMLResponse(page, headers={"content-security-policy": policy})

    return router
