"""Bodies of requests, which are limited in memory."""

from fastapi import Request

from mistify.errors import ErrorCode, MistifyError
from mistify.wire.limits import MAX_MESSAGE_BYTES


async def bounded_body(request: Request, most: int, advice: str) -> bytes:
    """Return the body of a request, whatever length it declares.

    Args:
        request: A request whose body has not been read.
        most: The largest number of bytes.
        advice: Advice for callers that send more.

    Raises:
        MistifyError: INVALID_CONFIG, it is larger.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            message = f"got a body of more than {most:,} bytes; {advice}"
            raise MistifyError(ErrorCode.INVALID_CONFIG, message)
    return bytes(content)


async def config_text(request: Request) -> str:
    """Return the text of a config that a request has.

    Raises:
        MistifyError: INVALID_CONFIG, it is too large, or no UTF-8.
    """
    content = await bounded_body(request, MAX_MESSAGE_BYTES, "split the config into several jobs")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, f"the config is not valid UTF-8 ({error}); save it in that encoding"
        ) from error
