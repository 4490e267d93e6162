"""Failures as problem details (RFC 9457); no other place turns them into HTTP."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.uploads import as_written

MEDIA_TYPE: Final = "application/problem+json"

_log = logging.getLogger(__name__)


class ProblemModel(BaseModel):
    """One error in the input: `place` is a JSON path of the config, or what else of the request is wrong."""

    place: str
    value: str
    expected: str
    fix: str


class ProblemDetails(BaseModel):
    """A failure; `code` is that of the catalogue, `problems` has every error of the input."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    problems: list[ProblemModel]


def problem_response(error: MistifyError, status: int | None = None) -> JSONResponse:
    """Return an error as an answer."""
    status = status or error.code.http_status
    title = error.code.name.replace("_", " ").capitalize()
    problems = [
        ProblemModel(place=each.place, value=as_written(each.value), expected=each.expected, fix=each.fix)
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
    """Let an application answer all failures with problem details."""
    app.exception_handler(MistifyError)(_expected)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_of_http)
    app.exception_handler(Exception)(_unexpected)


def responses(*codes: ErrorCode) -> Mapping[int | str, dict[str, Any]]:
    """Return the description of failures for OpenAPI; what every route can meet is among them."""
    statuses = {code.http_status for code in (*codes, ErrorCode.UNAUTHENTICATED)} | {
        HTTPStatus.FORBIDDEN.value
    }
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    return {
        status: {"description": "A problem", "model": ProblemDetails, "content": {MEDIA_TYPE: schema}}
        for status in sorted(statuses)
    }


async def _expected(request: Request, error: MistifyError) -> JSONResponse:
    return problem_response(error)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    problems = [
        Problem(".".join(map(str, each["loc"])), repr(each["input"])[:200], each["msg"], "see /openapi.json")
        for each in error.errors()
    ]
    return problem_response(MistifyError(ErrorCode.INVALID_CONFIG, "the request cannot be read", problems))


async def _of_http(request: Request, error: HTTPException) -> JSONResponse:
    code = (
        ErrorCode.NOT_FOUND
        if error.status_code == ErrorCode.NOT_FOUND.http_status
        else ErrorCode.INVALID_CONFIG
    )
    message = f"{request.method} {request.url.path}: {error.detail}; /openapi.json has what can be asked"
    response = problem_response(MistifyError(code, message), error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("a request failed", exc_info=error)
    message = "an error inside the server; its log has the details"
    return problem_response(MistifyError(ErrorCode.INTERNAL, message))
