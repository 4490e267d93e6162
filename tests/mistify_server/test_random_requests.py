"""Whatever a request contains, the answer is a status that says what is wrong, and others are served."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode
from mistify.v1 import devices_pb2, porting_pb2
from mistify.wire.errors import attached_error
from tests.support.calls import described_calls
from tests.support.efforts import with_effort
from tests.support.random_configs import texts
from tests.support.random_messages import Known, requests

#: Statuses that say nothing to a caller, or that the call did not end.
USELESS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)

CALLS = described_calls()
CALLER = "/mistify.v1.Porting/GetCaller"


def failure_of(channel: grpc.Channel, path: str, *sent: bytes) -> Any:
    """Return the error of a call; None if it succeeds."""
    method, options = CALLS[path], {"timeout": 30}
    try:
        if method.client_streaming:
            channel.stream_unary(path)(iter(sent), **options)
        elif method.server_streaming:
            list(channel.unary_stream(path)(sent[0], **options))
        else:
            channel.unary_unary(path)(sent[0], **options)
    except grpc.RpcError as error:
        return error
    return None


@with_effort
async def test_random_requests_are_answered(
    site: Any, serving_at: Any, make_config: Any, effort: settings
) -> None:
    fleet.prepare(site.store)
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("half", FLOP="0.5x")])
        await caller.finished(job.id)
        with grpc.insecure_channel(caller.address) as channel:
            await asyncio.to_thread(send_random_requests, channel, job.id, effort)


def send_random_requests(channel: grpc.Channel, job_id: str, effort: settings) -> None:
    member = fleet.device(0)
    known: Known = {
        "job_id": st.just(job_id),
        "goal_id": st.just("half"),
        "file": st.just("serve.tflite"),
        "group": st.just(member.key.group),
        "secret": st.just(member.key.secret),
        "so_far": st.just(True),  # otherwise, a call lasts as long as its job
        "config_json": texts().map(lambda text: text.encode("utf-8", "replace").decode()),
    }
    calls = {
        path: st.lists(requests(method.input_type, known), min_size=1, max_size=3)
        for path, method in CALLS.items()
    }

    @effort
    @given(st.sampled_from(sorted(calls)).flatmap(lambda path: st.tuples(st.just(path), calls[path])))
    def check(call: tuple[str, list[bytes]]) -> None:
        path, sent = call
        error = failure_of(channel, path, *sent)
        assert error is None or error.code() not in USELESS, error

    check()
    assert failure_of(channel, CALLER, b"") is None


async def test_errors_that_quote_what_cannot_be_encoded_are_sent(caller: Any) -> None:
    config = json.dumps([{"id": "{x}", "adaptation_goal": {"FLOP\ud800": 1}}])
    request = porting_pb2.PlanRequest(config_json=config).SerializeToString()
    with grpc.insecure_channel(caller.address) as channel:
        error = await asyncio.to_thread(failure_of, channel, "/mistify.v1.Porting/Plan", request)
    attached = attached_error(error.trailing_metadata())
    assert attached is not None
    assert attached.code is ErrorCode.INVALID_CONFIG
    assert any("FLOP\\ud800" in problem.expected for problem in attached.problems)


async def test_bytes_that_are_no_message_are_an_error_of_the_caller_of_any_method(caller: Any) -> None:
    def send() -> None:
        with grpc.insecure_channel(caller.address) as channel:
            for path in CALLS:
                error = failure_of(channel, path, b"\xff")
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, path
                assert error.details().startswith("the other side sent no message"), path
            assert failure_of(channel, CALLER, b"") is None

    await asyncio.to_thread(send)


@pytest.mark.parametrize(
    ("path", "request_bytes", "message"),
    [
        (
            "/mistify.v1.Porting/SubmitBatch",
            porting_pb2.SubmitBatchRequest(priority=99).SerializeToString(),  # type: ignore[arg-type]
            "the job priority 99, which this version does not know",
        ),
        (
            "/mistify.v1.Devices/ReportStatus",
            devices_pb2.DeviceStatus(pool=devices_pb2.DevicePool(metric="no metric")).SerializeToString(),
            'the metric "no metric", which this version does not know',
        ),
    ],
)
async def test_values_that_no_version_knows_are_an_error_of_the_caller(
    caller: Any, path: str, request_bytes: bytes, message: str
) -> None:
    with grpc.insecure_channel(caller.address) as channel:
        error = await asyncio.to_thread(failure_of, channel, path, request_bytes)
    attached = attached_error(error.trailing_metadata())
    assert attached is not None
    assert attached.code is ErrorCode.INVALID_MESSAGE
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in attached.message
