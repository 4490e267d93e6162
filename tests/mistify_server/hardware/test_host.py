"""The profile of this machine is kept until it is measured again, or the machine changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from mistify.costs.devices import DeviceTable
from mistify.errors import MistifyError
from mistify.machine import machine, runtime
from mistify_server.hardware.host import kept_host, measured_host, register_host
from tests.support.boards import table


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def host_table(times: float = 1.0) -> DeviceTable:
    """Return a table of this machine with the latencies of the invented device times a factor."""
    readings = [replace(reading, median_ms=times * reading.median_ms) for reading in table().readings]
    return replace(table(), name="host", machine=machine(), runtime=runtime(), readings=tuple(readings))


def test_a_refined_profile_replaces_the_short_one() -> None:
    assert kept_host() is None
    short = measured_host(host_table)
    assert kept_host() == short
    refined = register_host(host_table(2.0))
    assert measured_host(lambda: pytest.fail("measured again")) == refined == kept_host()
    assert [profile.name for profile in refined.profiles] == ["host", "host@int8"]
    assert [setting.integer for setting in refined.device.settings] == [False, True]
    start = refined.profiles[0].model.start
    assert start == pytest.approx(2 * short.profiles[0].model.start, rel=0.1)


def test_a_table_without_one_thread_is_refused() -> None:
    """Otherwise, goals without a number of threads would have no predictions."""
    four = [replace(reading, threads=4) for reading in host_table().readings]
    with pytest.raises(MistifyError, match="none with one thread"):
        register_host(replace(host_table(), readings=tuple(four)))
    assert kept_host() is None
    both = register_host(replace(host_table(), readings=(*host_table().readings, *four)))
    assert {profile.threads for profile in both.profiles} == {1, 4}


@pytest.mark.parametrize("name", ["machine", "runtime"])
def test_a_profile_is_only_valid_for_its_processor_and_runtime(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_host(host_table())
    monkeypatch.setattr(f"mistify_server.hardware.host.{name}", lambda: "another")
    assert kept_host() is None
    with pytest.raises(MistifyError, match=f'{name}: got .*expected "?another'):
        register_host(host_table())
