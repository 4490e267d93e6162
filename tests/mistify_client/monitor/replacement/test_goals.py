import json
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.porting import PortingConfig
from mistify.config.reading import OF_ANY_JOB, collective_batches, parse_batch
from mistify.parsing.quantities import parse_time
from mistify_client.monitor.replacement.goals import Shortfall, new_goal
from mistify_client.monitor.state.targets import Targets
from tests.mistify_client.monitor.conftest import manifest, three_branches

CONFIG = {
    "id": "phone",
    "model": "digits-resnet",
    "dataset": {"train": "train.npz", "test": "test.npz", "augment": {"flip": True}},
    "algorithm": {"name": "Morphnet", "config": {"threshold": 0.2}},
    "adaptation_goal": {"latency": "100ms", "accuracy": "0.7"},
    "hardware": "board",
    "quantization": "float16",
    "branches": {"count": 3, "from": "1/3x", "to": "3x"},
}


def template(**changes: object) -> PortingConfig:
    return PortingConfig.model_validate(CONFIG | changes)


def asked(shortfall: Shortfall, package=None, **changes: object) -> PortingConfig:
    (config,) = parse_batch(new_goal(template(**changes), package or three_branches(), shortfall).config)
    return config


def test_the_goal_omits_what_the_template_leaves_to_the_job():
    text = json.dumps({"id": "phone", "adaptation_goal": {"latency": "100ms"}})
    (left_out,) = parse_batch(text, common=OF_ANY_JOB)
    (goal,) = json.loads(new_goal(left_out, three_branches(), SHORT).config)
    assert goal.keys() == {"id", "adaptation_goal"}


SHORT = Shortfall(Targets(latency="20ms"), ratio=8.0, fastest_ms=32.0)


def test_the_latency_limit_is_the_target_divided_by_the_ratio():
    assert 20 / 8 / 1.1 < asked(SHORT).adaptation_goal.latency.value <= 20 / 8


@pytest.mark.parametrize(
    ("fixed_ms", "share"),
    [(8.0, 12 / 24), (18.0, 20 / 32 / 2), (25.0, 20 / 32)],
    ids=["of what a smaller network saves", "at most twice as far", "of all where nothing can be saved"],
)
def test_fixed_time_is_subtracted_from_the_limits(fixed_ms, share):
    short = Shortfall(SHORT.targets, SHORT.ratio, SHORT.fastest_ms, fixed_ms)
    expected = share * 32 / 8
    assert expected / 1.1 < asked(short).adaptation_goal.latency.value <= expected * 1.001
    flops = asked(short, adaptation_goal={"FLOP": "0.5x"}).adaptation_goal.FLOP.value
    assert share * 4e6 / 1.1 < flops <= share * 4e6 * 1.001


def test_a_template_that_limits_multiply_adds_gives_a_goal_that_limits_them():
    goal = asked(SHORT, adaptation_goal={"FLOP": "0.5x"}).adaptation_goal
    least = 4e6 * 20 / 32  # the fastest branch has 4 million multiply-adds
    assert goal.latency is None
    assert least / 1.1 < goal.FLOP.value <= least


def test_all_other_settings_come_from_the_template():
    goal = asked(SHORT)
    changed = {"id", "adaptation_goal"}
    assert goal.model_dump(exclude=changed) == template().model_dump(exclude=changed)
    assert goal.adaptation_goal.accuracy == {"": 0.7}
    # The server adapts configs with the same model, dataset and algorithm together.
    assert len(collective_batches([goal, template()])) == 1


def test_targets_for_memory_energy_and_accuracy_become_limits():
    goal = asked(Shortfall(Targets(memory="2MB", energy="3mJ", accuracy="85%"), 1.0, 1.0)).adaptation_goal
    assert (goal.memory.value, goal.energy.value, goal.accuracy) == (2e6, 3.0, {"": 0.85})
    assert goal.latency.value == 100.0


def test_an_accuracy_target_of_the_device_keeps_those_of_outputs():
    short = Shortfall(Targets(accuracy="85%"), 1.0, 1.0)
    by_output = {"FLOP": "0.5x", "accuracy": {"price": 0.05}}
    assert asked(short, adaptation_goal=by_output).adaptation_goal.accuracy == {"": 0.85, "price": 0.05}


def test_a_goal_is_made_for_a_package_without_branches():
    goal = asked(SHORT, manifest(), adaptation_goal={"FLOP": "0.5x"}).adaptation_goal
    assert goal.FLOP.value <= 10e6 * 20 / 32


@given(st.floats(0.01, 1000), st.floats(0.001, 1000))
def test_limits_are_tight_enough_and_rounded_to_steps(latency, ratio):
    short = Shortfall(Targets.model_validate({"latency": latency}), ratio, 1.0)
    text = json.loads(new_goal(template(), three_branches(), short).config)
    limit = parse_time(text[0]["adaptation_goal"]["latency"]).value
    assert latency / ratio / 1.102 < limit <= latency / ratio * 1.001
    steps = log(limit, 1.1)
    assert steps == pytest.approx(round(steps), abs=0.01)


def test_nearly_equal_conditions_give_the_same_goal():
    ids = {
        new_goal(template(), three_branches(), Shortfall(SHORT.targets, r, r)).id for r in (8.0, 8.05, 8.1)
    }
    assert len(ids) == 1
    assert new_goal(template(), three_branches(), Shortfall(SHORT.targets, 12.0, 48.0)).id not in ids
    tighter = Shortfall(Targets(latency="20ms", memory="1MB"), 8.0, 32.0)
    assert new_goal(template(), three_branches(), tighter).id not in ids


def test_long_ids_are_shortened():
    long = template(id="x" * 64)
    assert len(asked_id := new_goal(long, three_branches(), SHORT).id) == 64
    assert asked_id.startswith("xxx")


@pytest.mark.parametrize(
    "limits", [{"latency": "1ms"}, {"FLOP": 5, "latency": "1ms"}, {"num_of_params": "20M"}]
)
def test_latency_is_not_limited_on_hardware_that_the_package_has_no_latency_for(limits):
    """The ratio compares latencies on the device with those on the host."""
    new = new_goal(template(hardware="jetson-nano", adaptation_goal=limits), three_branches(), SHORT)
    (config,) = parse_batch(new.config)
    assert config.adaptation_goal.latency is None
    assert 4e6 * 20 / 32 / 1.1 < config.adaptation_goal.FLOP.value <= 4e6 * 20 / 32
    assert new.reason.endswith("multiply-adds are limited, the package has no latency for jetson-nano")


def test_latency_is_not_limited_if_the_package_was_measured_with_other_threads():
    package = manifest()
    four = package.model_copy(update={"latency": package.latency.model_copy(update={"threads": 4})})
    for made, threads in ((package, 4), (four, 1)):
        new = new_goal(template(hardware=None, threads=threads), made, SHORT)
        (config,) = parse_batch(new.config)
        assert (config.adaptation_goal.latency, config.threads) == (None, threads)
        assert new.reason.endswith(
            f"the package was measured with threads: {made.latency.threads}, the goal has threads: {threads}"
        )
    assert asked(SHORT, four, hardware=None, threads=4).adaptation_goal.latency.value <= 20 / 8


def test_latency_on_the_host_can_always_be_limited():
    assert asked(SHORT, hardware=None).adaptation_goal.latency.value <= 20 / 8


def test_a_template_may_limit_latency_and_multiply_adds():
    goal = asked(SHORT, adaptation_goal={"FLOP": 5, "latency": "1ms"}).adaptation_goal
    assert 1e6 < goal.FLOP.value < 4e6
    assert 2 < goal.latency.value < 2.5
