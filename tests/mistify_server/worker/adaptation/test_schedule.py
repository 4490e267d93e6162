"""Structure-loss scheduling, compared with values computed by hand (paper, section 4.3)."""

import pytest

from mistify_server.worker.adaptation.schedule import StructureLossSchedule

START = {"flops": 1000.0, "params": 100.0, "memory_bytes": 50.0}


def schedule(interval=200, **budget):
    return StructureLossSchedule(budget, START, interval)


def test_the_weights_start_equal():
    assert schedule(flops=500.0, params=90.0).weights(START, 0) == {"flops": 0.5, "params": 0.5}


def test_the_weights_start_equal_over_the_unmet_axes():
    weights = schedule(flops=500.0, params=90.0, memory_bytes=60.0).weights(START, 0)
    assert weights == {"flops": 0.5, "params": 0.5, "memory_bytes": 0.0}


def test_two_shares_match_values_computed_by_hand():
    # flops: (400 - 800) / (400 - 1000) = 2/3; params: (50 - 75) / (50 - 100) = 1/2; their sum is 7/6.
    now = {"flops": 800.0, "params": 75.0}
    weights = schedule(flops=400.0, params=50.0).weights(now, 200)
    assert weights == pytest.approx({"flops": 4 / 7, "params": 3 / 7})


def test_three_shares_match_values_computed_by_hand():
    # flops: (500 - 600) / (500 - 1000) = 1/5; params: (20 - 60) / (20 - 100) = 1/2;
    # memory: (40 - 48) / (40 - 50) = 4/5; their sum is 3/2.
    now = {"flops": 600.0, "params": 60.0, "memory_bytes": 48.0}
    weights = schedule(flops=500.0, params=20.0, memory_bytes=40.0).weights(now, 200)
    assert weights == pytest.approx({"flops": 2 / 15, "params": 5 / 15, "memory_bytes": 8 / 15})


def test_the_weights_change_only_every_k_steps():
    scheduled = schedule(interval=200, flops=500.0, params=50.0)
    equal = {"flops": 0.5, "params": 0.5}
    # flops: 200/500 = 2/5; params: 40/50 = 4/5.
    at_200 = pytest.approx({"flops": 1 / 3, "params": 2 / 3})
    # flops: 100/500 = 1/5; params: 5/50 = 1/10.
    at_400 = pytest.approx({"flops": 2 / 3, "params": 1 / 3})
    assert scheduled.weights({"flops": 900.0, "params": 95.0}, 50) == equal
    assert scheduled.weights({"flops": 800.0, "params": 95.0}, 199) == equal
    assert scheduled.weights({"flops": 700.0, "params": 90.0}, 200) == at_200
    assert scheduled.weights({"flops": 600.0, "params": 60.0}, 399) == at_200
    assert scheduled.weights({"flops": 600.0, "params": 55.0}, 400) == at_400
    assert scheduled.weights({"flops": 500.0, "params": 55.0}, 599) == at_400


def test_the_schedule_is_applied_at_the_first_step_after_k_steps():
    scheduled = schedule(interval=100, flops=500.0, params=50.0)
    now = {"flops": 600.0, "params": 90.0}  # 1/5 and 4/5
    assert scheduled.weights(now, 60) == {"flops": 0.5, "params": 0.5}
    assert scheduled.weights(now, 120) == pytest.approx({"flops": 0.2, "params": 0.8})


@pytest.mark.parametrize("flops", [500.0, 499.0, 1.0])
def test_a_met_constraint_has_share_0(flops):
    weights = schedule(flops=500.0, params=50.0).weights({"flops": flops, "params": 99.0}, 200)
    assert weights == {"flops": 0.0, "params": 1.0}


def test_weights_are_equal_once_all_constraints_are_met():
    weights = schedule(flops=500.0, params=50.0).weights({"flops": 400.0, "params": 50.0}, 200)
    assert weights == {"flops": 0.5, "params": 0.5}
    assert schedule(flops=2000.0, params=200.0).weights(START, 0) == {"flops": 0.5, "params": 0.5}


def test_a_constraint_that_is_violated_again_counts_fully():
    # memory was within its limit at the start: its share is 1; flops: 100/500 = 1/5.
    now = {"flops": 600.0, "memory_bytes": 70.0}
    weights = schedule(flops=500.0, memory_bytes=60.0).weights(now, 200)
    assert weights == pytest.approx({"flops": 1 / 6, "memory_bytes": 5 / 6})


@pytest.mark.parametrize("step", [0, 200, 400])
@pytest.mark.parametrize("now", [START, {"flops": 501.0, "params": 3.0, "memory_bytes": 50.0}])
def test_the_weights_sum_to_1(step, now):
    weights = schedule(flops=500.0, params=5.0, memory_bytes=10.0).weights(now, step)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert list(weights) == ["flops", "params", "memory_bytes"]


def test_the_caller_cannot_change_the_schedule():
    scheduled = schedule(flops=500.0, params=50.0)
    scheduled.weights(START, 0)["flops"] = 7.0
    assert scheduled.weights(START, 1) == {"flops": 0.5, "params": 0.5}
