"""The web application: routes to the services, behind access control."""

import asyncio
from collections.abc import Collection
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from mistify.errors import ErrorCode, MistifyError
from mistify.quotas import CallerStatus
from mistify.version import installed_version
from mistify_server.health import StoreHealth
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.services import Services
from mistify_server.usage import UsageService
from mistify_server.web.access import AccessMiddleware
from mistify_server.web.asset_routes import asset_routes
from mistify_server.web.bodies import described_body, small_body
from mistify_server.web.client import client_routes
from mistify_server.web.compression import PageCompressionMiddleware
from mistify_server.web.cut_off import CutOffMiddleware
from mistify_server.web.fleet import fleet_routes
from mistify_server.web.jobs import job_routes
from mistify_server.web.metrics import TimingMiddleware, metrics_routes
from mistify_server.web.packages import package_routes
from mistify_server.web.pages.routes import page_routes
from mistify_server.web.pages.scenarios import scenario_routes
from mistify_server.web.problems import add_handlers, responses
from mistify_server.web.reports import report_routes
from mistify_server.web.rollouts import rollout_routes
from mistify_server.web.sessions import COOKIE, SESSION_SECONDS, Sessions, session_of
from mistify_server.web.tokens import token_pages, token_routes
from mistify_server.web.tracing import TracingMiddleware
from mistify_server.web.uploads import upload_routes


class Login(BaseModel):
    """A login with a token."""

    token: str


#: Maximum size of a login, which comes from unauthenticated callers.
_MOST_LOGIN_BYTES: Final = 4_096


def web_app(services: Services, origins: Collection[str] = ()) -> FastAPI:
    """Return the web application.

    Args:
        origins: Origins at which browsers reach the server through a proxy.

    Raises:
        MistifyError: UNAUTHENTICATED, there are origins and no token.
    """
    sessions = Sessions(services.access.authenticator)
    if origins and not sessions.token_required:
        raise MistifyError(
            ErrorCode.UNAUTHENTICATED,
            f"got the origin {next(iter(origins))}, at which others reach the server through a proxy, "
            "but no token; add --token-file FILE",
        )
    routers = (
        job_routes(services.porting, services.removals),
        package_routes(services.porting, services.packages),
        report_routes(services.porting),
        upload_routes(services.uploads),
        fleet_routes(services),
        rollout_routes(services.rollouts),
        page_routes(services),
        scenario_routes(services),
        asset_routes(),
        client_routes(),
        token_routes(services.access.tokens, services.usage),
        token_pages(services.access.tokens, services.usage),
        _session_routes(sessions),
        _caller_routes(services.usage),
        _health_routes(services.health, services.jobs),
        metrics_routes(services.metrics.registry),
    )
    app = FastAPI(
        # Not include_router, which makes each route's schemas once more at its first request.
        routes=[route for router in routers for route in router.routes],
        title="Mistify",
        version=installed_version(),
        description="Port a Keras model to goals. See docs/config.md for configs, docs/access.md for access.",
        docs_url=None,  # its pages load files from other sites
        redoc_url=None,
    )
    app.add_middleware(PageCompressionMiddleware)
    if services.traces.enabled:
        app.add_middleware(TracingMiddleware, traces=services.traces)
    own = services.access
    app.add_middleware(AccessMiddleware, sessions=sessions, audit=own.audit, calls=own.calls, origins=origins)
    app.add_middleware(CutOffMiddleware)
    app.add_middleware(TimingMiddleware, metrics=services.metrics)
    add_handlers(app)
    return app


def _session_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(prefix="/v1/session", tags=["session"])

    @router.post(
        "",
        status_code=204,
        responses=dict(responses(ErrorCode.INVALID_CONFIG)),
        openapi_extra=described_body(Login),
    )
    async def log_in(request: Request, response: Response) -> None:
        """Start a browser session; its cookie is hidden from scripts and not sent in cross-site requests."""
        login = await small_body(request, Login, _MOST_LOGIN_BYTES)
        response.set_cookie(
            COOKIE,
            await sessions.open(login.token),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    @router.delete("", status_code=204, responses=dict(responses()))
    async def log_out(request: Request, response: Response) -> None:
        """End the session."""
        sessions.close(session_of(request.headers))
        response.delete_cookie(COOKIE)

    return router


def _caller_routes(usage: UsageService) -> APIRouter:
    router = APIRouter(prefix="/v1/caller", tags=["session"])

    @router.get("", responses=dict(responses()))
    async def who_am_i(request: Request) -> CallerStatus:
        """Report the caller's name, tenant and scopes, the limits, and what the caller uses."""
        return await asyncio.to_thread(usage.status, request.state.caller)

    return router


def _health_routes(store: StoreHealth, jobs: RunningJobs) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def is_alive() -> dict[str, str]:
        """Report that the server is running: `ok`, or `unhealthy` while its database cannot be reached."""
        return {"status": "ok" if store.reachable else "unhealthy"}

    @router.get("/readyz", responses=dict(responses(ErrorCode.UNAVAILABLE)))
    async def is_ready() -> dict[str, str]:
        """Report whether jobs are accepted: the store can be read, and the server is not stopping."""
        if jobs.stopping:
            raise MistifyError(ErrorCode.UNAVAILABLE, "the server is stopping; use another one")
        await store.check()
        return {"status": "ok"}

    return router
