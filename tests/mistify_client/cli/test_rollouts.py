"""The commands of roll-outs, with a real server."""

import json
from datetime import UTC, datetime

import pytest

from mistify.errors import ErrorCode
from mistify_client.rpc.devices import DevicesClient
from tests.support.fleets import JOB, after, device
from tests.support.published import publish
from tests.support.served import served_at
from tests.support.signed_packages import write_package


@pytest.fixture
def address(tmp_path):
    package = write_package(tmp_path / "phone-2", {"serve.tflite": b"network"})
    publish(tmp_path / "store", JOB, [package])
    with served_at(tmp_path / "store") as (address, _):
        yield address


@pytest.fixture
def rollout(mistify, address):
    """Call a command of roll-outs, and return its exit code and its output."""

    def call(*arguments):
        result = mistify("rollout", *arguments, "--server", address)
        return result.exit_code, result.output

    return call


def only_id(rollout):
    code, output = rollout("status", "--json")
    assert code == 0
    (progress,) = json.loads(output)["rollouts"]
    return progress["rollout"]["id"]


def test_a_roll_out_is_started_shown_and_rolled_back(rollout, address):
    assert "no roll-outs yet" in rollout("status")[1]
    options = ("--to", "phone/kitchen-*", "--stages", "50%, 1", "--errors", "0%", "--latency", "none")
    code, output = rollout("start", JOB, "phone-2", *options, "--after", "10min", "--agreement", "80%")
    assert code == 0, output
    own = only_id(rollout)
    assert f"roll-out {own} of phone-2 (job {JOB}) in place of phone on kitchen-*" in output
    assert 'no such device has reported yet; devices need [fleet.rollouts] with package = "phone"' in output
    assert "errors: unknown, limit 0%" in output
    assert "latency relative to that before: unknown, limit none" in output
    assert "and until 1 device of it reported" in output
    assert "agreement with the package before: unknown, limit 80%" in output
    with DevicesClient(address) as client:
        client.report_status(device("hall-1"))
        client.report_status(after(device("kitchen-1"), own, slowdown=1.5, agreement=0.9))
    code, output = rollout("status", own)
    assert f"running, stage 50%, since {datetime.now(UTC):%Y-%m-%d}" in output
    assert "no such device" not in output
    assert "latency relative to that before: 1.5x, limit none" in output
    assert [line.split() for line in output.splitlines()[-3:] if line.strip()][-1][0] == "100%"
    listed = rollout("status")[1].splitlines()[-1].split()
    assert listed == [own, "phone-2", "phone/kitchen-*", "running", "50%", "1/1", "0"]
    code, output = rollout("status", own, "--json")
    assert json.loads(output)["rollout"]["criteria"]["after_seconds"] == 600.0
    assert "paused, stage 50%" in rollout("pause", own)[1]
    assert "running, stage 50%" in rollout("resume", own)[1]
    output = rollout("back", own)[1]
    assert "rolled back, stage 50%" in output
    assert "1 device still on its package" in output
    assert rollout("back", own)[0] == 0  # as after a lost answer
    assert rollout("pause", own)[0] == ErrorCode.CONFLICT.exit_code
    assert rollout("status", "none")[0] == ErrorCode.NOT_FOUND.exit_code


def test_the_package_of_the_same_goal_on_all_devices_is_the_default(rollout):
    code, output = rollout("start", JOB, "phone-2")
    assert code == 0
    assert "in place of phone-2 on all devices" in output
    code, output = rollout("start", JOB, "phone-2")
    assert code == ErrorCode.CONFLICT.exit_code
    assert f"mistify rollout back {only_id(rollout)}" in output


def test_all_mistakes_are_reported_at_once(rollout):
    wrong = ("--stages", "1%,many", "--after", "soon", "--errors", "x", "--latency", "20ms")
    code, output = rollout("start", JOB, "phone-2", *wrong)
    assert code == ErrorCode.INVALID_CONFIG.exit_code
    for option in ("--stages", "--after", "--errors", "--latency"):
        assert f"{option}: got" in output
    code, output = rollout("start", JOB, "phone-2", "--stages", "10%")
    assert code == ErrorCode.INVALID_CONFIG.exit_code
    assert "stages: got 0.1; expected up to 20 shares that ascend to 1" in output


def test_commands_of_groups_have_the_options_for_tls(mistify):
    assert "--ca" in mistify("rollout", "start", "--help").output
    assert "--ca" in mistify("jobs", "--help").output
