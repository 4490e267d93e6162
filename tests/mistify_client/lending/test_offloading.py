"""A device that is slow, and helpers of every kind: the answer is right every time."""

import os
import shutil
import signal
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import mistify_client
from mistify.package.opened import Package
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.links import Exchange
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.remote_helper import RemoteHelper
from mistify_client.lending.sessions import Session
from mistify_client.lending.tensors import message_of, zeros_of
from tests.mistify_client.lending.conftest import TOKEN, helper, until
from tests.mistify_client.lending.devices import Device, device, helper_process
from tests.support.block_stores import ORIGINAL
from tests.support.paths import DATA
from tests.support.tokens import write_token


def test_a_slow_device_is_helped_with_answers_that_are_equal_bit_by_bit(package) -> None:
    with helper(package) as address, device(package, address) as slow:
        slow.runs_until("offloaded", 5)
        status = slow.network.status
        assert (slow.counts["failed"], status.problems) == (0, {address: ""})
        assert slow.counts["checked"] >= 1  # the first answer of a session
        assert status.placement.helpers == (address,)
        assert "this device alone takes" in status.placement.reason
        assert status.measured_ms < status.placement.local_ms


def test_several_examples_at_once_run_on_this_device(float_package) -> None:
    with helper(float_package) as address, device(float_package, address) as slow:
        slow.runs_until("offloaded", 1)
        offloaded = slow.counts["offloaded"]
        assert slow.runs(examples=3)
        assert slow.counts["offloaded"] == offloaded


def test_a_killed_helper_costs_one_slow_inference_and_is_used_again_when_it_is_back(float_package) -> None:
    with device_and_process(float_package) as (slow, address, process):
        slow.runs_until("offloaded", 3)
        process.kill()
        process.wait()
        slow.runs_until("local", 3)
        assert slow.counts["failed"] <= 1
        assert address in slow.problem
        with helper_process(float_package, address):
            slow.runs_until("offloaded", 3)
            assert slow.problem == ""


@contextmanager
def device_and_process(
    package: Path, patience: float = 200
) -> Iterator[tuple[Device, str, subprocess.Popen[str]]]:
    with (
        helper_process(package) as (address, process),
        device(package, address, token=None, patience=patience) as slow,
    ):
        yield slow, address, process


def test_a_stopped_helper_costs_one_slow_inference_and_is_used_again_when_it_goes_on(float_package) -> None:
    with device_and_process(float_package, patience=3) as (slow, _, process):
        slow.runs_until("offloaded", 3)
        failed = slow.counts["failed"]
        os.kill(process.pid, signal.SIGSTOP)
        slow.runs_until("failed", 1)
        assert "did not answer within" in slow.problem
        slow.runs_until("local", 3)
        assert slow.counts["failed"] == failed + 1
        os.kill(process.pid, signal.SIGCONT)
        slow.runs_until("offloaded", 3)


def test_a_helper_that_is_wrong_from_the_start_is_never_believed(float_package, monkeypatch) -> None:
    run = Session._run

    def wrong(session, request):
        answer = run(session, request)
        values = np.frombuffer(answer.tensors[0].content, np.float32) * np.float32(1.01)
        answer.tensors[0].content = values.tobytes()
        answer.tensors[0].crc32 = zlib.crc32(values.tobytes())
        return answer

    monkeypatch.setattr(Session, "_run", wrong)
    with helper(float_package) as address, device(float_package, address) as slow:
        slow.runs_until("checked", 1)
        slow.runs_until("local", 3)
        assert "wrong answer: scores differs" in slow.problem
        assert slow.counts["offloaded"] == 0


def test_a_helper_that_becomes_wrong_is_dropped_at_the_next_check(float_package, monkeypatch) -> None:
    with helper(float_package) as address, device(float_package, address) as slow:
        slow.runs_until("offloaded", 2)
        run = Session._run
        monkeypatch.setattr(
            Session,
            "_run",
            lambda session, request: run(session, type(request)(segment=3, tensors=[zeros_for(session)])),
        )
        while slow.counts["checked"] < 2:
            slow.runs()  # some answers are wrong until then
        slow.runs_until("local", 3)
        assert "wrong answer" in slow.problem


def zeros_for(session: Session):
    inputs = session._network.inputs_of(3)
    (zeros,) = zeros_of(inputs).values()
    return message_of(zeros)


def test_a_helper_that_sends_nonsense_is_left(float_package, monkeypatch) -> None:
    run = Session._run

    def damaged(session, request):
        answer = run(session, request)
        answer.tensors[0].crc32 ^= 1
        return answer

    monkeypatch.setattr(Session, "_run", damaged)
    with helper(float_package) as address, device(float_package, address) as slow:
        slow.runs_until("checked", 1)
        slow.runs_until("local", 2)
        assert "was damaged on the way" in slow.problem


def test_a_device_asks_no_more_than_a_helper_grants(float_package) -> None:
    """Even at this rate, the device can begin a session. Later ones are granted at times."""
    with helper(float_package, rate=4) as address, device(float_package, address) as slow:
        slow.runs_until("offloaded", 1)
        until(lambda: slow.runs() and slow.network.status.placement.is_beyond_rate)
        assert slow.network.status.placement.reason.endswith("the helper grants no more inferences a second")
        assert not slow.network.helped
        slow.runs_until("offloaded", 1)
        assert (slow.problem, slow.counts["failed"]) == ("", 0)


def test_a_device_that_asks_too_often_goes_on_alone(float_package, monkeypatch) -> None:
    monkeypatch.setattr(RemoteHelper, "spend", lambda helper, count=1: True)
    with helper(float_package, rate=1) as address, device(float_package, address) as slow:
        slow.runs_until("offloaded", 1)
        slow.runs_until("failed", 1)
        assert "more than 1 inferences a second" in slow.problem
        slow.runs_until("local", 1)


@pytest.mark.parametrize(
    ("given", "token", "problem"),
    [
        (DATA / "blocks", "wrong", "the token is missing or wrong"),
        (DATA / "blocks_int8", TOKEN, "no package"),
    ],
    ids=["token", "package"],
)
def test_a_helper_that_refuses_is_not_asked(float_package, given, token, problem) -> None:
    with helper(given) as address, device(float_package, address, token=token) as slow:
        until(lambda: problem in slow.problem)
        assert slow.runs()
        assert slow.counts["local"] == 1


def test_a_helper_that_cannot_be_reached_is_not_asked(float_package) -> None:
    with device(float_package, "127.0.0.1:1") as slow:
        until(lambda: "cannot be reached" in slow.problem)
        assert slow.runs()


def lending_file(package: Path, address: str) -> Path:
    write_token(package.with_name("token"), TOKEN)
    path = package.with_name("monitor.toml")
    path.write_text(f'[lending]\nhelpers = ["{address}"]\ntoken_file = "token"\n')
    return path


def test_a_network_that_is_faster_than_an_answer_is_never_offloaded(float_package, caplog) -> None:
    images = np.random.default_rng(0).uniform(size=(1, 8, 8, 3)).astype(np.float32)
    expected = mistify_client.load(float_package)(images)
    model = mistify_client.load(float_package, lending=lending_file(float_package, "127.0.0.1:1"))
    assert model(images).tobytes() == expected.tobytes()
    assert model.lending is not None
    assert model.lending.problems == {}
    assert "so that no helper is asked" in caplog.text


def test_a_package_without_blocks_runs_alone_and_says_why(tmp_path, caplog) -> None:
    package = tmp_path / "package"
    shutil.copytree(DATA / "adaptable", package)
    model = mistify_client.load(package, lending=lending_file(package, "127.0.0.1:1"))
    assert model.lending is None
    assert '"blocks": true' in caplog.text


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_link_that_became_fast_is_known_after_one_look_at_it(float_package):
    """Estimates are medians of five messages, so that a single probe would change nothing."""
    opened, clock = Package.open(float_package), Clock()
    network = BlockNetwork(float_package, opened.blocks, opened.blocks.network_of(ORIGINAL), (0, 1, 2, 3))
    with helper(float_package) as address:
        token = write_token(float_package.with_name("token"), TOKEN)
        remote = RemoteHelper(address, network, LendingConfig(helpers=(address,), token_file=token), clock)
        try:
            until(lambda: remote.is_available)
            for _ in range(5):
                remote.link.observe(Exchange(50_000, 0, 5_000.5, 0.0, 5_000.0))
            assert remote.link.byte_ms == pytest.approx(0.1)
            clock.now += 60
            remote._changed.set()
            until(lambda: remote.link.byte_ms < 0.05)
        finally:
            remote.close()
