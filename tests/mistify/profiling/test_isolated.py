"""A device is measured in a separate process; networks that crash it are left out."""

import os

import pytest

from mistify.costs.devices import DeviceTable, OperatorTiming
from mistify.costs.operators import Operation, OperatorKind
from mistify.errors import MistifyError
from mistify.profiling import isolated
from mistify.profiling.isolated import Chains, measure_isolated
from mistify.profiling.measuring import Progress
from mistify.profiling.samples import Chain
from tests.support.ending import end


def dense(size: int) -> Chain:
    return (Operation(OperatorKind.DENSE, 1, size, size),)


CHAINS: Chains = {integer: tuple(map(dense, (4, 8, 16))) for integer in (False, True)}


def measure_or_end(
    name: str, threads: tuple[int, ...], chains: Chains, seconds: float, progress: Progress
) -> DeviceTable:
    """Measure, but abort for two networks: one in the second round, one with two threads."""
    readings = []
    for number in range(2):
        for count in threads:
            for integer in (False, True):
                for chain in chains[integer]:
                    if (number, count, integer, chain) in ((1, 1, True, dense(8)), (0, 2, False, dense(16))):
                        os.abort()
                    readings.append(OperatorTiming(chain, integer, count, 1.0))
                    progress(0.5)
    return DeviceTable(name, f"measured by {os.getpid()}", "runtime", tuple(readings))


def test_a_device_is_measured_in_a_separate_process() -> None:
    shares: list[float] = []
    table = measure_isolated("board", [1], chains=CHAINS, budget_seconds=1e-3, progress=shares.append)
    assert len(table.readings) == len(shares) == 6
    assert all(0 < reading.median_ms < 1000 for reading in table.readings)


def test_networks_that_crash_their_process_are_left_out() -> None:
    table = measure_isolated("board", [2, 1], chains=CHAINS, measure=measure_or_end)
    assert table.machine != f"measured by {os.getpid()}"
    left = {integer: tuple(chain for at, chain in _measured(table) if at is integer) for integer in CHAINS}
    assert left == {False: (dense(4), dense(8)), True: (dense(4), dense(16))}


def test_a_device_on_which_many_networks_crash_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_MOST_CRASHES", 2)
    with pytest.raises(MistifyError, match="cannot be measured: LiteRT ended at 2 networks"):
        measure_isolated("board", [1], chains=CHAINS, measure=end)


def _measured(table: DeviceTable) -> list[tuple[bool, Chain]]:
    """Return the measured networks, each of which may occur only once."""
    return list(dict.fromkeys((reading.integer, reading.operations) for reading in table.readings))
