"""Roll-outs with a real server and the monitors of five devices; only the apps are simulated."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.rollouts import NewRollout, RolloutCriteria, RolloutProgress, RolloutState
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.rpc.rollouts import RolloutsClient
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, state_directory
from mistify_server.rollouts import reports as device_reports
from mistify_server.rollouts.members import place
from tests.support.paths import REPOSITORY
from tests.support.published import publish
from tests.support.served import served_at
from tests.support.signed_packages import sign_package
from tests.support.tiny_packages import COMPARISON, IMAGE, PAIR, SCORES, make_package

DATA = REPOSITORY / "tests" / "data"
DEADLINE = 120.0
JOB = "20261129-120000-abcd"
COUNT = 5

#: Simulated milliseconds of an inference with each package.
LATENCIES = {"phone": 4.0, "good": 3.5, "slow": 8.0}


@dataclass
class Device:
    """A package with its monitor, and an app that runs an inference every tenth of a second."""

    package: Path
    settings: dict[str, Any]
    monitor: Monitor | None = None
    recorder: Recorder | None = None
    now: float = 1000.0
    generation: int = -1

    @property
    def goal(self) -> str:
        return Manifest.load(current(self.package)).goal

    def start(self) -> None:
        config = MonitorConfig.model_validate(self.settings)
        state = MonitorState.of(self.package)
        state.directory.mkdir(parents=True, exist_ok=True)
        self.monitor = Monitor(
            self.package,
            lambda: config,
            Journal(state.log, None),
            sensor=SensorReading,
            clock=lambda: self.now,
        )

    def stop(self) -> None:
        if self.monitor is not None:
            self.monitor.close()
        self.monitor = None

    def step(self) -> None:
        """Let a second pass; without a monitor, only the app runs."""
        state = state_directory(self.package)
        generation = Switchboard.open(state).generation
        if generation != self.generation:
            self.generation = generation
            self.recorder = Recorder.open(state, 1, generation, 1)
        assert self.recorder is not None
        latency = LATENCIES[self.goal]
        for part in range(1, 10):
            self.recorder.record(self.now + part / 10, latency, latency, 0.0, option=0, batch=1)
        self.now += 1
        if self.monitor is not None:
            self.monitor.step()


class Fleet:
    """A server with packages, and devices that run `phone`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "made").mkdir()
        made = [
            make_package(directory / "made" / goal, DATA / "tiny.tflite", (IMAGE,), (SCORES,))
            for goal in LATENCIES
        ]
        made.append(make_package(directory / "made" / "other", DATA / "tiny_two.tflite", PAIR, COMPARISON))
        publish(directory / "store", JOB, made)
        self.address, self.url = "127.0.0.1:0", ""
        self.devices: list[Device] = []

    def serve(self) -> Any:
        return served_at(self.directory / "store", self.address)

    def add_devices(self, **settings: Any) -> None:
        """Add devices, with monitors that report often; several seconds pass for them in each step."""
        images = np.random.default_rng(3).normal(size=(8, 4, 4, 1)).astype(np.float32)
        np.savez(self.directory / "examples.npz", image=images)
        for number in range(COUNT):
            package = make_package(
                self.directory / f"device-{number}", DATA / "tiny.tflite", (IMAGE,), (SCORES,)
            )
            Manifest.load(package).model_copy(update={"job": JOB, "goal": "phone"}).save(package)
            rollouts = {"package": "phone", "examples": self.directory / "examples.npz"}
            reports = {"server": self.address, "name": package.name, "every": "1s", "rollouts": rollouts}
            device = Device(package, {"fleet": reports, **settings})
            device.start()
            self.devices.append(device)

    def stop(self) -> None:
        for device in self.devices:
            device.stop()

    @property
    def goals(self) -> list[str]:
        return [device.goal for device in self.devices]

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass for all devices until a condition holds."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, [self.goals, self.rollouts()]
            for device in self.devices:
                device.step()

    def roll_out(self, goal: str, *stages: float, **criteria: Any) -> str:
        """Start a roll-out once all devices have reported, and return its id."""
        with httpx.Client(base_url=self.url) as web:
            self.until(lambda: len(web.get("/v1/fleet").json()["devices"]) == len(self.devices))
        new = NewRollout(
            JOB,
            goal,
            "phone",
            "device-*",
            stages or (1.0,),
            RolloutCriteria(**{"after_seconds": 0.0, **criteria}),
        )
        with RolloutsClient(self.address) as client:
            return client.start(new).rollout.id

    def rollouts(self) -> list[RolloutProgress]:
        with RolloutsClient(self.address) as client:
            return client.rollouts()

    def rollout(self, rollout_id: str) -> RolloutProgress:
        with RolloutsClient(self.address) as client:
            return client.rollout(rollout_id)

    def state(self, rollout_id: str) -> RolloutState:
        return self.rollout(rollout_id).rollout.state


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(device_reports, "_INTERVAL_SECONDS", 0.02)
    fleet = Fleet(tmp_path)
    with fleet.serve() as (fleet.address, fleet.url):
        yield fleet
        fleet.stop()


def test_a_good_package_reaches_all_devices_even_one_that_was_offline(fleet: Fleet) -> None:
    fleet.add_devices()
    rollout = fleet.roll_out("good", 0.001, 1.0)
    fleet.devices.sort(key=lambda device: place(rollout, device.package.name))
    offline = fleet.devices.pop()  # the first stage has the first device only
    offline.stop()
    fleet.until(lambda: fleet.state(rollout) is RolloutState.DONE and fleet.goals == ["good"] * (COUNT - 1))
    offline.step()
    assert offline.goal == "phone", "it works without the server"
    offline.start()
    fleet.devices.append(offline)
    fleet.until(lambda: fleet.goals == ["good"] * COUNT)
    fleet.until(lambda: sum(stage.installed for stage in fleet.rollout(rollout).stages) == COUNT)
    progress = fleet.rollout(rollout)
    assert progress.figures.latency == pytest.approx(3.5 / 4.0)
    assert (progress.figures.errors, progress.figures.agreement) == (0.0, 1.0)
    with httpx.Client(base_url=fleet.url) as web:
        page = web.get("/fleet").text
        listed = web.get("/v1/rollouts").json()
    assert rollout in page
    assert "latency 0.875 times that before (limit 1.2), agreement with the package before 100%" in page
    assert f"roll-out {rollout}: installed" in page
    assert [each["rollout"]["id"] for each in listed] == [rollout]


def test_a_slower_package_stops_at_the_first_stage_and_all_devices_are_back(fleet: Fleet) -> None:
    fleet.add_devices()
    rollout = fleet.roll_out("slow", 0.001, 1.0, after_seconds=3600.0)
    seen = set[str]()

    def stopped() -> bool:
        seen.update(device.package.name for device in fleet.devices if device.goal == "slow")
        return fleet.state(rollout) is RolloutState.STOPPED

    fleet.until(stopped)
    fleet.until(lambda: fleet.goals == ["phone"] * COUNT)
    (first,) = seen
    reason = f"the latency is 2 times that before, with a limit of 1.2: {first} (2x)"
    assert fleet.rollout(rollout).rollout.reason == reason
    for device in fleet.devices:
        device.step()
    assert fleet.goals == ["phone"] * COUNT
    with httpx.Client(base_url=fleet.url) as web:
        assert reason in web.get("/fleet").text


def test_a_package_that_cannot_be_installed_stops_and_nothing_has_changed(fleet: Fleet) -> None:
    fleet.add_devices()
    rollout = fleet.roll_out("other", 0.001, 1.0)
    fleet.until(lambda: fleet.state(rollout) is RolloutState.STOPPED)
    progress = fleet.rollout(rollout)
    assert progress.rollout.stage == 0
    assert progress.rollout.reason.startswith("1 of 1 device failed, 100% with a limit of 5%: device-")
    assert "cannot take the place of the package" in progress.rollout.reason
    assert fleet.goals == ["phone"] * COUNT
    assert [(stage.devices, stage.failed) for stage in progress.stages] == [(1, 1), (COUNT - 1, 0)]


def test_a_package_with_a_signature_of_another_key_stops(fleet: Fleet) -> None:
    key = PrivateKey.generate()
    fleet.add_devices()
    for device in fleet.devices:
        device.stop()
        sign_package(device.package, key)
        device.settings["trusted"] = [key.public]
        device.start()
    rollout = fleet.roll_out("good")
    fleet.until(lambda: fleet.state(rollout) is RolloutState.STOPPED)
    assert "is not from a trusted server" in fleet.rollout(rollout).rollout.reason
    assert fleet.goals == ["phone"] * COUNT


def test_servers_and_monitors_may_restart_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_reports, "_INTERVAL_SECONDS", 0.02)
    fleet = Fleet(tmp_path)
    with fleet.serve() as (fleet.address, fleet.url):
        fleet.add_devices()
        rollout = fleet.roll_out("good", 0.001, 1.0, after_seconds=3600.0)
        fleet.until(lambda: fleet.rollout(rollout).stages[0].installed == 1)
        before = fleet.rollout(rollout)
        assert sorted(fleet.goals) == ["good", *["phone"] * (COUNT - 1)]
    for device in fleet.devices:
        device.step()
    goals = fleet.goals
    with fleet.serve() as (fleet.address, fleet.url):
        for device in fleet.devices[:2]:
            device.stop()
            device.start()
        assert fleet.rollout(rollout).rollout == before.rollout
        fleet.until(lambda: fleet.rollout(rollout).stages[0].installed == 1)
        assert fleet.goals == goals
        with RolloutsClient(fleet.address) as client:
            client.roll_back(rollout)
        fleet.until(lambda: fleet.goals == ["phone"] * COUNT)
        fleet.stop()


def test_the_same_target_has_one_roll_out(fleet: Fleet) -> None:
    fleet.add_devices()
    rollout = fleet.roll_out("good", 0.001, 1.0, after_seconds=3600.0)
    with pytest.raises(MistifyError, match=f"the roll-out {rollout} of the package") as caught:
        fleet.roll_out("slow")
    assert caught.value.code is ErrorCode.CONFLICT
