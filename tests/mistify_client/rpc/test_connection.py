import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

import grpc
import pytest
import trustme

from mistify.errors import ErrorCode, MistifyError
from mistify.times import utc_now
from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify_client.rpc.connection import Connection
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.tuning import TuningClient

REQUEST = pb.GetJobRequest(job_id="job-1")
HOUR = timedelta(hours=1)


class CallerInterrupted:
    """A servicer that interrupts the main thread, then waits until its call is cancelled."""

    def __init__(self) -> None:
        self._cancelled, self._done = threading.Event(), threading.Event()

    def __call__(self, request: object, context: grpc.ServicerContext) -> None:
        context.add_callback(self._cancelled.set)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        self._cancelled.wait(30)
        self._done.set()

    def was_cancelled(self) -> bool:
        self._done.wait(60)
        return self._cancelled.is_set()


class LateMethod:
    """A stub method that starts its call, but returns it only after the caller has given up."""

    def __init__(self, method: Callable) -> None:
        self._method = method
        self.caller_gone = threading.Event()

    def __call__(self, *args: object, **options: object):
        return self._late(self._method(*args, **options))

    def future(self, *args: object, **options: object):
        return self._late(self._method.future(*args, **options))

    def _late(self, call):
        self.caller_gone.wait(60)
        return call


@contextmanager
def served(
    credentials: grpc.ServerCredentials | None = None, **handlers: grpc.RpcMethodHandler
) -> Iterator[str]:
    """Serve the methods of a service `test`, and yield the address."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", handlers)])
    if credentials is None:
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        address = f"tls://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    yield address
    server.stop(None).wait()


@pytest.fixture
def servicer() -> CallerInterrupted:
    return CallerInterrupted()


@pytest.fixture
def connection(servicer) -> Iterator[Connection]:
    with served(
        OneAnswer=grpc.unary_unary_rpc_method_handler(servicer),
        ManyRequests=grpc.stream_unary_rpc_method_handler(servicer),
        ManyAnswers=grpc.unary_stream_rpc_method_handler(servicer),
    ) as address:
        connection = Connection(address, None)
        before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
        yield connection
        signal.signal(signal.SIGUSR1, before)
        connection.close()


@pytest.mark.parametrize(
    "address", ["", "host", "host:", "host:port", "host:99999", ":7465", "http://host:7466", "host:7465/jobs"]
)
@pytest.mark.parametrize("client", [PortingClient, TuningClient])
def test_a_client_needs_an_address(client, address):
    with pytest.raises(MistifyError) as caught:
        client(address)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert f'server: got "{address}"; expected host:port of its gRPC listener' in str(caught.value)


def one_answer(connection: Connection) -> tuple[LateMethod, Callable[[LateMethod], object]]:
    method = connection.channel.unary_unary("/test/OneAnswer", pb.GetJobRequest.SerializeToString)
    return LateMethod(method), lambda late: connection.call(late, REQUEST, 300)


def many_requests(connection: Connection) -> tuple[LateMethod, Callable[[LateMethod], object]]:
    method = connection.channel.stream_unary("/test/ManyRequests", pb.GetJobRequest.SerializeToString)
    return LateMethod(method), lambda late: connection.call(late, iter([REQUEST]), 300)


def many_answers(connection: Connection) -> tuple[LateMethod, Callable[[LateMethod], object]]:
    method = connection.channel.unary_stream("/test/ManyAnswers", pb.GetJobRequest.SerializeToString)
    return LateMethod(method), lambda late: list(connection.stream(late, REQUEST))


@pytest.mark.parametrize("kind", [one_answer, many_requests, many_answers])
def test_an_interrupt_before_the_call_is_returned_cancels_it_on_the_server(connection, servicer, kind):
    late, make_call = kind(connection)
    with pytest.raises(KeyboardInterrupt) as caught:
        make_call(late)
    late.caller_gone.set()
    assert servicer.was_cancelled()
    del caught  # keeps a reference to the call: garbage collection would have cancelled it as well


@pytest.mark.parametrize("kind", [one_answer, many_requests, many_answers])
def test_an_interrupt_after_the_call_was_returned_cancels_it_on_the_server(connection, servicer, kind):
    late, make_call = kind(connection)
    late.caller_gone.set()
    with pytest.raises(KeyboardInterrupt):
        make_call(late)
    assert servicer.was_cancelled()


class InterruptedAt:
    """A trace function that interrupts its thread at a given step."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, argument: object) -> "InterruptedAt":
        frame.f_trace_opcodes = True
        self.left -= 1
        if self.left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return self


def is_interrupted(address: str, step: int) -> bool:
    """Read a stream and interrupt it at a step; return whether that step was reached."""
    connection = Connection(address, None)
    method = connection.channel.unary_stream(
        "/test/TwoAnswers", pb.GetJobRequest.SerializeToString, pb.JobEvent.FromString
    )
    trace, before = InterruptedAt(step), sys.gettrace()
    try:
        sys.settrace(trace)
        list(connection.stream(method, REQUEST))
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        connection.close()
    return trace.left < 0


# Python drops an interrupt that arrives during garbage collection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_step_leaves_no_waiting_thread():
    two = grpc.unary_stream_rpc_method_handler(lambda request, context: iter([b"", b""]))
    step = 0
    with served(TwoAnswers=two) as address:
        assert not is_interrupted(address, 10**9)  # starts the permanent threads
        threads = set(sys._current_frames())
        while is_interrupted(address, step):
            deadline = time.monotonic() + 30
            while left := set(sys._current_frames()) - threads:
                assert time.monotonic() < deadline, f"{left} wait after an interrupt at step {step}"
                time.sleep(0.001)
            step += 1
    assert step > 100


def test_calls_after_closing_the_connection_are_cancelled() -> None:
    """This happens when a monitor ends while its thread is about to report."""
    connection = Connection("127.0.0.1:1", None)
    stub = PortingStub(connection.channel)
    connection.close()
    for begin in (
        lambda: connection.call(stub.GetJob, REQUEST, 1.0),
        lambda: list(connection.stream(stub.WatchJob, pb.WatchJobRequest(job_id="job-1"))),
    ):
        with pytest.raises(MistifyError, match=r"the connection to 127\.0\.0\.1:1 was closed") as caught:
            begin()
        assert caught.value.code is ErrorCode.CANCELLED


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Return an authority that connections trust."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("MISTIFY_CA", str(tmp_path / "authority.pem"))
    return made


def files_of(certificate: trustme.LeafCert) -> tuple[bytes, bytes]:
    """Return the private key and the certificate."""
    return certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()


def refusal(address: str) -> MistifyError:
    """Return the error of a call."""
    connection = Connection(address, None)
    with pytest.raises(MistifyError) as caught:
        connection.call(PortingStub(connection.channel).GetJob, REQUEST, 60.0)
    connection.close()
    return caught.value


@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [(HOUR, 24 * HOUR, "is not yet valid"), (-24 * HOUR, -HOUR, "has expired")],
)
def test_the_error_of_a_certificate_of_another_time_shows_the_clock(
    authority: trustme.CA, begins: timedelta, ends: timedelta, said: str
) -> None:
    """The clock of this machine, or of the one that made the certificate, is an hour off."""
    now = utc_now()
    made = authority.issue_cert("127.0.0.1", not_before=now + begins, not_after=now + ends)
    with served(grpc.ssl_server_credentials([files_of(made)])) as address:
        error = refusal(address)
    assert error.code is ErrorCode.UNAUTHENTICATED
    shown = rf"its certificate {said} by the clock of this machine, which shows [-0-9]+ [:0-9]+ UTC; "
    assert re.search(shown + "correct the clock, or renew the certificate", error.message)


def test_the_error_of_a_client_whose_certificate_is_refused_mentions_the_clock(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utc_now()
    own = authority.issue_cert("client", not_before=now + HOUR, not_after=now + 24 * HOUR)
    for variable, content in zip(("MISTIFY_KEY", "MISTIFY_CERTIFICATE"), files_of(own), strict=True):
        (tmp_path / variable).write_bytes(content)
        monkeypatch.setenv(variable, str(tmp_path / variable))
    asking = grpc.ssl_server_credentials(
        [files_of(authority.issue_cert("127.0.0.1"))],
        authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    with served(asking) as address:
        error = refusal(address)
    assert error.code is ErrorCode.UNAUTHENTICATED
    assert "of the authority that it trusts, and valid by the clock of the server" in error.message
