"""Translation of errors into problem details (RFC 9457), which happens only here."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPMethod, HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.positions import lines_of
from mistify.uploads import as_written
from mistify_server.web.rendering import render_page

MEDIA_TYPE: Final = "application/problem+json"

#: Status of requests whose callers have disconnected, as in nginx: it is never sent, but counted in metrics.
_GONE: Final = 499

_log = logging.getLogger(__name__)


class ProblemModel(BaseModel):
    """An error in the input: `place` is a JSON path of the config, or another part of the request.

    `line` is the line of the place in the config's text, if any.
    """

    place: str
    line: int | None
    value: str
    expected: str
    fix: str


class ProblemDetails(BaseModel):
    """An error: `code` is from the error catalogue, and `problems` lists all errors in the input."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    problems: list[ProblemModel]


class LocatedError(MistifyError):
    """An error in a config, with the line numbers of its problems."""

    def __init__(self, error: MistifyError, lines: Mapping[str, int]) -> None:
        super().__init__(error.code, error.message, error.problems)
        self.lines = lines


@asynccontextmanager
async def with_lines(text: str) -> AsyncIterator[None]:
    """Add line numbers to problems of a config raised in the block; finding them takes seconds."""
    try:
        yield
    except MistifyError as error:
        places = [problem.place for problem in error.problems]
        raise LocatedError(error, await asyncio.to_thread(lines_of, text, places)) from error


def problem_response(error: MistifyError, status: int | None = None) -> JSONResponse:
    """Return an error as a response."""
    status = status or error.code.http_status
    title = error.code.name.replace("_", " ").capitalize()
    lines = error.lines if isinstance(error, LocatedError) else {}
    problems = [
        ProblemModel(
            place=each.place,
            line=lines.get(each.place),
            value=as_written(each.value),
            expected=each.expected,
            fix=each.fix,
        )
        for each in error.problems
    ]
    content = ProblemDetails(
        type=f"urn:mistify:error:{error.code.name}",
        title=title,
        status=status,
        detail=as_written(error.message),
        code=error.code.name,
        problems=problems,
    )
    headers = {"www-authenticate": "Bearer"} if status == ErrorCode.UNAUTHENTICATED.http_status else {}
    return JSONResponse(content.model_dump(), status, headers, MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Make an application respond to all errors with problem details."""
    app.exception_handler(MistifyError)(_expected)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_of_http)
    app.exception_handler(ClientDisconnect)(_gone)
    app.exception_handler(Exception)(_unexpected)


def wants_page(headers: Headers) -> bool:
    """Check whether a request is a page navigation in a browser."""
    return "text/html" in headers.get("accept", "")


def responses(*codes: ErrorCode) -> Mapping[int | str, dict[str, Any]]:
    """Return the OpenAPI description of errors, including those common to all routes."""
    statuses = {code.http_status for code in (*codes, ErrorCode.UNAUTHENTICATED)}
    statuses |= {HTTPStatus.FORBIDDEN.value, HTTPStatus.UNPROCESSABLE_ENTITY.value}
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    return {
        status: {"description": "A problem", "model": ProblemDetails, "content": {MEDIA_TYPE: schema}}
        for status in sorted(statuses)
    }


async def _expected(request: Request, error: MistifyError) -> Response:
    return error_response(request, error)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    problems = [
        Problem(".".join(map(str, each["loc"])), repr(each["input"])[:200], each["msg"], "see /openapi.json")
        for each in error.errors()
    ]
    return problem_response(
        MistifyError(ErrorCode.INVALID_CONFIG, "the request cannot be read", problems),
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )


async def _of_http(request: Request, error: HTTPException) -> Response:
    code = (
        ErrorCode.NOT_FOUND
        if error.status_code == ErrorCode.NOT_FOUND.http_status
        else ErrorCode.INVALID_CONFIG
    )
    message = (
        f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists what can be requested"
    )
    response = error_response(request, MistifyError(code, message), error.status_code)
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=_GONE)


def _methods(request: Request) -> set[str]:
    """Return the methods of all routes for a request's path, of which some are within routers."""
    return {
        method
        for method in HTTPMethod
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    }


def error_response(request: Request, error: MistifyError, status: int | None = None) -> Response:
    """Return an error as a page for browsers, and as problem details for others."""
    if not wants_page(request.headers):
        return problem_response(error, status)
    title = error.code.name.replace("_", " ").capitalize()
    page = render_page(request, "problem.html", title=title, detail=as_written(str(error)))
    return HTMLResponse(page, status or error.code.http_status)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("a request failed", exc_info=error)
    message = "an internal error; see the server's log for details"
    return problem_response(MistifyError(ErrorCode.INTERNAL, message))
