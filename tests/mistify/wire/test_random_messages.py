"""Whatever the messages of a server contain, they are values, or refused as those of another version."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import devices_pb2, porting_pb2, rollouts_pb2, tuning_pb2
from mistify.wire import devices, porting, rollouts, tuning
from tests.support.efforts import with_effort
from tests.support.random_messages import messages

#: Returns the value of a message of a kind.
Read = tuple[Callable[[Any], object], type[Message]]

READS: Final[tuple[Read, ...]] = (
    (porting.part_from_proto, porting_pb2.Job),
    (porting.plan_from_proto, porting_pb2.PortingPlan),
    (porting.events_from_proto, porting_pb2.JobEvent),
    (porting.details_from_proto, porting_pb2.GoalDetails),
    (porting.keys_from_proto, porting_pb2.SigningKeys),
    (porting.status_from_proto, porting_pb2.Caller),
    (porting.error_from_proto, porting_pb2.ErrorInfo),
    (devices.device_from_proto, devices_pb2.Device),
    (devices.instruction_from_proto, devices_pb2.ReportStatusResponse),
    (tuning.membership_from_proto, tuning_pb2.Membership),
    (tuning.peer_from_proto, tuning_pb2.PeersResponse),
    (rollouts.progress_from_proto, rollouts_pb2.RolloutProgress),
)


def of_kind(read: Read) -> st.SearchStrategy[tuple[Callable[[Any], object], Message]]:
    convert, kind = read
    return st.tuples(st.just(convert), messages(kind.DESCRIPTOR, {}))


@with_effort
def test_random_messages_are_values_or_refused(effort: settings) -> None:
    @effort
    @given(st.sampled_from(READS).flatmap(of_kind))
    def check(case: tuple[Callable[[Any], object], Message]) -> None:
        error = refusal_of(*case)
        assert error is None or error.code is ErrorCode.INVALID_MESSAGE

    check()


def refusal_of(convert: Callable[[Any], object], message: Message) -> MistifyError | None:
    """Return the error of a conversion; None if it succeeds."""
    try:
        convert(message)
    except MistifyError as error:
        return error
    return None


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "9" * 5_000])
def test_settings_of_a_membership_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(MistifyError, match="the membership") as caught:
        tuning.membership_from_proto(tuning_pb2.Membership(settings_json=text))
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize("unix_ms", [253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_a_device_of_a_time_that_no_calendar_has_is_refused(unix_ms: int) -> None:
    with pytest.raises(MistifyError, match=f"the device {unix_ms}") as caught:
        devices.device_from_proto(devices_pb2.Device(registered_unix_ms=unix_ms))
    assert caught.value.code is ErrorCode.INVALID_MESSAGE
