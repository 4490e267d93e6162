"""Energy counters in the layout of Linux's powercap."""

from pathlib import Path

import pytest

from mistify.profiling.energy import energy_counter

RANGE = 1_000_000


def zone(powercap: Path, number: str, name: str, count: int) -> Path:
    directory = powercap / f"intel-rapl:{number}"
    directory.mkdir(parents=True)
    (directory / "name").write_text(f"{name}\n")
    (directory / "energy_uj").write_text(f"{count}\n")
    (directory / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return directory / "energy_uj"


def test_processors_and_memory_are_added_up_without_double_counting(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 100)
    core = zone(tmp_path, "0:0", "core", 40)
    memory = zone(tmp_path, "0:1", "dram", 10)
    other = zone(tmp_path, "1", "package-1", 1000)
    system = zone(tmp_path, "2", "psys", 5000)
    counter = energy_counter(tmp_path)
    assert counter is not None
    before = counter()
    for path, count in ((package, 300), (core, 990), (memory, 15), (other, 1003), (system, 9000)):
        path.write_text(str(count))
    assert counter() - before == pytest.approx((200 + 5 + 3) / 1e6)


def test_an_overflow_of_the_counter_is_compensated(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 900_000)
    counter = energy_counter(tmp_path)
    assert counter is not None
    before = counter()
    for count in (100, 200, 50):
        package.write_text(str(count))
        last = counter()
    assert last - before == pytest.approx((2 * RANGE + 50 - 900_000) / 1e6)


def test_a_device_without_readable_counters_has_no_energy_counter(tmp_path: Path) -> None:
    assert energy_counter(tmp_path / "none") is None
    (zone(tmp_path, "0", "package-0", 5).parent / "max_energy_range_uj").unlink()
    assert energy_counter(tmp_path) is None
