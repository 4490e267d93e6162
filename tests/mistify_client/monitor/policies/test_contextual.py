"""The decisions of the policy `contextual`."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mistify.config.data.metric import Metric
from mistify.costs.energy import Energy, EnergyOrigin
from mistify.package.option_kinds import OptionKind
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.policies.base import Situation, make_policy
from mistify_client.monitor.policies.criteria import Criterion
from mistify_client.monitor.policies.scoring import battery_preference
from mistify_client.monitor.sensing.conditions import Conditions
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, OptionCosts, OptionScore

#: Milliseconds, accuracy, megabytes and millijoules of three options.
SMALL, MIDDLE, LARGE = (5.0, 0.7, 1.0, 2.0), (10.0, 0.8, 2.0, 8.0), (20.0, 0.9, 4.0, 32.0)


def option(number, latency_ms, accuracy, megabytes=None, metric=Metric.ACCURACY):
    costs = OptionCosts(latency_ms, memory_bytes=None if megabytes is None else 1e6 * megabytes)
    return Option(OptionKind.BRANCH, f"branch-{number}", Engine(), costs, OptionScore(accuracy, metric))


def situation(figures=(SMALL, MIDDLE, LARGE), *, current=0, now=100.0, since=-math.inf, ratio=1.0, **rest):
    """Return a situation; `charge`, `free_mb` and the targets may be given."""
    options = tuple(option(number, *each[:3]) for number, each in enumerate(figures))
    energies = {
        one.id: Energy(each[3], EnergyOrigin.MEASURED)
        for one, each in zip(options, figures, strict=True)
        if len(each) > 3
    }
    free_mb, charge, plugged = (rest.pop(name, None) for name in ("free_mb", "charge", "plugged"))
    reading = SensorReading(battery=charge, plugged=plugged)
    memory = None if free_mb is None else 1e6 * free_mb
    return Situation(
        now,
        options[current].id,
        since,
        options,
        ratio,
        False,
        reading,
        reading,
        Targets(**rest),
        Conditions(memory_bytes=memory, energies=energies),
    )


def policy(**own):
    return make_policy({"name": "contextual", "dwell": "2s", "hysteresis": 0.1, **own})


def settled(given, **own):
    """Return the option that runs under steady conditions."""
    chosen, decided = given, policy(**own)
    for second in range(10):
        chosen = replace(chosen, now=100.0 + second)
        decision = decided.decide(chosen)
        if decision.option != chosen.option:
            chosen = replace(chosen, option=decision.option, since=chosen.now)
    return decision


ONLY = {name.value: {"importance": {name.value: 9}, "battery": "ignore"} for name in Criterion}


@pytest.mark.parametrize(
    ("criterion", "expected"), [("accuracy", 2), ("latency", 0), ("energy", 0), ("memory", 0)]
)
def test_a_single_criterion_decides(criterion, expected):
    for current in range(3):
        decision = settled(situation(current=current), **ONLY[criterion])
        assert (decision.option, decision.fits) == (f"branch-{expected}", True)


def test_the_score_is_the_weighted_sum_of_utilities():
    decision = settled(situation(), importance={"accuracy": 6, "energy": 2}, battery="ignore")
    assert decision.option == "branch-2"
    assert [(one.criterion, one.weight, one.utility) for one in decision.criteria] == [
        ("accuracy", 0.75, 1.0),
        ("energy", 0.25, 0.0),
    ]
    assert decision.reason.startswith(
        "branch-2 scores 0.75: accuracy 0.75 of 0.75, energy 0.00 of 0.25; latency 20ms"
    )


def independent_scores(figures, weights, charge):
    """Return the scores with equation 3, without the policy's code."""
    ms, accuracy, megabytes, mj = np.array(figures, float).T
    mu = math.log10(1 + 9 * charge)
    columns = {
        "accuracy": accuracy,
        "latency": -np.log(ms),
        "memory": -np.log(megabytes),
        "energy": -np.log(mj),
    }
    factors = {"accuracy": 2 * mu, "energy": 2 * (1 - mu)}
    return sum(
        weight * factors.get(name, 1) * (columns[name] - columns[name].min()) / np.ptp(columns[name])
        for name, weight in weights.items()
        if np.ptp(columns[name])  # otherwise all are equal, as are the logarithms of adjacent numbers
    )


figures = st.tuples(st.floats(1, 50), st.floats(0.5, 0.95), st.floats(1, 9), st.floats(1, 30))


@settings(max_examples=60)
@example(
    drawn=[(50.0, 0.5, 1.0, 23.4), (math.nextafter(50.0, 0), 0.75, 3.5, 1.05)],
    charge=0.025,
    importance={"accuracy": 3, "latency": 9, "energy": 2, "memory": 2},
)
@given(
    drawn=st.lists(
        figures, min_size=2, max_size=8, unique_by=tuple(lambda one, at=at: one[at] for at in range(4))
    ),
    charge=st.floats(0, 1),
    importance=st.fixed_dictionaries({name.value: st.integers(1, 9) for name in Criterion}),
)
def test_without_limits_the_option_with_the_highest_score_runs(drawn, charge, importance):
    scores = independent_scores(drawn, importance, charge)
    decision = settled(situation(drawn), importance=importance, battery=charge, advantage=0)
    assert scores[int(decision.option.removeprefix("branch-"))] == pytest.approx(max(scores))


def test_the_preference_of_equation_3_grows_with_the_charge():
    assert [battery_preference(charge) for charge in (0.0, 1.0)] == [0.0, 1.0]
    assert battery_preference(0.25) == pytest.approx(math.log10(3.25))


def test_an_emptier_battery_moves_the_choice_from_accuracy_to_energy():
    importance = {"accuracy": 5, "energy": 5}
    chosen = [
        settled(situation(charge=charge), importance=importance).option for charge in (1.0, 0.4, 0.24, 0.1)
    ]
    assert chosen[0] == "branch-2"
    assert chosen[-1] == "branch-0"
    assert chosen == sorted(chosen, reverse=True)


def test_on_mains_power_energy_does_not_count():
    given = situation(charge=0.05, plugged=True)
    decision = settled(given, importance={"accuracy": 5, "energy": 5})
    assert decision.option == "branch-2"
    assert "the battery counts as 100%" in decision.reason


def test_a_battery_that_is_not_reported_any_more_does_not_count():
    decided = policy(importance={"accuracy": 5, "energy": 5})
    assert "the battery counts as 10%" in decided.decide(situation(charge=0.1)).reason
    after = decided.decide(situation(charge=None))
    assert "the battery does not report its charge any more" in after.reason
    assert [one.weight for one in after.criteria] == [0.5, 0.5]
    assert "battery" not in policy().decide(situation()).reason


def test_a_criterion_that_is_unknown_drops_out_and_the_others_keep_their_ratio():
    without_energy = [each[:3] for each in (SMALL, MIDDLE, LARGE)]
    decision = policy(importance={"accuracy": 6, "latency": 2, "energy": 9}).decide(situation(without_energy))
    shares = {one.criterion: one.weight for one in decision.criteria}
    assert shares == pytest.approx({"accuracy": 0.75, "latency": 0.25})
    assert "energy cannot be compared" in decision.reason


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"latency": "15ms"}, 1),
        ({"latency": "7ms"}, 0),
        ({"memory": "3MB"}, 1),
        ({"energy": "4mJ"}, 0),
        ({"free_mb": 3}, 1),
        ({"free_mb": 2.7}, 1),
        ({"free_mb": 2.4}, 0),  # 80 % are 1.9 MB, and the middle option needs 2
        ({"latency": "100ms", "memory": "3MB", "energy": "4mJ"}, 0),
    ],
)
def test_limits_come_first(limits, expected):
    decision = policy(**ONLY["accuracy"]).decide(situation(current=2, **limits))
    assert (decision.option, decision.fits) == (f"branch-{expected}", True)
    assert "branch-2 would score 1.00 (" in decision.reason


def test_an_option_over_a_limit_is_left_at_once_and_taken_up_again_only_after_the_dwell():
    decided = policy(**ONLY["accuracy"])
    down = decided.decide(situation(current=2, now=100.0, since=99.9, latency="15ms"))
    assert down.option == "branch-1"
    chosen = [
        decided.decide(situation(current=1, now=now, since=100.0, latency="25ms")).option
        for now in (100.5, 101.0, 102.0, 102.4, 102.5)
    ]
    assert chosen == ["branch-1"] * 4 + ["branch-2"]


def test_an_option_has_to_win_by_the_advantage_in_score_and_to_keep_the_hysteresis():
    alike = [(10.0, 0.80), (9.0, 0.79), (20.0, 0.5)]
    # Scores by latency: 0.87 and 1, by accuracy: 1 and 0.97.
    assert settled(situation(alike), advantage=0.2, **ONLY["latency"]).option == "branch-0"
    assert settled(situation(alike), advantage=0.1, **ONLY["latency"]).option == "branch-1"
    near = {"current": 1, "latency": "21ms"}
    assert settled(situation(**near), hysteresis=0.1, **ONLY["accuracy"]).option == "branch-1"
    assert settled(situation(**near), hysteresis=0.01, **ONLY["accuracy"]).option == "branch-2"


def test_an_interruption_restarts_the_dwell():
    decided = policy(**ONLY["accuracy"])
    courses = [(100.0, 1.0), (101.0, 1.3), (102.0, 1.0), (103.0, 1.0), (104.0, 1.0)]
    chosen = [
        decided.decide(situation(current=1, now=now, ratio=ratio, latency="23ms")).option
        for now, ratio in courses
    ]
    assert chosen == ["branch-1"] * 4 + ["branch-2"]


def test_if_nothing_fits_the_option_that_exceeds_least_runs_and_the_reason_says_so():
    decision = policy(**ONLY["accuracy"]).decide(situation(current=2, latency="4ms"))
    assert (decision.option, decision.fits) == ("branch-0", False)
    assert "no option meets the targets, and branch-0 is closest: latency 5ms above 4ms" in decision.reason


def test_the_largest_ratio_to_a_limit_counts_if_nothing_fits():
    figures = [(5.0, 0.7, 8.0), (12.0, 0.8, 3.0), (20.0, 0.9, 1.0)]
    decision = policy().decide(situation(figures, current=2, latency="10ms", memory="2MB"))
    assert decision.option == "branch-1"
    assert "latency 12ms above 10ms and memory 3MB above 2MB" in decision.reason


def test_options_that_exceed_different_limits_alike_do_not_alternate():
    """The latency of the first is 4 or 6 % above its limit in turn, the memory of the second 5 %."""
    figures = [(10.0, 0.7, 1.0), (1.0, 0.8, 2.1)]
    decided, option, since, switches = policy(dwell="5s"), 0, 100.0, []
    for second in range(20):
        now, ratio = 100.0 + second, 1.04 + 0.02 * (second % 2)
        decision = decided.decide(
            situation(
                figures, current=option, now=now, since=since, ratio=ratio, latency="10ms", memory="2MB"
            )
        )
        if decision.option != f"branch-{option}":
            option, since = 1 - option, now
            switches.append(second)
    assert len(switches) <= 4
    assert all(after - before >= 5 for before, after in pairwise(switches))


@pytest.mark.parametrize(("wanted", "fits"), [("75%", True), ("85%", False)])
def test_a_target_for_the_accuracy_is_a_limit(wanted, fits):
    decision = policy(**ONLY["latency"]).decide(situation(current=0, latency="12ms", accuracy=wanted))
    assert (decision.option, decision.fits) == ("branch-1", fits)
    assert ("accuracy 0.8000 below 0.8500" in decision.reason) is not fits


def test_errors_are_better_when_they_are_lower():
    options = tuple(
        option(number, 10.0, mse, metric=Metric("mse")) for number, mse in enumerate((0.5, 0.2, 0.4))
    )
    given = replace(situation(), options=options)
    assert settled(given, **ONLY["accuracy"]).option == "branch-1"
    limited = replace(given, targets=Targets(accuracy=0.3))
    assert settled(limited, **ONLY["latency"]).option == "branch-1"
    assert not settled(replace(given, targets=Targets(accuracy=0.1)), **ONLY["latency"]).fits


def test_equal_options_are_not_exchanged():
    alike = [MIDDLE, MIDDLE, MIDDLE]
    for current in range(3):
        assert settled(situation(alike, current=current)).option == f"branch-{current}"


@pytest.mark.parametrize("name", ["predictive", "contextual"])
def test_every_policy_keeps_a_limit_on_energy(name):
    given = situation(current=2, energy="10mJ", latency="50ms")
    decision = make_policy({"name": name}).decide(given)
    assert decision.option != "branch-2"
    assert decision.fits
