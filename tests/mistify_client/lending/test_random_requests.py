"""Whatever a device sends to a helper, its session ends with a status that tells it why, and others go on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.errors import ErrorCode
from mistify.v1 import lending_pb2 as pb
from mistify.wire.errors import attached_error
from tests.mistify_client.lending.conftest import TOKEN, helper
from tests.mistify_client.lending.raw_client import raw_client
from tests.support.efforts import with_effort
from tests.support.random_messages import requests

#: Statuses that say nothing to a device, or that the session did not end.
USELESS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)


def failure_of(channel: grpc.Channel, sent: Sequence[bytes], token: str = TOKEN) -> Any:
    """Return the error of a session; None if it has none."""
    run = channel.stream_stream("/mistify.v1.Lending/Run")
    try:
        list(run(iter(sent), timeout=30, metadata=[("authorization", f"Bearer {token}")]))
    except grpc.RpcError as error:
        return error
    return None


@with_effort
def test_random_requests_end_no_other_session(float_package: Path, effort: settings) -> None:
    @effort
    @given(st.lists(requests(pb.RunRequest.DESCRIPTOR, {}), min_size=1, max_size=3))
    def check(sent: list[bytes]) -> None:
        error = failure_of(channel, sent)
        assert error is None or error.code() not in USELESS, error

    with helper(float_package) as address, raw_client(address) as other:
        other.asked(probe=pb.Probe(number=1))
        with grpc.insecure_channel(address) as channel:
            check()
        other.asked(probe=pb.Probe(number=2))


@pytest.mark.parametrize(
    ("token", "code"), [(TOKEN, ErrorCode.INVALID_MESSAGE), ("another", ErrorCode.UNAUTHENTICATED)]
)
def test_bytes_that_are_no_request_are_an_error_of_the_device(
    float_package: Path, token: str, code: ErrorCode
) -> None:
    with helper(float_package) as address, grpc.insecure_channel(address) as channel:
        error = failure_of(channel, [b"\xff"], token)
    attached = attached_error(error.trailing_metadata())
    assert attached is not None
    assert attached.code is code
