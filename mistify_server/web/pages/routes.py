"""Routes for the web pages."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.channels import kept_channels
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Job, JobEvent
from mistify.jobs.part import GoalSelection, JobPart
from mistify.jobs.report import report
from mistify_server.jobs.searching import search_of
from mistify_server.jobs.served import serves_tasks
from mistify_server.services import Services
from mistify_server.store.plans import BatchInputs
from mistify_server.web.client import wheel_path
from mistify_server.web.client_wheel import client_wheel
from mistify_server.web.jobs import GOALS_PER_PAGE, PageToken, Removed, Search
from mistify_server.web.node_data import figures_of
from mistify_server.web.pages.curves import curves_of
from mistify_server.web.pages.goal_costs import costs_of
from mistify_server.web.pages.goal_fields import known_hardware, limit_titles
from mistify_server.web.pages.goal_tree import draw_tree
from mistify_server.web.pages.job_comparison import compare_jobs
from mistify_server.web.pages.job_table import job_table
from mistify_server.web.pages.layers import shown_layers
from mistify_server.web.pages.missed_goals import missed_goals
from mistify_server.web.pages.network_drawing import draw_network
from mistify_server.web.pages.plots import plots_of
from mistify_server.web.pages.progress import job_progress, progress_of
from mistify_server.web.pages.task_tables import task_table
from mistify_server.web.rendering import render_page

_DEVICES_PER_PAGE: Final = 100

#: An example config to start from.
_EXAMPLE: Final = """\
[
  // One goal for each class of devices; see docs/config.md.
  {
    "id": "phone",
    "model": "digits-resnet",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "adaptation_goal": {"FLOP": "0.5x"},
  },
]
"""


#: An example of a goal for an existing job.
_ADDED: Final = """\
[
  // Goals that name no model, dataset or algorithm have those of the job.
  {
    "id": "watch",
    "adaptation_goal": {"FLOP": "0.3x"},
  },
]
"""


def page_routes(services: Services) -> APIRouter:
    """Return the routes to the services."""
    porting = services.porting
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/")
    async def jobs(
        request: Request, page_token: PageToken = "", search: Search = "", removed: Removed = False
    ) -> HTMLResponse:
        wanted = search_of(search, removed=removed)
        page = await porting.jobs(50, page_token, GoalSelection(), wanted)
        return _page(request, "jobs.html", page=page, search=search, removed=removed)

    @router.get("/jobs/{job_id}")
    async def job(request: Request, job_id: str, page_token: PageToken = "") -> HTMLResponse:
        # Read the events first, so that the page misses none before it starts to listen.
        events = await porting.latest_events(job_id)
        part = await porting.part(job_id, GoalSelection(page_size=GOALS_PER_PAGE, page_token=page_token))
        # Render on a thread: this takes a fraction of a second for a thousand goals.
        inputs = await porting.inputs(job_id)
        return await asyncio.to_thread(_job_page, request, part, events, inputs)

    @router.get("/jobs/{job_id}/goals/{goal_id}")
    async def goal(request: Request, job_id: str, goal_id: str) -> HTMLResponse:
        # Read the details first, so that the rest is never older; later events bring newer data.
        details = await porting.details(job_id, goal_id)
        part = await porting.part(job_id, GoalSelection(goal_id=goal_id))
        if not part.job.goals:
            raise MistifyError(ErrorCode.NOT_FOUND, f'the job {job_id} has no goal "{goal_id}"')
        wheel = await asyncio.to_thread(_wheel)
        return _goal_page(request, part.job, details, wheel)

    @router.get("/submit")
    async def submit(request: Request, like: str = "") -> HTMLResponse:
        """Return the editor with an example, or with the config of another job."""
        return _page(request, "submit.html", text=await porting.config_text(like) if like else _EXAMPLE)

    @router.get("/jobs/{job_id}/add")
    async def add(request: Request, job_id: str) -> HTMLResponse:
        part = await porting.part(job_id, GoalSelection())
        return _page(
            request,
            "add.html",
            job=part.job,
            inputs=await porting.inputs(job_id),
            limits=limit_titles(),
            hardware=await known_hardware(services),
            text=_ADDED,
        )

    @router.get("/compare")
    async def compare(request: Request, before: str = "", after: str = "") -> HTMLResponse:
        listed = (await porting.jobs(50, "", GoalSelection())).jobs
        jobs = [(await porting.part(job_id)).job for job_id in (before, after) if before and after]
        # Render on a thread: this takes seconds for ten thousand goals.
        return await asyncio.to_thread(_comparison_page, request, listed, (before, after), jobs)

    _add_other_pages(router, services)
    return router


def _add_other_pages(router: APIRouter, services: Services) -> None:
    """Add the pages that show no job."""

    @router.get("/fleet")
    async def fleet(request: Request, page_token: PageToken = "") -> HTMLResponse:
        # On a thread: this goes through the whole fleet.
        return await asyncio.to_thread(_fleet_page, request, services, page_token)

    @router.get("/login")
    async def login(request: Request) -> HTMLResponse:
        return _page(request, "login.html")


def _page(request: Request, name: str, **shown: Any) -> HTMLResponse:
    return HTMLResponse(render_page(request, name, **shown))


def _job_page(
    request: Request, part: JobPart, events: Sequence[JobEvent], inputs: Sequence[BatchInputs]
) -> HTMLResponse:
    job = part.job
    return _page(
        request,
        "job.html",
        part=part,
        job=job,
        inputs=inputs,
        done=job_progress(job, part.goal_count, events),
        missed=missed_goals(job),
        table=job_table(job),
        plots=plots_of(job),
        tree=draw_tree(job.goals),
        tasks=task_table(job),
        serves_tasks=serves_tasks(job),
        last_event=events[-1].sequence,
        progress=progress_of(events),
    )


def _fleet_page(request: Request, services: Services, page_token: str) -> HTMLResponse:
    fleet = services.fleets.own
    reports, token = fleet.page(_DEVICES_PER_PAGE, page_token)
    return _page(
        request,
        "fleet.html",
        reports=reports,
        summary=fleet.summary(),
        rollouts=services.rollouts.own.newest(),
        next_page_token=token,
        devices=services.devices.devices(),
        groups=services.tuning.groups(),
    )


def _comparison_page(
    request: Request, parts: Sequence[JobPart], ids: tuple[str, str], jobs: Sequence[Job]
) -> HTMLResponse:
    """Return the page that compares two jobs.

    Args:
        parts: The jobs to choose from.
        ids: Ids of the chosen jobs; empty if none is chosen.
        jobs: The chosen jobs, if both are.
    """
    before, after = ids
    return _page(
        request,
        "compare.html",
        parts=parts,
        known={part.job.id for part in parts},
        before=before,
        after=after,
        compared=compare_jobs(*jobs) if jobs and before != after else None,
    )


def _wheel() -> str:
    """Return the path of the client's wheel; empty if the client is not installed."""
    try:
        return wheel_path(client_wheel())
    except MistifyError:
        return ""


def _goal_page(request: Request, job: Job, details: GoalDetails, wheel: str) -> HTMLResponse:
    """Return the page of the only goal of a part of a job.

    Args:
        details: The details of the goal.
        wheel: The path of the client's wheel; empty if there is none.
    """
    (goal,) = job.goals
    reported: dict[str, Any] = report(job)
    return _page(
        request,
        "goal.html",
        job=job,
        goal=goal,
        data=reported["goals"][0],
        source=job.source_of(goal),
        costs=costs_of(goal, job.source_of(goal), job.formats),
        formats=job.formats,
        details=details,
        curves=curves_of(goal, details, job.formats),
        layers=shown_layers(details.layers) if details.layers else None,
        network=draw_network(details.graph, kept_channels(details)) if details.graph else None,
        node_figures=figures_of(details),
        wheel=wheel,
    )
