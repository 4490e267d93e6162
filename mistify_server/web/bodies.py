"""Request bodies with limited size."""

from typing import Any, Final, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from mistify.errors import ErrorCode, MistifyError
from mistify.wire.limits import MAX_MESSAGE_BYTES

#: Maximum size of a body that is neither a config nor a file, in bytes.
_MOST_SMALL_BYTES: Final = 65_536

_Model = TypeVar("_Model", bound=BaseModel)


def described_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a route whose body is read by `small_body`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)  # responses describe them
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


async def small_body(request: Request, model: type[_Model], most: int = _MOST_SMALL_BYTES) -> _Model:
    """Return the body of a request as a model; FastAPI itself would read a body of any size into memory.

    Args:
        most: Maximum size in bytes.

    Raises:
        MistifyError: INVALID_CONFIG, the body is larger.
        RequestValidationError: The body is not JSON of the model.
    """
    body = await bounded_body(request, most, f"send only {', '.join(model.model_fields)}")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


async def bounded_body(request: Request, most: int, advice: str) -> bytes:
    """Return the body of a request, with a limit independent of its declared length.

    Args:
        request: A request whose body has not been read.
        most: Maximum size in bytes.
        advice: Advice for callers that exceed the limit.

    Raises:
        MistifyError: INVALID_CONFIG, the body is larger.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            message = f"got a body of more than {most:,} bytes; {advice}"
            raise MistifyError(ErrorCode.INVALID_CONFIG, message)
    return bytes(content)


async def config_text(request: Request) -> str:
    """Return the config text in a request.

    Raises:
        MistifyError: INVALID_CONFIG, the text is too large or not UTF-8.
    """
    content = await bounded_body(request, MAX_MESSAGE_BYTES, "split the config into several jobs")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, f"the config is not valid UTF-8 ({error}); save it as UTF-8"
        ) from error
