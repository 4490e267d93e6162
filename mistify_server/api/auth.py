"""Access control: who calls, and whether they may."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError
from mistify_server.api.handlers import Stream, Unary, surrounded
from mistify_server.api.scopes import PUBLIC_SERVICES, SCOPES
from mistify_server.identity.audit import RECORDED, AuditLog
from mistify_server.identity.authentication import Authenticator, Credential, unauthenticated
from mistify_server.identity.callers import Caller, Scope, set_caller
from mistify_server.identity.open_calls import OpenCall, OpenCalls

_HEADER = "authorization"

#: What follows the last message of a stream.
_END = object()


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that refuses calls unless the caller's token has the scope that the call needs.

    It records calls that change something, and refused ones of known callers. Calls end with their token.
    """

    def __init__(self, authenticator: Authenticator, audit: AuditLog, calls: OpenCalls) -> None:
        self._authenticator = authenticator
        self._audit = audit
        self._calls = calls

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Pass a call on, or replace its handler by a refusal."""
        handler = await continuation(details)
        if handler is None or details.method.split("/")[1] in PUBLIC_SERVICES:
            return handler
        credential = _credential(details)
        try:
            caller = await self._authenticator.caller(credential)
            if caller is None:
                raise unauthenticated()
            scope = SCOPES.get(details.method)
            self._check(caller, scope, details.method)
        except MistifyError as error:
            # This works for every kind of method: it does not wait for the requests of a stream, which may
            # never come.
            return grpc.stream_unary_rpc_method_handler(partial(_refuse, error))
        audit = self._audit if scope in RECORDED else None
        begun = partial(self._calls.begun, credential)
        handled = partial(_handled, caller, begun, details.method.lstrip("/"), audit)
        return surrounded(handler, partial(_unary, handled), partial(_stream, handled))

    def _check(self, caller: Caller, scope: Scope | None, method: str) -> None:
        try:
            if scope is None:
                raise MistifyError(ErrorCode.PERMISSION_DENIED, f"nobody may call {method}")
            caller.check(scope)
        except MistifyError as error:
            self._audit.record(caller, method.lstrip("/"), outcome=error.code.name)
            raise


def _credential(details: Any) -> Credential | None:
    header = dict(details.invocation_metadata or ()).get(_HEADER, "")
    return Credential.of_header(header.decode(errors="replace") if isinstance(header, bytes) else header)


async def _refuse(error: MistifyError, _requests: Any, _context: Any) -> None:
    raise error


@contextmanager
def _handled(
    caller: Caller,
    begun: Callable[[], AbstractContextManager[OpenCall]],
    action: str,
    audit: AuditLog | None,
    request: Any,
) -> Iterator[tuple[OpenCall, list[Any]]]:
    """Handle a call within the block, and record it; the responses are added to the yielded list."""
    responses: list[Any] = []
    outcome = ErrorCode.CANCELLED.name
    set_caller(caller)
    try:
        with begun() as call:
            yield call, responses
        outcome = "OK"
    except MistifyError as error:
        outcome = error.code.name
        raise
    except Exception:
        outcome = ErrorCode.INTERNAL.name
        raise
    finally:
        if audit is not None:
            audit.record(caller, action, _subject(request, *responses), outcome)


def _unary(handled: Any, behaviour: Unary) -> Unary:
    async def wrapped(request: Any, context: Any) -> Any:
        with handled(request) as (call, responses):
            async with call.waiting():
                responses.append(await behaviour(request, context))
        return responses[0]

    return wrapped


def _stream(handled: Any, behaviour: Stream) -> Stream:
    async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
        with handled(request) as (call, _):
            messages = behaviour(request, context)
            while True:
                async with call.waiting():
                    message = await anext(messages, _END)
                if message is _END:
                    return
                yield message

    return wrapped


def _subject(*messages: Any) -> str:
    """Return the id of the job in the first message that has one, or a name; jobs have both."""
    names = (getattr(message, field, "") for field in ("job_id", "id", "name") for message in messages)
    return str(next(filter(None, names), ""))
