"""Request bodies with limited size."""

from fastapi import Request

from mistify.errors import ErrorCode, MistifyError
from mistify.wire.limits import MAX_MESSAGE_BYTES


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
