"""Equation 1 of CrowdHMTware."""

from dataclasses import dataclass

import pytest

from mistify.costs.axes import costs_of, known_axes
from mistify.costs.catalogue import HOST
from mistify.costs.energy import ENERGY, GPU, EnergyOrigin, energy, origin_on
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from tests.mistify.costs.test_network import layer, residual

#: The test network has 6,000 multiply-adds and 590 weights. A multiply-add takes 4.6 pJ with floats.
COMPUTING = 6_000
WORDS = 590


@pytest.mark.parametrize(
    ("hit_rate", "accesses"), [(0.0, 200 * WORDS), (1.0, 6 * WORDS), (0.25, 0.25 * 6 * WORDS + 150 * WORDS)]
)
def test_accesses_are_divided_by_the_hit_rate(hit_rate, accesses):
    found = energy(residual(), Quantization.NONE, HOST, hit_rate)
    assert found.mj == pytest.approx(4.6e-9 * (COMPUTING + accesses))
    assert found.origin is EnergyOrigin.PUBLISHED


def test_a_gpu_also_accesses_its_shared_memory():
    found = energy(residual(), Quantization.NONE, HOST, 1.0, GPU)
    assert found.mj == pytest.approx(4.6e-9 * (COMPUTING + 8 * WORDS))


def test_integers_need_less_energy():
    network = residual()
    found = energy(network, Quantization.INT8, HOST).mj
    words = network.weight_bytes(Quantization.INT8) / 4
    assert found == pytest.approx(1e-9 * (0.23 * COMPUTING + 200 * 4.6 * words))


@dataclass(frozen=True)
class Metered(NominalProfile):
    """A device that measures 2 mJ for every network."""

    has_measured_power = True

    def energy_mj(self, network):
        return 2.0


def test_measured_watts_take_precedence():
    found = energy(residual(), Quantization.NONE, Metered("board", 1.0, 1.0))
    assert (found.mj, found.origin) == (2.0, EnergyOrigin.FITTED)


def test_the_axis_has_this_energy_on_each_hardware_at_each_precision():
    board, network = Metered("board", 1.0, 1.0), residual()
    costs = costs_of(network, [HOST, board])
    assert ENERGY in known_axes()
    assert costs["energy_mj@board"] == costs["energy_mj@board@int8"] == 2.0
    for precision in (Quantization.NONE, Quantization.DYNAMIC, Quantization.INT8):
        assert costs[ENERGY.named("host", precision)] == energy(network, precision, HOST).mj
    assert [origin_on(one) for one in (HOST, board)] == [EnergyOrigin.PUBLISHED, EnergyOrigin.FITTED]


def test_a_part_of_a_network_without_weights_has_a_positive_energy():
    pooled = NetworkCost((layer("pool", [0], 1),), (64, 4), (0,), (1,))
    assert costs_of(pooled, [HOST])["energy_mj@host"] > 0
