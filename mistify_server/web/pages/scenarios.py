"""The page "Another scenario": networks for further tasks and limits, from a trained supernet."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistify.config.reading import parse_batch
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job
from mistify_server.services import Services
from mistify_server.web.bodies import bounded_body
from mistify_server.web.pages.goal_fields import known_hardware
from mistify_server.web.pages.scenario_form import ScenarioForm
from mistify_server.web.pages.task_tables import expected_table
from mistify_server.web.rendering import render_page

#: Maximum size of a form, which may name thousands of classes.
_MOST_BYTES: Final = 1_000_000

#: Fields of a form besides those of `ScenarioForm`: the number of its batch, and an idempotency key.
_BATCH: Final = "batch"
_KEY: Final = "key"

#: Browsers then send the origin of a form; without it, the server refuses the form.
_HEADERS: Final = {"referrer-policy": "same-origin"}


def scenario_routes(services: Services) -> APIRouter:
    """Return the routes to the services."""
    router = APIRouter(include_in_schema=False)

    @router.get("/jobs/{job_id}/scenarios", response_class=HTMLResponse)
    async def scenarios(request: Request, job_id: str) -> HTMLResponse:
        forms = await _forms(services, job_id, parse_qs(request.url.query))
        return await _page(request, services, job_id, forms)

    @router.post("/jobs/{job_id}/scenarios", response_class=HTMLResponse)
    async def add(request: Request, job_id: str) -> Response:
        content = await bounded_body(request, _MOST_BYTES, "choose fewer values")
        entered = parse_qs(content.decode(errors="replace"))
        forms = await _forms(services, job_id, entered)
        batch = _first(entered, _BATCH)
        if batch not in forms:
            raise MistifyError(ErrorCode.CONFLICT, f"the job {job_id} has no supernet for this form")
        try:
            config = forms[batch].config()
            await services.porting.add_goals(job_id, config, _first(entered, _KEY))
        except MistifyError as error:
            forms[batch] = forms[batch].with_problems(error)
            return await _page(request, services, job_id, forms, error.code.http_status)
        (goal,) = parse_batch(config, server_knows_more=True)
        return RedirectResponse(f"/jobs/{quote(job_id)}/goals/{quote(goal.id)}", 303)

    return router


async def _forms(
    services: Services, job_id: str, entered: Mapping[str, Sequence[str]]
) -> dict[str, ScenarioForm]:
    """Return the forms of a job by the numbers of their batches, one of them with the values entered."""
    batches = {str(each.number): each for each in await services.porting.served_batches(job_id)}
    own = _first(entered, _BATCH)
    return {number: ScenarioForm(each, entered if number == own else {}) for number, each in batches.items()}


async def _page(
    request: Request, services: Services, job_id: str, forms: Mapping[str, ScenarioForm], status: int = 200
) -> HTMLResponse:
    part = await services.porting.part(job_id)
    hardware = await known_hardware(services)
    page = await asyncio.to_thread(_rendered, request, part.job, [*forms.values()], hardware)
    return HTMLResponse(page, status, _HEADERS)


def _rendered(request: Request, job: Job, forms: Sequence[ScenarioForm], hardware: Sequence[str]) -> str:
    return render_page(
        request,
        "scenarios.html",
        job=job,
        forms=[(form, expected_table(job, form.batch)) for form in forms],
        hardware=hardware,
        key=secrets.token_urlsafe(16),
    )


def _first(entered: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(entered.get(name, ())), "")
