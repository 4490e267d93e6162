"""Hardware profiles."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from mistify.config.hardware import HardwareConfig, unknown_hardware
from mistify.config.reading import parse_batch
from mistify.costs.catalogue import HOST, catalogue, data_sheet
from mistify.costs.profiles import NominalProfile
from mistify.errors import MistifyError

TABLE_1 = {
    "v100": (112e3, 900),
    "2080": (11.7e3, 480),
    "jetson-tx2": (1.5e3, 58),
    "jetson-nano": (470, 25),
    "raspberry-pi": (6, 8.5),
}


def test_the_catalogue_matches_table_1():
    assert {
        name: (profile.compute_power, profile.memory_bandwidth)
        for name, profile in catalogue().items()
        if name in TABLE_1
    } == TABLE_1
    assert catalogue()["edge-tpu"].compute_power == 4e3


@pytest.mark.parametrize("name", ["jetson-nano", "Jetson Nano", " JETSON_NANO "])
def test_hardware_names_ignore_case(name):
    assert HardwareConfig.model_validate(name).nominal.compute_power == 470
    assert HardwareConfig.model_validate({"name": name}).nominal.name == "jetson-nano"


def test_custom_hardware_is_described_by_its_figures():
    figures = {"compute_power": "10GFLOP/s", "memory_bandwidth": 8.5}

    assert HardwareConfig.model_validate(figures).nominal == data_sheet("10gflops-8.5gbs", 10, 8.5)
    named = HardwareConfig.model_validate({"name": "Watch", **figures}).nominal
    assert named == data_sheet("watch", 10, 8.5)
    assert named.efficiency is not None


def test_a_name_outside_the_catalogue_is_a_measured_device():
    assert HardwareConfig.model_validate("My Board").nominal is None
    assert HardwareConfig.model_validate("My Board").name == "my-board"


def test_an_unknown_name_is_reported_with_all_known_ones():
    reported = unknown_hardware("jetson-nan", ["my-board"])
    assert "jetson-nano" in reported.expected
    assert "of the measured devices my-board" in reported.expected
    assert reported.fix.startswith('did you mean "jetson-nano"?')
    assert "mistify profile-device --name jetson-nan" in reported.fix
    assert unknown_hardware("my-bord", ["my-board"]).fix.startswith('did you mean "my-board"?')


@pytest.mark.parametrize(
    "value",
    [
        {"compute_power": 3},
        {"name": "t4", "memory_bandwidth": 3},
        {},
        {"name": "a@b", "compute_power": 3, "memory_bandwidth": 3},
        {"name": 5, "compute_power": 3, "memory_bandwidth": 3},
        {"compute_power": -3, "memory_bandwidth": 3},
    ],
)
def test_incomplete_hardware_is_refused(value):
    with pytest.raises(ValidationError):
        HardwareConfig.model_validate(value)


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        catalogue()["host"] = HOST


def goal(hardware: object, **settings: object) -> str:
    asked = {"model": "m", "dataset": {"train": "a", "test": "b"}, "adaptation_goal": {"latency": "5ms"}}
    return json.dumps({"id": "a", "hardware": hardware, **asked, **settings})


@pytest.mark.parametrize("precision", ["none", "float16", "dynamic"])
def test_a_precision_that_the_hardware_does_not_run_is_refused(precision):
    with pytest.raises(MistifyError) as refused:
        parse_batch(goal("edge-tpu", quantization=precision))
    (problem,) = refused.value.problems
    assert (problem.value, problem.expected) == (
        f'"{precision}"',
        "a precision that edge-tpu runs: int8 or int8-qat",
    )
    assert problem.fix == 'write "int8", leave "quantization" out, or name other hardware'


@pytest.mark.parametrize("precision", ["int8", "int8-qat", "auto"])
def test_a_precision_that_the_hardware_may_run_is_accepted(precision):
    assert len(parse_batch(goal("edge-tpu", quantization=precision))) == 1
    figures = {"name": "edge-tpu", "compute_power": "4TFLOP/s", "memory_bandwidth": "1GB/s"}
    assert len(parse_batch(goal(figures, quantization="none"))) == 1
    assert len(parse_batch(goal("jetson-nano", quantization="none"))) == 1


def test_a_package_with_integer_inputs_cannot_be_trained_on_the_device():
    with pytest.raises(MistifyError, match="no training on the device, which needs float32: edge-tpu runs"):
        parse_batch(goal("edge-tpu", tuning={"trainable": "network"}))


def test_a_package_with_integer_activations_cannot_be_adapted() -> None:
    with pytest.raises(MistifyError, match="no adaptation, which needs floats: edge-tpu runs"):
        parse_batch(goal("edge-tpu", tuning={"adaptation": True}))
    with pytest.raises(MistifyError, match="activations in floats") as error:
        parse_batch(goal(None, tuning={"adaptation": True}, quantization="int8"))
    assert '"dynamic" or "float16"' in str(error.value)
    assert parse_batch(goal(None, tuning={"adaptation": True}, quantization="float16"))


def test_profiles_without_accelerator_settings_are_serialized_as_before():
    kept = TypeAdapter(NominalProfile)
    pi = json.loads(kept.dump_json(catalogue()["raspberry-pi"]))
    assert not {"precisions", "inference_us", "operator_us"} & pi.keys()
    for profile in catalogue().values():
        assert kept.validate_json(kept.dump_json(profile)) == profile
