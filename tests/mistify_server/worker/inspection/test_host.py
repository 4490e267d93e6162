"""This machine is profiled once, by measuring networks on it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mistify.costs.devices import DeviceTable
from mistify.jobs.job import ProgressUpdate
from mistify.profiling.measuring import Progress
from mistify_server.worker.inspection.host import host_profiles
from tests.support.boards import table


class Machine:
    """A machine that counts how often it is measured."""

    def __init__(self) -> None:
        self.measured = 0

    def __call__(self, progress: Progress) -> DeviceTable:
        self.measured += 1
        progress(0.5)
        return replace(table(), name="host")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def nothing(update: ProgressUpdate) -> None:
    pass


def test_a_machine_is_measured_once() -> None:
    machine, updates = Machine(), list[ProgressUpdate]()
    first = host_profiles(updates.append, machine)
    assert [profile.name for profile in first] == ["host", "host@int8"]
    assert [profile.integer for profile in first] == [False, True]
    assert [(update.stage, update.step) for update in updates] == [("profiling this machine", 50)]
    assert host_profiles(nothing, machine) == first
    assert machine.measured == 1


def test_another_processor_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    host_profiles(nothing, machine)
    monkeypatch.setattr("mistify_server.hardware.host.machine", lambda: "x86_64 another processor")
    host_profiles(nothing, machine)
    assert machine.measured == 2


@pytest.mark.parametrize("damage", [lambda content: content[:100], lambda content: b"[]"])
def test_a_damaged_profile_is_measured_again(cache: Path, damage: Callable[[bytes], bytes]) -> None:
    machine = Machine()
    first = host_profiles(nothing, machine)
    (path,) = cache.rglob("*.json")
    path.write_bytes(damage(path.read_bytes()))
    assert host_profiles(nothing, machine) == first
    assert machine.measured == 2


def test_a_failed_measurement_leaves_no_files(cache: Path) -> None:
    def broken(progress: Progress) -> DeviceTable:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        host_profiles(nothing, broken)
    assert not list(cache.rglob("*.json"))
    assert [profile.name for profile in host_profiles(nothing, Machine())] == ["host", "host@int8"]
