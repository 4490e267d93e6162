"""The state of a device from files in the layout of Linux, in a directory of the test."""

import os

import pytest

from mistify_client.monitor.sensing.power import PowerMeter
from mistify_client.monitor.sensing.sensors import DeviceSensor
from mistify_client.monitor.sensing.system import SystemFiles

PID = 42
PRESSURE = (
    "some avg10=12.50 avg60=3.00 avg300=1.00 total=99\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=9\n"
)


@pytest.fixture
def write(tmp_path):
    def write(**files: str) -> SystemFiles:
        """Write files by path, with `__` for a slash."""
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return SystemFiles(tmp_path / "proc", tmp_path / "sys")

    return write


def test_a_system_without_any_of_the_files_has_no_values(write):
    files = write()
    assert files.pressure("cpu") is None
    assert files.memory_headroom(PID) is None
    assert files.battery_watts() is None
    assert PowerMeter(files).watts() is None


def test_the_reading_of_a_sensor_includes_pressure_and_power(write):
    supply = "sys__class__power_supply__BAT0__"
    files = write(
        proc__pressure__cpu=PRESSURE,
        **{f"{supply}status": "Discharging\n", f"{supply}power_now": "7500000\n"},
    )
    reading = DeviceSensor(files)()
    assert (reading.cpu_pressure, reading.memory_pressure, reading.watts) == (0.125, None, 7.5)


@pytest.mark.parametrize("text", ["", "full avg10=1.0\n", "some\n", "some avg10=much\n"])
def test_a_pressure_in_another_format_is_unknown(write, text):
    assert write(proc__pressure__memory=text).pressure("memory") is None


GROUPS = {
    "proc__42__cgroup": "0::/apps/camera\n",
    "sys__fs__cgroup__apps__memory.max": "1000\n",
    "sys__fs__cgroup__apps__memory.current": "700\n",
    "sys__fs__cgroup__apps__memory.stat": "anon 500\ninactive_file 150\n",
    "sys__fs__cgroup__apps__camera__memory.max": "max\n",
    "sys__fs__cgroup__apps__camera__memory.current": "200\n",
}


def test_the_headroom_is_that_of_the_tightest_control_group(write):
    """The group of the app has no limit, but the one around it; its cached files can be dropped."""
    files = write(**GROUPS)
    assert files.memory_headroom(PID) == 1000 - 700 + 150
    write(**{"sys__fs__cgroup__apps__camera__memory.max": "300\n"})
    assert files.memory_headroom(PID) == 100
    write(**{"sys__fs__cgroup__apps__camera__memory.max": "150\n"})
    assert files.memory_headroom(PID) == 0
    assert files.memory_headroom(PID + 1) is None


def test_control_groups_of_version_1_are_read(write):
    none, one = str(2**63 - 4096), "sys__fs__cgroup__memory__pod__memory"
    files = write(
        **{
            "proc__42__cgroup": "5:cpu,cpuacct:/\n4:memory:/pod\n0::/\n",
            "sys__fs__cgroup__memory__memory.limit_in_bytes": none,
            "sys__fs__cgroup__memory__memory.usage_in_bytes": "5000",
            f"{one}.limit_in_bytes": "4000",
            f"{one}.usage_in_bytes": "1000",
            f"{one}.stat": "inactive_file 7\ntotal_inactive_file 500\n",
        }
    )
    assert files.memory_headroom(PID) == 3500
    write(**{f"{one}.limit_in_bytes": none})
    assert files.memory_headroom(PID) is None


def test_this_process_is_read_without_an_error():
    headroom = SystemFiles().memory_headroom(os.getpid())
    assert headroom is None or headroom >= 0


def test_the_power_of_a_battery_counts_while_it_discharges(write):
    battery = "sys__class__power_supply__BAT{}__{}".format
    files = write(
        **{
            battery(0, "status"): "Discharging",
            battery(0, "current_now"): "-2000000",
            battery(0, "voltage_now"): "5000000",
            battery(1, "status"): "Discharging",
            battery(1, "power_now"): "1500000",
            battery(2, "status"): "Charging",
            battery(2, "power_now"): "30000000",
        }
    )
    assert PowerMeter(files).watts() == pytest.approx(11.5)
    write(**{battery(number, "status"): "Full" for number in (0, 1)})
    assert PowerMeter(files).watts() is None


def test_the_processors_meter_takes_precedence_and_needs_two_readings(write):
    zone = "sys__class__powercap__intel-rapl:0__{}".format
    counter = {zone("name"): "package-0", zone("max_energy_range_uj"): "100000000"}
    files = write(
        **counter,
        **{zone("energy_uj"): "1000000"},
        sys__class__power_supply__BAT0__status="Discharging",
        sys__class__power_supply__BAT0__power_now="9000000",
    )
    seconds = iter([10.0, 12.0, 12.0])
    meter = PowerMeter(files, lambda: next(seconds))
    assert meter.watts() is None
    write(**{zone("energy_uj"): "7000000"})
    assert meter.watts() == pytest.approx(3.0)
    assert meter.watts() is None
