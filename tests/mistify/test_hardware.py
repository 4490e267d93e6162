"""Hardware profiles."""

import pytest
from pydantic import ValidationError

from mistify.hardware import HOST, HardwareConfig, catalogue, resolve
from mistify.profiles import NominalProfile

TABLE_1 = {
    "v100": (112e3, 900),
    "2080": (11.7e3, 480),
    "jetson-tx2": (1.5e3, 58),
    "jetson-nano": (470, 25),
    "raspberry-pi": (6, 8.5),
}


def test_table_1():
    assert {
        name: (profile.compute_power, profile.memory_bandwidth)
        for name, profile in catalogue().items()
        if name in TABLE_1
    } == TABLE_1
    assert catalogue()["edge-tpu"].compute_power == 4e3


@pytest.mark.parametrize("name", ["jetson-nano", "Jetson Nano", " JETSON_NANO "])
def test_names_in_any_case(name):
    assert resolve(HardwareConfig.model_validate(name)).compute_power == 470
    assert resolve(HardwareConfig.model_validate({"name": name})).name == "jetson-nano"


def test_figures_of_ones_own():
    figures = {"compute_power": "10GFLOP/s", "memory_bandwidth": 8.5}

    assert resolve(HardwareConfig.model_validate(figures)) == NominalProfile("10gflops-8.5gbs", 10, 8.5)
    assert resolve(HardwareConfig.model_validate({"name": "Watch", **figures})) == NominalProfile(
        "watch", 10, 8.5
    )


def test_no_hardware_is_the_host():
    assert resolve(None) == HOST


@pytest.mark.parametrize(
    "given",
    [
        "jetson-nan",
        {"name": "watch"},
        {"compute_power": 3},
        {"name": "t4", "memory_bandwidth": 3},
        {},
        {"name": "a@b", "compute_power": 3, "memory_bandwidth": 3},
        {"name": 5, "compute_power": 3, "memory_bandwidth": 3},
        {"compute_power": -3, "memory_bandwidth": 3},
    ],
)
def test_unknown_or_incomplete_hardware(given):
    with pytest.raises(ValidationError):
        HardwareConfig.model_validate(given)


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        catalogue()["host"] = HOST
