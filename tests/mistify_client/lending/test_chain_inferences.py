"""Inferences over two helpers whose times are set, so that both are asked: the answer is right every time."""

import os
import signal
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mistify_client.lending.chains import Part
from mistify_client.lending.links import HelperSpeed, Link
from mistify_client.lending.offloading import Chooser
from mistify_client.lending.placement import Placement, Reachable
from mistify_client.lending.sessions import Session
from mistify_client.lending.streams import HelperStream
from mistify_client.lending.tensors import bytes_of
from tests.mistify_client.lending.conftest import TOKEN, helper
from tests.mistify_client.lending.devices import Device, device, helper_process

#: Milliseconds of the segments on the first and on the second helper. The second segment is best run here.
TIMES = ([1.0, 500.0, 500.0, 500.0], [500.0, 500.0, 1.0, 1.0])


class KnownTimes:
    """Chooses as apps do, but by times that are set."""

    def __init__(self, chooser: Chooser, addresses: tuple[str, str]) -> None:
        self._chooser = chooser
        self._helpers = {
            address: Reachable(Link(), HelperSpeed(times))
            for address, times in zip(addresses, TIMES, strict=True)
        }

    def choose(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        return self._chooser.choose({each: self._helpers[each] for each in helpers}, input_bytes)

    def observe(self, placement: Placement, milliseconds: float) -> None:
        pass

    def correction(self, address: str) -> float:
        return 0.0


@contextmanager
def chained(
    package: Path, first: str, second: str, token: str | None, rounded: frozenset[int] = frozenset()
) -> Iterator[Device]:
    with device(package, first, second, token=token, rounded=rounded) as slow:
        slow.network.chooser = KnownTimes(slow.network.chooser, (first, second))
        yield slow


def chain_of(slow: Device) -> tuple[Part, ...]:
    return tuple(each.part for each in slow.network.status.placement.parts)


def runs_until_chain(slow: Device, *chain: Part) -> None:
    """Run inferences until helpers of a chain have computed one that is not checked."""
    offloaded = slow.counts["offloaded"]
    while chain_of(slow) != chain or slow.counts["offloaded"] == offloaded:
        offloaded = slow.counts["offloaded"]
        assert slow.runs()


def whole_chain(first: str, second: str) -> tuple[Part, ...]:
    return Part(first, 0, 1), Part(None, 1, 2), Part(second, 2, 4)


def test_two_helpers_and_this_device_give_an_answer_that_is_equal_bit_by_bit(package) -> None:
    with helper(package) as first, helper(package) as second, chained(package, first, second, TOKEN) as slow:
        for _ in range(5):
            runs_until_chain(slow, *whole_chain(first, second))
        status = slow.network.status
        assert status.problems == {first: "", second: ""}
        assert slow.counts["checked"] >= 1  # the first answers of both sessions
        assert status.placement.helpers == (first, second)
        sent = [bytes_of(slow.network.network.tensors_at(cut)) for cut in (0, 2)]
        assert [each.sent for each in status.placement.parts] == [sent[0], 0, sent[1]]
        assert f"{first} runs the network to cut 1" in status.placement.reason
        assert f"then this device from cut 1 to 2, then {second} from cut 2 on" in status.placement.reason


def test_rounded_tensors_go_in_a_quarter_of_their_bytes_both_ways(float_package, monkeypatch) -> None:
    """The answer of the first helper is rounded, and what the second one is sent."""
    rounded = frozenset({1, 2})
    with (
        helper(float_package) as first,
        helper(float_package) as second,
        chained(float_package, first, second, TOKEN, rounded) as slow,
    ):
        received = []
        answered = HelperStream.answered

        def counted(stream, seconds):
            answer = answered(stream, seconds)
            received.append((stream.address, answer.exchange.sent, answer.exchange.received))
            return answer

        monkeypatch.setattr(HelperStream, "answered", counted)
        for _ in range(5):
            runs_until_chain(slow, *whole_chain(first, second))
        assert slow.counts["checked"] >= 1
        assert slow.network.status.problems == {first: "", second: ""}
        sizes = [bytes_of(slow.network.network.tensors_at(cut)) for cut in range(5)]
        assert {(first, sizes[0], sizes[1] // 4), (second, sizes[2] // 4, sizes[4])} <= {*received}
        assert [each.sent for each in slow.network.status.placement.parts] == [sizes[0], 0, sizes[2] // 4]


@contextmanager
def two_processes(
    package: Path,
) -> Iterator[tuple[Device, tuple[str, str], list[subprocess.Popen[str]]]]:
    with (
        helper_process(package) as (first, one),
        helper_process(package) as (second, other),
        chained(package, first, second, None) as slow,
    ):
        runs_until_chain(slow, *whole_chain(first, second))
        yield slow, (first, second), [one, other]


@pytest.mark.parametrize("place", [0, 1])
def test_the_rest_runs_here_if_a_helper_of_a_chain_is_killed_and_the_other_one_still_helps(
    float_package, place
) -> None:
    with two_processes(float_package) as (slow, (first, second), processes):
        processes[place].kill()
        processes[place].wait()
        without = [Part(None, 0, 2), Part(second, 2, 4)], [Part(first, 0, 1), Part(None, 1, 4)]
        runs_until_chain(slow, *without[place])
        problems = slow.network.status.problems
        assert (first, second)[place] in problems[(first, second)[place]]
        assert problems[(first, second)[1 - place]] == ""


def test_the_rest_runs_here_if_a_helper_of_a_chain_is_stopped(float_package) -> None:
    with two_processes(float_package) as (slow, (first, second), (_, process)):
        os.kill(process.pid, signal.SIGSTOP)
        slow.runs_until("failed", 1)
        assert "did not answer within" in slow.network.status.problems[second]
        runs_until_chain(slow, Part(first, 0, 1), Part(None, 1, 4))
        os.kill(process.pid, signal.SIGCONT)
        runs_until_chain(slow, *whole_chain(first, second))


@pytest.mark.parametrize("place", [0, 1])
def test_only_the_helper_that_is_wrong_is_dropped_from_a_chain(float_package, monkeypatch, place) -> None:
    """A check gives each helper the right tensors, so that the second is not blamed for the first."""
    run = Session._run

    def wrong(session, request):
        answer = run(session, request)
        if request.segment == (0, 2)[place] and request.end == (1, 4)[place]:
            values = np.frombuffer(answer.tensors[0].content, np.float32) * np.float32(1.01)
            answer.tensors[0].content = values.tobytes()
            answer.tensors[0].crc32 = zlib.crc32(values.tobytes())
        return answer

    monkeypatch.setattr(Session, "_run", wrong)
    with (
        helper(float_package) as first,
        helper(float_package) as second,
        chained(float_package, first, second, TOKEN) as slow,
    ):
        addresses = first, second
        while any(slow.network.status.problems.values()):  # until both are connected
            assert slow.runs(examples=2)  # which helpers do not run
        while "wrong answer" not in slow.network.status.problems[addresses[place]]:
            assert slow.runs()
        assert slow.network.status.problems[addresses[1 - place]] == ""
