"""Measuring respects its time limit by running fewer rounds, never fewer networks."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from mistify.costs.latency import routine_of
from mistify.costs.operators import Operation, OperatorKind
from mistify.profiling import measuring
from mistify.profiling.measuring import best_of_parts_ms, load_network, measure_device, random_input
from mistify.profiling.networks import network_of
from mistify.profiling.samples import Chain

CHAINS = [(Operation(OperatorKind.DENSE, 1, size, size),) for size in (4, 8, 16)]


def chains(integer: bool) -> Iterator[Chain]:
    return iter(CHAINS)


class Ticks:
    """A clock that advances by a fixed time at each reading."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def test_every_network_is_measured_with_every_setting_even_in_a_short_time() -> None:
    table = measure_device("board", [2, 1, 2], chains=chains, budget_seconds=1e-3)
    settings = [(reading.integer, reading.threads, reading.operations) for reading in table.readings]
    assert len(settings) == len(set(settings)) == 3 * 2 * 2
    assert {(integer, threads) for integer, threads, _ in settings} == {
        (integer, threads) for integer in (False, True) for threads in (1, 2)
    }
    assert all(0 < reading.median_ms < 1000 for reading in table.readings)
    assert {routine_of(operation) for reading in table.readings for operation in reading.operations} == {
        "dense-vector"
    }
    assert table.runtime.startswith("ai-edge-litert ")


def test_rounds_continue_until_the_time_is_up() -> None:
    shares: list[float] = []
    clock = Ticks(0.01)
    measure_device("board", [1], chains=chains, budget_seconds=5.0, progress=shares.append, clock=clock)
    assert len(shares) > 2 * 6
    assert shares == sorted(shares)
    assert shares[-1] <= 1.0
    assert 5.0 <= clock.now < 5.5


@pytest.mark.parametrize(("run_seconds", "runs"), [(0.003, 6), (0.03, 6), (0.06, 4), (2.0, 2)])
def test_a_slow_network_runs_less_often_in_a_round(
    run_seconds: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, taken = Ticks(0.0), []

    def run() -> None:
        clock.now += run_seconds
        taken.append(run_seconds)

    monkeypatch.setattr(measuring, "load_network", lambda content, threads: run)
    table = measure_device("board", [1], chains=chains, budget_seconds=1e-6, clock=clock)
    assert len(taken) == runs * len(table.readings)
    assert [reading.median_ms for reading in table.readings] == pytest.approx([1e3 * run_seconds] * 6)


@pytest.mark.parametrize(
    ("dtype", "most"), [(np.float32, 1.0), (np.int8, 127.0), (np.uint8, 127.0), (np.int32, 0.0)]
)
def test_half_of_an_input_is_zero_and_indices_are_in_range(dtype: type, most: float) -> None:
    values = random_input((1, 1000), dtype)
    assert (values.dtype, values.shape) == (dtype, (1, 1000))
    assert values.min() == 0
    assert 0.98 * most <= values.max() <= most
    if most:
        assert 0.4 < np.mean(values > 0) < 0.6


def test_a_network_runs_on_random_inputs() -> None:
    run = load_network(network_of(CHAINS[0], integer=False), threads=1)
    run()
    interpreter = run.__self__  # type: ignore[attr-defined]
    (entry,) = interpreter.get_input_details()
    assert interpreter.get_tensor(entry["index"]).tolist() == random_input((1, 4), np.float32).tolist()


def test_power_is_recorded_for_each_setting() -> None:
    """The device uses a fixed number of joules per second on the clock."""
    clock = Ticks(0.01)
    table = measure_device(
        "board", [1, 2], chains=chains, budget_seconds=1.0, clock=clock, energy=lambda: 7.0 * clock.now
    )
    assert [(power.integer, power.threads) for power in table.powers] == [
        (False, 1),
        (True, 1),
        (False, 2),
        (True, 2),
    ]
    assert [power.watts for power in table.powers] == pytest.approx([7.0] * 4, rel=0.05)
    assert measure_device("board", [1], chains=chains, budget_seconds=1e-3).powers == ()


def test_a_constant_energy_counter_is_ignored() -> None:
    """Virtual machines have such counters: a power of 0 would make the whole table invalid."""
    table = measure_device("board", [1], chains=chains, budget_seconds=1e-3, energy=lambda: 5.0)
    assert table.powers == ()


def test_networks_take_turns_and_the_best_time_of_each_part_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated clock, the parts of the second network take 5 and 1 ms, then 2 and 3 ms."""
    now, loaded = [0.0], []
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])
    rounds = {0: iter([[1], [1]]), 1: iter([[5, 1], [2, 3]])}

    def loading(number: int) -> measuring.TimedLoading:
        def load() -> Callable[[], Sequence[float]]:
            loaded.append(number)
            seconds = [taken / 1000 for taken in next(rounds[number])]

            def run() -> Sequence[float]:
                now[0] += sum(seconds)
                return seconds

            return run

        return load

    first_round = (3 + 6) * 1 + (3 + 3) * 6
    first, second = best_of_parts_ms([loading(0), loading(1)], first_round / 1000 + 0.010)
    assert loaded == [0, 1, 0, 1]
    assert first == pytest.approx([1])
    assert second == pytest.approx([2, 1])
