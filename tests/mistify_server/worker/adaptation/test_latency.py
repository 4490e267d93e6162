"""Latency limits are judged by measurement, whatever the profiles predict."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile, Profile
from mistify.costs.quantization import Quantization
from mistify_server.worker.adaptation.edge import EdgeOutcome, run_edge
from mistify_server.worker.adaptation.latency import (
    LatencyReading,
    corrected,
    deviation_at,
    latencies,
    latency_meter,
    limits_latency,
    with_margin,
)
from mistify_server.worker.packaging.conversion.converter import SavedNetwork
from tests.mistify_server.worker.adaptation.machines import examples, measured_board, no_file_costs, predicted

LATENCY = "mistify_server.worker.adaptation.latency"

PI = NominalProfile("pi", 5.0, 1.0)
PARAMS = MorphNetParams(adapt_steps=8, tune_steps=1, max_steps=400, batch_size=8)


class Machine:
    """A machine with a latency of 0.3 ms for any network, and 1 ms in total for the source."""

    def __init__(self, source: keras.Model, any_network: float = 0.3) -> None:
        self._any = any_network
        self._factor = (1 - any_network) / predicted(source)
        self.measured: list[float] = []

    def __call__(self, network: keras.Model) -> float:
        self.measured.append(self._any + self._factor * predicted(network))
        return self.measured[-1]


def edge(
    model: keras.Model, data: Dataset, machine: Any, budget: dict[str, float], *others: Profile
) -> EdgeOutcome:
    params = TrainingParams(batch_size=8, learning_rate=1e-3, distillation=0.0)
    training_setup = TrainingSetup(data, examples(1), None, params)
    profiles = (*corrected((HOST,), 1 / predicted(model)), *others)
    assignment = Assignment(model, budget, profiles, training_setup, 1, analyse(model))
    return run_edge(
        MorphNetExecutor(PARAMS), assignment, PARAMS, (), lambda *_: None, measure=machine, read=no_file_costs
    )


def test_a_network_is_cut_until_the_machine_is_fast_enough(model: keras.Model, data: Dataset) -> None:
    """The profile predicts 0.57 ms for 0.57 of the source, but the machine takes 0.7 ms."""
    machine = Machine(model)
    outcome = edge(model, data, machine, {"latency_ms@host": 0.6})
    assert outcome.met
    assert machine.measured[:2] == [pytest.approx(1.0), pytest.approx(0.7, abs=0.01)]
    assert 0.95 * 0.57 < machine.measured[2] < 0.57
    assert machine.measured[3:] == [machine.measured[2]]  # first the plan, then the adapted network
    assert machine(outcome.model) <= 0.6
    assert outcome.costs["latency_ms@host"] <= 0.57
    assert predicted(outcome.model) / predicted(model) == pytest.approx((0.57 - 0.3) / 0.7, abs=0.02)


def test_plans_stay_between_earlier_ones_that_were_too_slow_or_too_fast(
    model: keras.Model, data: Dataset
) -> None:
    """Networks larger than 0.55 of the source take 1.5 times the predicted latency, others 0.7 times.

    Based only on the last measurement, plans would alternate between 0.38 and 0.81 of the source.
    """

    def measure(network: keras.Model) -> float:
        share = predicted(network) / predicted(model)
        return share * (1.5 if share > 0.55 else 0.7)

    outcome = edge(model, data, measure, {"latency_ms@host": 0.6})
    assert outcome.met
    assert 0.45 < predicted(outcome.model) / predicted(model) <= 0.55


def test_networks_that_cannot_run_here_are_judged_by_prediction(model: keras.Model, data: Dataset) -> None:
    outcome = edge(model, data, lambda network: None, {"latency_ms@host": 0.6})
    assert outcome.met
    assert 0.9 * 0.57 < predicted(outcome.model) / predicted(model) <= 0.57


def test_planning_continues_after_a_network_that_cannot_run(model: keras.Model, data: Dataset) -> None:
    """The source takes twice the predicted latency, and no other network runs."""
    outcome = edge(model, data, lambda network: 2.0 if network is model else None, {"latency_ms@host": 0.6})
    assert outcome.met
    assert predicted(outcome.model) / predicted(model) <= 0.57 / 2


def test_a_large_fixed_overhead_is_found_from_two_measurements(model: keras.Model, data: Dataset) -> None:
    """A third of the source takes 0.8 ms; a proportional correction would repeatedly remove 10%."""
    machine = Machine(model, any_network=0.7)
    outcome = edge(model, data, machine, {"latency_ms@host": 0.84})
    assert outcome.met
    assert machine(outcome.model) <= 0.84


@pytest.mark.parametrize(("limit", "second"), [(1.2, 1.1), (1.2, 1.0), (0.4, 0.3)])
def test_the_last_measurement_counts_if_the_limit_is_already_met(limit: float, second: float) -> None:
    """This happens if another limit is not met; the second network need not be faster than the first."""
    readings = [
        LatencyReading(predicted_ms, measured_ms, {"latency_ms@host": predicted_ms})
        for predicted_ms, measured_ms in ((1.0, 1.0), (0.5, second))
    ]
    assert deviation_at({"latency_ms@host": limit}, readings) == readings[-1].deviation


@pytest.mark.parametrize(("second", "times"), [(0.9, 2.0), (0.999, 2.0), (1.1, 2.0), (0.5, 1.0)])
def test_nearly_equal_measurements_at_most_double_the_cut(second: float, times: float) -> None:
    """The second network is predicted to take half the first one's 1 ms."""
    readings = [
        LatencyReading(predicted_ms, measured_ms, {"latency_ms@host": predicted_ms})
        for predicted_ms, measured_ms in ((1.0, 1.0), (0.5, second))
    ]
    deviation = deviation_at({"latency_ms@host": 0.4}, readings)
    assert deviation == pytest.approx(times * readings[-1].deviation)


def test_with_a_profile_of_operators_only_the_last_measurement_counts() -> None:
    """Such a profile contains the fixed overhead, so that nearly equal measurements are noise."""
    readings = [
        LatencyReading(predicted_ms, measured_ms, {"latency_ms@host": predicted_ms}, by_operators=True)
        for predicted_ms, measured_ms in ((1.0, 1.0), (0.5, 0.9))
    ]
    assert deviation_at({"latency_ms@host": 0.4}, readings) == pytest.approx(1.8)


@pytest.mark.parametrize("measured", [False, True])
def test_other_hardware_is_judged_only_by_prediction(
    model: keras.Model, data: Dataset, measured: bool
) -> None:
    """The latency on this machine is irrelevant for it, and is not measured."""
    board: Profile = measured_board() if measured else PI
    axis, source, machine = f"latency_ms@{board.name}", predicted(model, board), Machine(model, 0.9)
    outcome = edge(model, data, machine, {axis: 0.6 * source}, board)
    assert outcome.met
    assert outcome.costs[axis] == pytest.approx(predicted(outcome.model, board))
    assert 0.5 * source < predicted(outcome.model, board) <= 0.6 * source
    assert not machine.measured


def test_nothing_is_measured_without_a_latency_limit(model: keras.Model, data: Dataset) -> None:
    machine = Machine(model)
    assert edge(model, data, machine, {"flops": 0.9 * analyse(model).network().flops}).met
    assert not machine.measured


def test_the_correction_is_one_factor_for_all_networks_on_this_machine(model: keras.Model) -> None:
    host, pi = corrected((HOST, PI), 2.0)
    assert predicted(model, host) == pytest.approx(2 * predicted(model, HOST))
    assert pi == PI


def test_an_edge_is_judged_by_the_profile_of_its_precision(model: keras.Model, data: Dataset) -> None:
    """The int8 profile predicts half the float32 latency, and this is also measured."""
    integers = corrected((HOST,), 0.5 / predicted(model))[0]
    source = predicted(model)
    outcome = edge(
        model, data, lambda network: 0.5 * predicted(network) / source, {"latency_ms@host@int8": 0.25},
        replace(integers, name="host@int8"),
    )  # fmt: skip
    assert outcome.met
    assert outcome.costs["latency_ms@host@int8"] == pytest.approx(0.95 * 0.25, rel=0.05)
    assert outcome.costs["latency_ms@host"] == pytest.approx(2 * outcome.costs["latency_ms@host@int8"])


def test_an_edge_is_judged_by_the_profile_of_its_threads(model: keras.Model, data: Dataset) -> None:
    """Four threads halve the latency of one thread."""
    four = replace(corrected((HOST,), 0.5 / predicted(model))[0], name="host@4-threads", threads=4)
    source = predicted(model)

    def measure(network: keras.Model) -> float:
        return 0.5 * predicted(network) / source

    axis, limit = "latency_ms@host@4-threads", 0.5 * predicted(model, four)
    outcome = edge(model, data, measure, {axis: limit}, four)
    assert outcome.met
    assert outcome.costs[axis] == pytest.approx(0.95 * limit, rel=0.05)


def test_only_a_profile_with_one_thread_consists_of_operators(model: keras.Model) -> None:
    """Profiles for more threads only scale it, and do not separate overhead independent of threads."""
    one = replace(measured_board(), name="host")
    four = replace(one, name="host@4-threads", threads=4)
    for axis, by_operators in (("latency_ms@host", True), ("latency_ms@host@4-threads", False)):
        assert (
            LatencyReading.of(analyse(model).network(), 1.0, (one, four), {axis: 1.0}).by_operators
            is by_operators
        )


def test_latency_limits_leave_a_margin_for_noise() -> None:
    limits = dict.fromkeys(("flops", "latency_ms@pi", "latency_ms@host@int8"), 10.0)
    assert with_margin(limits) == {"flops": 10.0, "latency_ms@pi": 9.5, "latency_ms@host@int8": 9.5}
    assert [limits_latency({axis: 1.0}) for axis in limits] == [False, False, True]


@pytest.mark.slow
def test_a_node_is_measured_at_the_slowest_of_its_precisions(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An int8 network is smaller. A network that cannot run here does not count."""
    taken: list[int] = []
    running = [0, 1]

    def measured(networks: dict[int, bytes], threads: int) -> dict[int, Any]:
        assert threads == 4
        taken[:] = map(len, networks.values())
        return {key: SimpleNamespace(median_ms=1e6 / taken[key]) for key in running}

    monkeypatch.setattr(f"{LATENCY}.latencies_of", measured)
    asked = [QuantizationConfig(), QuantizationConfig(precision=Quantization.INT8_QAT)]
    assert latency_meter(asked, data, 4)(model) == 1e6 / min(taken)
    assert len(taken) == 2
    assert max(taken) > 2 * min(taken)
    del running[1]
    assert latency_meter(asked, data, 4)(model) == 1e6 / taken[0]
    running.clear()
    assert latency_meter(asked, data, 4)(model) is None


@pytest.mark.slow
def test_a_precision_at_which_a_network_cannot_be_converted_has_no_latency(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SavedNetwork.at

    def refusing(network: SavedNetwork, quantization: QuantizationConfig, *examples: Any) -> bytes:
        if quantization.precision.integer:
            raise RuntimeError("no integers")
        return at(network, quantization, *examples)

    monkeypatch.setattr(SavedNetwork, "at", refusing)
    taken = latencies(model, [Quantization.DYNAMIC, Quantization.INT8], data)
    assert list(taken) == [Quantization.NONE, Quantization.DYNAMIC]
    assert all(0 < milliseconds < 100 for milliseconds in taken.values())


def test_running_out_of_memory_is_not_blamed_on_the_precision(
    model: keras.Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SavedNetwork.at

    def exhausting(network: SavedNetwork, quantization: QuantizationConfig, *examples: Any) -> bytes:
        if quantization.precision.integer:
            raise MemoryError
        return at(network, quantization, *examples)

    monkeypatch.setattr(SavedNetwork, "at", exhausting)
    with pytest.raises(MemoryError):
        latencies(model, [Quantization.INT8], data)
