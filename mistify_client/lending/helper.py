"""The helper: a gRPC server that runs blocks for other devices, which `mistify lend` starts."""

import hmac
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final

import grpc

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import lending_pb2 as pb
from mistify.wire.errors import MOST_TEXT, error_metadata
from mistify.wire.limits import MAX_METADATA_BYTES
from mistify.wire.listening import Certificate, listen
from mistify.wire.messages import decoded
from mistify_client.lending.packages import LentPackages
from mistify_client.lending.quotas import Places, Quotas
from mistify_client.lending.sessions import PROBE_BYTES, Session
from mistify_client.lending.tensors import MESSAGE_BYTES

_HEADER: Final = "authorization"

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lending"].full_name

#: Threads that refuse devices while all places are taken.
_REFUSING_THREADS: Final = 2

#: Grace period in seconds for running inferences when the helper stops.
_GRACE: Final = 1.0

logger = logging.getLogger(__name__)


class Helper:
    """Runs blocks of its packages for devices that have its token.

    Args:
        token: The token that devices must send; None to require none.
    """

    def __init__(self, packages: LentPackages, quotas: Quotas, token: str | None) -> None:
        self._packages = packages
        self._quotas = quotas
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._places = Places(quotas.clients)

    def run(self, requests: Iterator[bytes], context: Any) -> Iterator[pb.RunResponse]:
        """Answer the encoded requests of a device; none is read before its token has been checked."""
        with _aborting(context):
            self._authenticate(context)
            with self._places.taken(), closing(Session(self._packages, self._quotas)) as session:
                context.add_callback(session.kill)
                logger.info("%s begins a session", context.peer())
                yield from session.responses(decoded(pb.RunRequest.FromString, each) for each in requests)

    def _authenticate(self, context: Any) -> None:
        header = dict(context.invocation_metadata()).get(_HEADER, "")
        header = header if isinstance(header, bytes) else header.encode()
        if self._expected is not None and not hmac.compare_digest(header, self._expected):
            raise MistifyError(
                ErrorCode.UNAUTHENTICATED,
                "the token is missing or wrong; name the helper's --token-file as token_file in [lending]",
            )


@contextmanager
def _aborting(context: Any) -> Iterator[None]:
    """End a call with the status of an error; unexpected errors are logged, and not revealed."""
    try:
        yield
    except MistifyError as caught:
        error = caught
    except Exception:
        if not context.is_active():  # the device has gone, which ends the iterator of its requests
            return
        logger.exception("a session failed")
        error = MistifyError(ErrorCode.INTERNAL, "an internal error; see the helper's log for details")
    else:
        return
    logger.warning("%s: %s", context.peer(), error.message)
    context.set_trailing_metadata(error_metadata(error))
    context.abort(grpc.StatusCode[error.code.grpc_status], error.message[:MOST_TEXT])


@contextmanager
def serving(
    packages: LentPackages,
    quotas: Quotas,
    address: str,
    *,
    token: str | None = None,
    certificate: Certificate | None = None,
) -> Iterator[str]:
    """Run a helper during the block, and yield its address.

    Args:
        address: `host:port`; port 0 picks a free port.
        token: The token that devices must send; required unless the address is a loopback address.
        certificate: Certificate for TLS; None for a helper without TLS.

    Raises:
        MistifyError: UNAUTHENTICATED, the address needs a token; INVALID_CONFIG, ADDRESS_IN_USE or
            UNAVAILABLE, it cannot be bound.
    """
    largest = max(packages.largest_message, PROBE_BYTES + MESSAGE_BYTES)
    sessions = quotas.clients + _REFUSING_THREADS
    server = grpc.server(
        ThreadPoolExecutor(sessions, "lending"),
        maximum_concurrent_rpcs=sessions,
        options=(
            ("grpc.max_receive_message_length", largest),  # larger ones are refused before they are read
            ("grpc.max_send_message_length", largest),
            ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.so_reuseport", 0),
            ("grpc.server_handshake_timeout_ms", 10_000),
            ("grpc.max_connection_idle_ms", 30_000),
            ("grpc.keepalive_time_ms", 10_000),  # notices a device that has vanished, which frees its place
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ),
    )
    # The helper decodes requests itself, because gRPC ends calls with malformed ones by INTERNAL.
    run = grpc.stream_stream_rpc_method_handler(
        Helper(packages, quotas, token).run, response_serializer=pb.RunResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Run": run}),))
    shown = listen(server, address, certificate=certificate, token=token)
    server.start()
    try:
        yield shown
    finally:
        server.stop(_GRACE).wait()
