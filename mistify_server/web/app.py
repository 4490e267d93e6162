"""The application: the routes over the services, behind the checks of access."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from mistify.errors import ErrorCode
from mistify_server.coordinator.service import TuningService
from mistify_server.devices.service import DeviceService
from mistify_server.jobs.service import PortingService
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.store.uploads import Uploads
from mistify_server.web.access import COOKIE, SESSION_SECONDS, AccessMiddleware, Sessions, session_of
from mistify_server.web.fleet import fleet_routes
from mistify_server.web.jobs import job_routes
from mistify_server.web.pages.routes import page_routes
from mistify_server.web.problems import add_handlers, responses
from mistify_server.web.uploads import upload_routes


@dataclass(frozen=True)
class WebServices:
    """The services that the application is a face of; `ready` tells whether calls are answered."""

    porting: PortingService
    tuning: TuningService
    devices: DeviceService
    uploads: Uploads
    models: ModelRepository
    ready: Callable[[], bool]


class Login(BaseModel):
    """The token of the server."""

    token: str


def web_app(services: WebServices, token: str | None) -> FastAPI:
    """Return the application.

    Args:
        services: Under it.
        token: Of the server, None where it needs none.
    """
    sessions = Sessions(token)
    app = FastAPI(
        title="Mistify",
        version=version("mistify-porting"),
        description="Port a Keras model to goals: docs/config.md has the configs, docs/server.md the access.",
        docs_url=None,  # its pages are from elsewhere
        redoc_url=None,
    )
    app.add_middleware(AccessMiddleware, sessions=sessions)
    add_handlers(app)
    app.include_router(job_routes(services.porting))
    app.include_router(upload_routes(services.uploads))
    app.include_router(fleet_routes(services.models, services.devices, services.tuning))
    app.include_router(page_routes(services.porting, services.devices, services.tuning))
    app.include_router(_session_routes(sessions))
    app.include_router(_health_routes(services.ready))
    return app


def _session_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(prefix="/v1/session", tags=["session"])

    @router.post("", status_code=204, responses=dict(responses(ErrorCode.INVALID_CONFIG)))
    async def log_in(login: Login, request: Request, response: Response) -> None:
        """Begin a session of a browser: it gets a cookie that no script can read and no other site sends."""
        response.set_cookie(
            COOKIE,
            sessions.open(login.token),
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


def _health_routes(ready: Callable[[], bool]) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        """Tell that the server runs."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"description": "It starts or stops"}})
    async def answers(response: Response) -> dict[str, str]:
        """Tell whether jobs are taken."""
        response.status_code = 200 if ready() else 503
        return {"status": "ok" if ready() else "not ready"}

    return router
