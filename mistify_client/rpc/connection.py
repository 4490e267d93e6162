"""The connection to a server: calls with deadlines, streams, and errors as `MistifyError`s."""

import os
import re
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.times import moment
from mistify.wire.address import EXPECTED, TLS, is_address, is_on_this_machine
from mistify.wire.errors import attached_error
from mistify.wire.limits import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from mistify_client.rpc.trust import (
    CA,
    CERTIFICATE,
    KEY,
    asks_for_certificate,
    own_certificate,
    speaks_tls,
    trusted_certificates,
)

#: In the details of a gRPC error: the certificate is not trusted, or belongs to another server.
_BAD_CERTIFICATE = re.compile("CERTIFICATE_VERIFY_FAILED|Hostname Verification Check failed")

#: In such details: a certificate is not valid at this time.
_UNTIMELY_CERTIFICATE = re.compile("certificate (is not yet valid|has expired)")

#: In the details of a gRPC error: the address says tls://, but the server does not use TLS.
_NO_TLS = "WRONG_VERSION_NUMBER"

#: The environment variable with a trace context, and its form.
_TRACEPARENT = "TRACEPARENT"
_TRACE = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

#: Bypasses the proxy of the environment, for addresses on this machine.
DIRECTLY = (("grpc.enable_http_proxy", 0),)

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    # Reconnect quickly to a restarted server.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Detect a server that vanished without closing the connection; servers reject more frequent pings than
    # every 5 minutes.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.http2.max_pings_without_data", 0),
)

#: Maximum delay until a signal is noticed: a signal just before the wait, or in another thread, does not
#: interrupt the wait.
_WAKE_UP_SECONDS = 0.2


class UnansweredError(MistifyError):
    """Error of a call without a timely response: the server may have executed it, or may still do so."""


@dataclass
class Traffic:
    """Bytes of sent and received messages, without gRPC framing."""

    sent: int = 0
    received: int = 0

    def sending(self, request: Any) -> Any:
        """Count a request, or each request of an iterator, when it is sent; return it."""
        if isinstance(request, Iterator):
            return map(self.sending, request)
        self.sent += request.ByteSize()
        return request

    def receiving(self, message: Any) -> Any:
        """Count a received message, and return it."""
        self.received += message.ByteSize()
        return message


class _PendingCall:
    """A call that one thread starts and another cancels, in either order.

    An interrupt can reach the caller before the starting thread has handed over the call. Therefore each side
    sets its own flag before it checks the other's: one of them cancels the call.

    Attributes:
        error: The error of the requests that ended the call.
    """

    def __init__(self) -> None:
        self._call: Any = None
        self._cancelled = False
        self.error: Exception | None = None

    def begin(self, method: Callable[..., Any], *args: object, **options: object) -> Any:
        """Start the call and return it."""
        self._call = call = method(*args, **options)
        if self._cancelled:
            call.cancel()
        return call

    def cancel(self) -> None:
        """Cancel the call, now or as soon as it has started; a finished call is not affected."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def cancelled_by(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Yield requests, and cancel the call if they fail: gRPC would take that for an answer."""
        try:
            yield from requests
        except Exception as error:
            self.error = error
            self.cancel()


def open_channel(
    address: str, certificates: Callable[[], bytes | None], options: Sequence[tuple[str, int]]
) -> grpc.Channel:
    """Return a channel to a server, which connects at the first call.

    With TLS, it presents the client's own certificate if there is one.

    Args:
        address: `host:port`, or `tls://host:port`.
        certificates: Returns the certificates to trust with TLS; None for gRPC's default list.
        options: Names of gRPC's channel options with their values.

    Raises:
        MistifyError: INVALID_CONFIG, the files of the client's own certificate cannot be used; or raised by
            `certificates`.
    """
    options = [*options, *(DIRECTLY if is_on_this_machine(address) else ())]
    if not address.startswith(TLS):
        return grpc.insecure_channel(address, options=options)
    chain, key = own_certificate() or (None, None)
    credentials = grpc.ssl_channel_credentials(certificates(), key, chain)
    return grpc.secure_channel(address.removeprefix(TLS), credentials, options=options)


class Connection:
    """A connection to the server at one address; opened on the first call.

    Calls run on separate threads, for which the caller's thread only waits. Otherwise Ctrl-C could interrupt
    a call while it starts, and gRPC would wait for its end forever.

    A trace context in the environment (`TRACEPARENT`) is sent with every call, so that the server's traces
    continue that of whatever started this process.

    Args:
        address: `host:port` of the server, or `tls://host:port`.
        token: Sent with every call as `authorization: Bearer TOKEN`.

    Raises:
        MistifyError: INVALID_CONFIG, it is not an address.
    """

    def __init__(self, address: str, token: str | None) -> None:
        if not is_address(address):
            problem = Problem("server", f'"{address}"', EXPECTED, "correct it")
            raise invalid_config([problem], "the connection")
        self.address = address
        self.traffic = Traffic()
        self._closed = False
        self._metadata = tuple(_metadata(token))

    @cached_property
    def channel(self) -> grpc.Channel:
        """Return the gRPC channel.

        Raises:
            MistifyError: INVALID_CONFIG, a file of trusted certificates, or of the client's own one, cannot
                be used.
        """
        return open_channel(self.address, trusted_certificates, CHANNEL_OPTIONS)

    def close(self) -> None:
        """Cancel all calls; later calls fail, too."""
        self._closed = True
        self.channel.close()

    def call(self, method: Any, request: object, seconds: float) -> Any:
        """Return the response to one request; an interrupt of the caller cancels the call.

        Args:
            method: A method of a stub with a single response.
            request: A message, or an iterator of messages, whose error is raised.
            seconds: Time until the deadline.
        """
        pending = _PendingCall()
        with self._translated():
            sending = self.traffic.sending(request)
            if isinstance(sending, Iterator):
                sending = pending.cancelled_by(sending)
            try:
                call = _wait_for(
                    pending.begin, method.future, sending, timeout=seconds, metadata=self._metadata
                )
                answer = _wait_for(call.result)
            except grpc.FutureCancelledError as error:
                raise (pending.error or error) from None
            finally:
                pending.cancel()
            if pending.error is not None:  # an answer to the part that was sent came before the cancellation
                raise pending.error
        return self.traffic.receiving(answer)

    def stream(self, method: Callable[..., Any], request: object) -> Iterator[Any]:
        """Yield the streamed responses to one request; closing the iterator cancels the call."""
        pending = _PendingCall()
        with self._translated():
            sending = self.traffic.sending(request)
            try:
                call = _wait_for(pending.begin, method, sending, metadata=self._metadata)
                while (message := _wait_for(next, call, None)) is not None:
                    yield self.traffic.receiving(message)
            finally:
                pending.cancel()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Convert the error of a failed call to a `MistifyError`."""
        try:
            yield
        except grpc.RpcError as error:
            raise _error_of(error, self.address) from error
        except ValueError as error:
            if not self._closed:
                raise
            message = f"the connection to {self.address} was closed"
            raise MistifyError(ErrorCode.CANCELLED, message) from error


def _metadata(token: str | None) -> Iterator[tuple[str, str]]:
    if token is not None:
        yield "authorization", f"Bearer {token}"
    position = os.environ.get(_TRACEPARENT, "")
    if _TRACE.fullmatch(position):
        yield "traceparent", position


def _wait_for(function: Callable[..., Any], *args: object, **options: object) -> Any:
    """Return the result of a function that runs on a separate thread; an interrupt only ends the wait.

    Starting the thread and waiting for the queue are single interpreter operations. `threading` and
    `concurrent.futures` use locks that an interrupt can leave locked: the thread would wait for them
    forever, and the interpreter for the thread.
    """
    outcomes: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    start_new_thread(_put_outcome, (outcomes, partial(function, *args, **options)))
    while True:
        try:
            value, error = outcomes.get(timeout=_WAKE_UP_SECONDS)
        except Empty:
            continue
        if error is not None:
            raise error
        return value


def _put_outcome(
    outcomes: SimpleQueue[tuple[Any, BaseException | None]], function: Callable[[], Any]
) -> None:
    try:
        outcomes.put((function(), None))
    except BaseException as error:
        outcomes.put((None, error))


def _error_of(call: grpc.RpcError, address: str) -> MistifyError:
    if (attached := attached_error(call.trailing_metadata())) is not None:
        return attached
    match call.code():
        case grpc.StatusCode.UNAVAILABLE if (error := _tls_error(call, address)) is not None:
            return error
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return MistifyError(
                ErrorCode.UNAVAILABLE,
                f"no server answers at {address} ({call.details()}); check the address, or start one: "
                f"mistify-server serve --store DIR --data-root DIR --listen {address.removeprefix(TLS)}",
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return UnansweredError(
                ErrorCode.UNAVAILABLE, f"the server at {address} did not respond in time; try again later"
            )
        case status:
            return MistifyError(
                ErrorCode.INTERNAL, f"the server at {address} failed with {status.name}: {call.details()}"
            )


def _tls_error(call: grpc.RpcError, address: str) -> MistifyError | None:
    """Return the error if client and server do not agree on TLS or on certificates; None if they do."""
    details = call.details() or ""
    if untimely := _UNTIMELY_CERTIFICATE.search(details):
        return MistifyError(
            ErrorCode.UNAUTHENTICATED,
            f"the server at {address} did not prove its identity: its certificate {untimely[1]} by the clock "
            f"of this machine, which shows {moment(time.time() * 1000)}; correct the clock, or renew the "
            "certificate",
        )
    if _BAD_CERTIFICATE.search(details):
        return MistifyError(
            ErrorCode.UNAUTHENTICATED,
            f"the server at {address} did not prove its identity ({details}); name the "
            f"authority's certificate by --ca FILE (or in {CA}), and the server as its certificate does",
        )
    if address.startswith(TLS) and asks_for_certificate(address.removeprefix(TLS)):
        valid = "" if own_certificate() is None else ", and valid by the clock of the server,"
        return MistifyError(
            ErrorCode.UNAUTHENTICATED,
            f"the server at {address} asks for a certificate of its clients; give one of the authority "
            f"that it trusts{valid} by --certificate FILE and --key FILE (or in {CERTIFICATE} and {KEY})",
        )
    if _is_addressed_wrongly(call, address):
        other = address.removeprefix(TLS) if address.startswith(TLS) else TLS + address
        speaks = "does not speak TLS" if address.startswith(TLS) else "speaks TLS"
        problem = Problem("--server", address, f"{other}, because the server {speaks}", f"write {other}")
        return invalid_config([problem], "the connection")
    return None


def _is_addressed_wrongly(call: grpc.RpcError, address: str) -> bool:
    """Check whether exactly one of the server and its address uses TLS."""
    if address.startswith(TLS):
        return _NO_TLS in (call.details() or "")
    return speaks_tls(address)
