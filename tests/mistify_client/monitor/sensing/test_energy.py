"""The energy of options with and without a meter."""

import pytest

from mistify.costs.energy import Energy, EnergyOrigin
from mistify.package.option_kinds import OptionKind
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.sensing.bottleneck import Timing
from mistify_client.monitor.sensing.conditions import Conditions
from mistify_client.monitor.sensing.energy import EnergyModel
from mistify_client.runtime.options import Option, OptionCosts, OptionScore


def option(number: int, latency_ms: float, published_mj: float | None = None) -> Option:
    energy = None if published_mj is None else Energy(published_mj, EnergyOrigin.PUBLISHED)
    costs = OptionCosts(latency_ms, energy=energy)
    return Option(OptionKind.BRANCH, f"branch-{number}", Engine(), costs, OptionScore(0.5))


KNOWN = (option(0, 4.0, 0.001), option(1, 10.0, 0.005))
UNKNOWN = (option(0, 4.0, 0.001), option(1, 10.0))
#: An inference of 15 ms, 12 of them on the processor.
TIMING = Timing(expected_ms=10.0, latency_ms=15.0, computing_ms=12.0, before_ms=0.0)


def test_without_a_meter_energies_are_those_of_equation_1():
    model = EnergyModel()
    model.observe(KNOWN[1], KNOWN, TIMING, None)
    assert model.measured is None
    assert model.energies(KNOWN) == {each.id: each.costs.energy for each in KNOWN}
    assert model.energies(UNKNOWN) == {}


def test_a_meter_scales_equation_1_by_the_option_that_ran():
    model = EnergyModel()
    model.observe(KNOWN[1], KNOWN, TIMING, 2.5)
    assert model.measured == Energy(2.5 * 12.0, EnergyOrigin.MEASURED)
    assert model.energies(KNOWN) == {
        "branch-0": Energy(pytest.approx(6.0), EnergyOrigin.FITTED),
        "branch-1": Energy(pytest.approx(30.0), EnergyOrigin.FITTED),
    }


def test_with_a_meter_latencies_serve_as_ratios_where_equation_1_does_not_apply():
    model = EnergyModel()
    model.observe(UNKNOWN[1], UNKNOWN, TIMING, 2.5)
    assert [energy.mj for energy in model.energies(UNKNOWN).values()] == pytest.approx([12.0, 30.0])


def test_the_factor_follows_measurements_slowly_and_stays_without_them():
    model = EnergyModel()
    for watts in (2.5, 5.0, None, 0.0):
        model.observe(KNOWN[1], KNOWN, TIMING, watts)
    assert model.measured is None
    assert model.energies(KNOWN)["branch-1"].mj == pytest.approx(30 + 0.2 * 30)


def test_a_prediction_is_the_sum_of_its_parts():
    energy = Energy(3.0, EnergyOrigin.FITTED)
    conditions = Conditions(computing_share=0.8, energies={"branch-1": energy})
    predicted = conditions.predicted(KNOWN[1], ratio=1.5)
    assert (predicted.computing_ms, predicted.waiting_ms) == (pytest.approx(12.0), pytest.approx(3.0))
    assert (predicted.ms, predicted.energy) == (pytest.approx(15.0), energy)
    assert conditions.predicted(KNOWN[0], ratio=1.0).energy is None
