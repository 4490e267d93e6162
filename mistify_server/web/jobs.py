"""Routes for jobs: submit, plan, list, watch, add goals, pause, cancel, remove."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import PlainTextResponse, StreamingResponse

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import GoalState, JobEvent, JobPriority, JobState, ProgressUpdate
from mistify.jobs.part import GoalSelection, JobPage, JobPart, part_of
from mistify.jobs.plan import Plan
from mistify_server.jobs.event_reads import EventRead
from mistify_server.jobs.removals import JobRemovals
from mistify_server.jobs.searching import MOST_SEARCHED, search_of
from mistify_server.jobs.service import PortingService
from mistify_server.names import MOST_KEY
from mistify_server.web.bodies import config_text, described_body, small_body
from mistify_server.web.node_data import GraphData, NodeFigure, node_data
from mistify_server.web.problems import responses, with_lines

#: Default and maximum number of goals in a response.
GOALS_PER_PAGE: Final = 1_000

_FIRST_GOALS: Final = GoalSelection(page_size=GOALS_PER_PAGE)

#: Interval of heartbeats in an idle stream, in seconds: proxies close idle connections.
_HEARTBEAT_SECONDS: Final = 15.0

_EVENT = TypeAdapter(JobEvent)

_INVALID = (ErrorCode.INVALID_CONFIG, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.UNAVAILABLE)
_REFUSED = (*_INVALID, ErrorCode.QUOTA_EXCEEDED)
_CONFIG = {
    "requestBody": {
        "required": True,
        "description": "A config, a list of configs, or the short form of goals: docs/config.md",
        "content": {
            "application/json": {
                "schema": {},
                "example": [
                    {
                        "id": "half",
                        "model": "digits-resnet",
                        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
                        "adaptation_goal": {"FLOP": "0.5x"},
                    }
                ],
            }
        },
    }
}

IdempotencyKey = Annotated[
    str, Header(max_length=MOST_KEY, description="A repeated key returns the same job")
]
PageSize = Annotated[int, Query(ge=1, le=GOALS_PER_PAGE, description="Maximum number of goals")]
After = Annotated[int, Query(ge=0, le=2**53, description="Number of the last received event")]
LastEventId = Annotated[int, Header(ge=0, le=2**53, description="The same, as sent by browsers")]
PageToken = Annotated[
    str, Query(max_length=200, description="Token from the previous page; empty for the first page")
]


JobName = Annotated[str, Query(description="Name for people; it need not be unique")]
Priority = Annotated[JobPriority, Query(description="Which of several jobs goes first")]
JobTags = Annotated[list[str], Query(description="Words by which to find the job; repeatable")]
Search = Annotated[
    str,
    Query(
        max_length=MOST_SEARCHED,
        description="Text in the id, name, submitter or a tag, in any case; `tag:TAG` for a whole tag",
    ),
]
Removed = Annotated[bool, Query(description="The removed jobs instead of the others")]


class ChangedJob(BaseModel):
    """The new name of a job, empty for none, its tags and priority; what is absent does not change."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    tags: list[str] | None = None
    priority: JobPriority | None = None


class Removal(BaseModel):
    """The result of removing a job: bytes freed, and until when it can be undone, in ms since 1970."""

    freed_bytes: int = 0
    undo_until_unix_ms: int | None = None


def job_routes(service: PortingService, removals: JobRemovals) -> APIRouter:
    """Return the routes to the jobs of a service."""
    router = APIRouter(prefix="/v1", tags=["jobs"])

    @router.post("/jobs", status_code=201, responses=dict(responses(*_REFUSED)), openapi_extra=_CONFIG)
    async def submit(
        request: Request,
        response: Response,
        idempotency_key: IdempotencyKey = "",
        name: JobName = "",
        tag: JobTags = (),  # type: ignore[assignment]
        *,
        priority: Priority = JobPriority.NORMAL,
    ) -> JobPart:
        """Check all configs and start a job for them."""
        text = await config_text(request)
        async with with_lines(text):
            job = await service.submit(text, idempotency_key, name, tag, priority)
        response.headers["location"] = f"/v1/jobs/{job.id}"
        return part_of(job, _FIRST_GOALS)

    @router.post("/plans", responses=dict(responses(*_INVALID)), openapi_extra=_CONFIG)
    async def plan(request: Request) -> Plan:
        """Predict the result of a batch of configs, without storing or starting anything."""
        text = await config_text(request)
        async with with_lines(text):
            return await service.plan(text)

    @router.get("/jobs", responses=dict(responses(ErrorCode.INVALID_CONFIG, ErrorCode.NOT_FOUND)))
    async def jobs(
        page_size: Annotated[int, Query(ge=1, le=100, description="Maximum number of jobs")] = 100,
        page_token: PageToken = "",
        search: Search = "",
        removed: Removed = False,
    ) -> JobPage:
        """List jobs without their goals, newest first."""
        return await service.jobs(page_size, page_token, GoalSelection(), search_of(search, removed=removed))

    @router.get("/jobs/{job_id}", responses=dict(responses(*_INVALID)))
    async def job(
        job_id: str, page_size: PageSize = GOALS_PER_PAGE, page_token: PageToken = "", goal_id: str = ""
    ) -> JobPart:
        """Return a job with a page of its goals, or with one goal."""
        return await service.part(job_id, GoalSelection(goal_id, page_size, page_token))

    _add_changing_routes(router, service)
    _add_removing_routes(router, removals)
    _add_detail_routes(router, service)
    return router


def _add_changing_routes(router: APIRouter, service: PortingService) -> None:
    """Add the routes that rename, tag, prioritize, extend, pause and cancel a job."""

    @router.patch(
        "/jobs/{job_id}",
        status_code=204,
        responses=dict(responses(*_INVALID)),
        openapi_extra=described_body(ChangedJob),
    )
    async def change(job_id: str, request: Request) -> None:
        """Give a job another name, other tags or another priority."""
        changed = await small_body(request, ChangedJob)
        await service.change(job_id, changed.name, changed.tags, changed.priority)

    @router.post("/jobs/{job_id}/goals", responses=dict(responses(*_REFUSED)), openapi_extra=_CONFIG)
    async def add_goals(job_id: str, request: Request, idempotency_key: IdempotencyKey = "") -> JobPart:
        """Add all or none of the goals to a job; a finished job continues."""
        text = await config_text(request)
        async with with_lines(text):
            await service.add_goals(job_id, text, idempotency_key)
        return await service.part(job_id, _FIRST_GOALS)

    @router.post("/jobs/{job_id}/cancel", responses=dict(responses(*_INVALID)))
    async def cancel(job_id: str) -> JobPart:
        """Stop a job; met goals keep their packages."""
        await service.cancel(job_id)
        return await service.part(job_id, GoalSelection())

    @router.post("/jobs/{job_id}/pause", responses=dict(responses(*_INVALID)))
    async def pause(job_id: str) -> JobPart:
        """Let a job start no further steps; those in progress end first."""
        await service.pause(job_id)
        return await service.part(job_id, GoalSelection())

    @router.post("/jobs/{job_id}/resume", responses=dict(responses(*_INVALID)))
    async def resume(job_id: str) -> JobPart:
        """Let a paused job continue."""
        await service.resume(job_id)
        return await service.part(job_id, GoalSelection())


def _add_removing_routes(router: APIRouter, removals: JobRemovals) -> None:
    """Add the routes that remove and restore a job."""

    @router.delete("/jobs/{job_id}", responses=dict(responses(*_INVALID)))
    async def remove(
        job_id: str,
        now: Annotated[bool, Query(description="Remove its files at once, which cannot be undone")] = False,
    ) -> Removal:
        """Remove a finished job from the lists, and a day later with its packages."""
        if now:
            return Removal(freed_bytes=await removals.remove(job_id))
        return Removal(undo_until_unix_ms=await removals.hide(job_id))

    @router.post("/jobs/{job_id}/restore", status_code=204, responses=dict(responses(*_INVALID)))
    async def restore(job_id: str) -> None:
        """Restore a removed job."""
        await removals.restore(job_id)


def _add_detail_routes(router: APIRouter, service: PortingService) -> None:
    """Add the routes for the config and the events of a job, and for the details of a goal."""

    @router.get(
        "/jobs/{job_id}/config",
        response_class=PlainTextResponse,
        responses={**responses(*_INVALID), 200: {"content": {"text/plain": {}}}},
    )
    async def config(job_id: str) -> PlainTextResponse:
        """Return the config with which a job was submitted, without goals that were added later."""
        return PlainTextResponse(await service.config_text(job_id))

    @router.get("/jobs/{job_id}/goals/{goal_id}/details", responses=dict(responses(*_INVALID)))
    async def details(job_id: str, goal_id: str) -> GoalDetails:
        """Return the layers and operators of a goal's network, and its training curve."""
        return await service.details(job_id, goal_id)

    @router.get(
        "/jobs/{job_id}/goals/{goal_id}/node-data/{figure}.json", responses=dict(responses(*_INVALID))
    )
    async def values_of_operators(job_id: str, goal_id: str, figure: NodeFigure) -> dict[str, GraphData]:
        """Return a figure of each operator of a goal's network as node data for Model Explorer."""
        return node_data(goal_id, await service.details(job_id, goal_id), figure)

    @router.get(
        "/jobs/{job_id}/events",
        response_class=StreamingResponse,
        responses={**responses(*_INVALID), 200: {"content": {"text/event-stream": {}}}},
    )
    async def events(job_id: str, after: After = 0, last_event_id: LastEventId = 0) -> StreamingResponse:
        """Send every event after a sequence number, then new events as they occur, until the job ends."""
        await service.part(job_id, GoalSelection())  # report an unknown job before the stream begins
        stream = _server_sent(service.watch(job_id, max(after, last_event_id)))
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"cache-control": "no-store"}
        )


async def _server_sent(events: AsyncIterator[EventRead]) -> AsyncIterator[str]:
    """Yield server-sent events, and comments as heartbeats."""
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=_HEARTBEAT_SECONDS)
            if not done:
                yield ": waiting\n\n"
                continue
            try:
                read = coming.result()
            except MistifyError:  # the response has begun: callers reconnect and then get the reason
                return
            if read is None:
                return
            yield "".join(map(_message, read.events))
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()


def _message(event: JobEvent) -> str:
    kinds: dict[type, str] = {JobState: "job", GoalState: "goal", ProgressUpdate: "progress"}
    data = json.dumps(_EVENT.dump_python(event, mode="json"))
    return f"id: {event.sequence}\nevent: {kinds[type(event.event)]}\ndata: {data}\n\n"
