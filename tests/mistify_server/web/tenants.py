"""Two tenants of a server, the ids of what belongs to one of them, and every call that takes such an id."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import grpc
import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute

from mistify.peers.membership import SECRET_BYTES
from mistify.rollouts import NewRollout
from mistify.v1 import devices_pb2, porting_pb2, rollouts_pb2, tuning_pb2
from mistify.wire.rollouts import new_rollout_to_proto
from tests.support.calls import described_calls, outcome_of
from tests.support.fleets import PACKAGE

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4
SCALES = '{"location_km": 1, "time_hours": 24}'
CONTENT = b'{"x": [], "y": []}'
MOMENT = datetime(2026, 11, 29, tzinfo=UTC)


@dataclass(frozen=True)
class Ids:
    """Ids that a call or a route takes: those of a tenant's things, or unknown ones of the same form."""

    job: str
    rollout: str
    device: str
    group: str
    token: str
    upload: str
    goal: str = "phone-2"


UNKNOWN: Final = Ids(
    "20261125-120000-none", "20261125-120001-none", "no-board", "no-group", "nobody", "a" * 64
)

#: Calls without ids of things that belong to tenants. Page tokens and what configs name have tests below.
WITHOUT_IDS: Final = {
    "Porting": {"SubmitBatch", "Plan", "ListJobs", "GetSigningKeys", "GetCaller"},
    "Devices": {"RegisterDevice", "ListDevices", "ReportStatus"},
    "Rollouts": {"ListRollouts"},
    "Files": {"FindFiles", "UploadFile"},
    "Tuning": set(),
}

#: Calls that answer as for what is there, because those who repeat them must not fail.
ANSWERED: Final = {"/mistify.v1.Tuning/Leave"}


def requests(ids: Ids) -> dict[str, Any]:
    """Return a request for every call that takes an id."""
    of_job = {"job_id": ids.job}
    of_goal = {**of_job, "goal_id": ids.goal}
    key = tuning_pb2.MemberKey(group=ids.group, secret=b"s" * SECRET_BYTES)
    calls = {
        "Porting": {
            "GetJob": porting_pb2.GetJobRequest(**of_job),
            "WatchJob": porting_pb2.WatchJobRequest(**of_job),
            "GetGoalDetails": porting_pb2.GetGoalDetailsRequest(**of_goal),
            "FetchPackage": porting_pb2.FetchPackageRequest(**of_goal, file="manifest.json"),
            "FetchReport": porting_pb2.FetchReportRequest(**of_job),
            "GetConfig": porting_pb2.GetConfigRequest(**of_job),
            "AddGoals": porting_pb2.AddGoalsRequest(**of_job, config_json="[]", idempotency_key="k"),
            "CancelJob": porting_pb2.CancelJobRequest(**of_job),
            "PauseJob": porting_pb2.PauseJobRequest(**of_job),
            "ResumeJob": porting_pb2.ResumeJobRequest(**of_job),
            "ChangeJob": porting_pb2.ChangeJobRequest(**of_job, name="taken over"),
            "RemoveJob": porting_pb2.RemoveJobRequest(**of_job),
            "RestoreJob": porting_pb2.RestoreJobRequest(**of_job),
        },
        "Devices": {
            "ReportLatency": devices_pb2.ReportLatencyRequest(**of_goal, device=ids.device, median_ms=1.0),
        },
        "Rollouts": {
            "StartRollout": new_rollout_to_proto(NewRollout(ids.job, ids.goal, PACKAGE, stages=(1.0,))),
            "GetRollout": rollouts_pb2.RolloutId(id=ids.rollout),
            "PauseRollout": rollouts_pb2.RolloutId(id=ids.rollout),
            "ResumeRollout": rollouts_pb2.RolloutId(id=ids.rollout),
            "RollBack": rollouts_pb2.RolloutId(id=ids.rollout),
        },
        "Tuning": {
            "Join": tuning_pb2.JoinRequest(key=key),
            "Publish": tuning_pb2.PublishRequest(header=tuning_pb2.PublishHeader(key=key)),
            "Peers": tuning_pb2.PeersRequest(key=key, count=1),
            "Leave": tuning_pb2.LeaveRequest(key=key),
        },
    }
    return {
        f"/mistify.v1.{service}/{call}": request
        for service, named in calls.items()
        for call, request in named.items()
    }


#: Routes for everyone, without anything of a tenant.
PUBLIC_ROUTES: Final = ("/static/", "/simple/")
#: What routes take in paths, and in queries.
IN_PATHS: Final = {"job_id", "goal_id", "rollout_id", "sha256", "name", "figure"}
IN_QUERIES: Final = {"like", "before", "after", "page_token"}
NO_IDS_IN_QUERIES: Final = {"page_size", "search", "removed", "name", "tag", "priority", "now", "goal_id"}
#: Bodies of routes, without which they would refuse a request before they look for anything.
BODIES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("PATCH", "/v1/jobs/{job_id}"): {"json": {"name": "taken over"}},
    ("PATCH", "/v1/tokens/{name}"): {"json": {"max_jobs": 1}},
    ("POST", "/v1/jobs/{job_id}/goals"): {"content": "[]"},
    ("POST", "/jobs/{job_id}/scenarios"): {"content": "batch=0"},
}

#: Routes that answer as for an upload that nobody has sent, rather than with an error.
FILES: Final = "/v1/files/{sha256}"


def filled(path: str, ids: Ids) -> str:
    """Return the path of a route with ids."""
    name = "manifest.json" if "/files/" in path else ids.token
    return path.format(
        job_id=ids.job,
        goal_id=ids.goal,
        rollout_id=ids.rollout,
        sha256=ids.upload,
        name=name,
        figure="multiply-adds",
    )


def addressed(ids: Ids) -> list[tuple[str, str, dict[str, Any]]]:
    """Return requests with ids outside of their paths."""
    new = {"job_id": ids.job, "goal_id": ids.goal, "package": PACKAGE}
    return [
        ("GET", f"/submit?like={ids.job}", {}),
        ("GET", f"/compare?before={ids.job}&after={ids.job}", {}),
        ("GET", f"/v1/jobs?page_token={ids.job}", {}),
        ("GET", f"/?page_token={ids.job}", {}),
        ("DELETE", f"/v1/jobs/{ids.job}?now=true", {}),
        ("POST", "/v1/rollouts", {"json": new}),
    ]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@dataclass(frozen=True)
class Tenants:
    """A server of two tenants, of which only one has anything, with their tokens.

    Attributes:
        ids: Ids of what `red` has.
        app: The web application.
    """

    address: str
    channel: grpc.aio.Channel
    web: httpx.AsyncClient
    app: FastAPI
    red: str
    blue: str
    ids: Ids

    async def called(self, path: str, request: Any, secret: str) -> tuple[grpc.StatusCode, str]:
        """Return the status and the message of a call."""
        method = described_calls()[path]
        return await outcome_of(self.channel, path, method, request.SerializeToString(), secret)

    async def requested(self, method: str, path: str, secret: str, **body: Any) -> tuple[int, str]:
        """Return the status and the text of a response."""
        answer = await self.web.request(method, path, headers=bearer(secret), **body)
        return answer.status_code, answer.text

    def with_path_parameters(self) -> list[tuple[str, str]]:
        """Return the methods and the paths of all routes with parameters in the path."""
        return [
            (method, route.path)
            for route in self.routes()
            for method in sorted(route.methods)
            if "{" in route.path and not route.path.startswith(PUBLIC_ROUTES)
        ]

    def routes(self) -> Iterator[APIRoute]:
        """Yield all routes, those of pages as well."""
        return routes_of(self.app)


def routes_of(router: Any) -> Iterator[APIRoute]:
    """Yield the routes of a router, and of those that it includes."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif included := getattr(route, "original_router", None):
            yield from routes_of(included)


def as_for(text: str, ids: Ids) -> str:
    """Return a text with unknown ids in place of those of a tenant."""
    for own, unknown in zip(vars(ids).values(), vars(UNKNOWN).values(), strict=True):
        text = text.replace(own, unknown)
    return text
