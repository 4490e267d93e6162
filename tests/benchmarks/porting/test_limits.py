"""The accuracy loss of a latency limit compared with a limit on multiply-adds at the same latency."""

import math

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.limits import Package, figures_of, losses, main, packages_of, reached_in
from mistify.jobs.job import Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec


def package(
    accuracy: float, latency_ms: float, precision: str = "none", used: float | None = None, share: float = 0.5
) -> Package:
    return Package(accuracy, latency_ms, precision, share, used, met=True)


FRONTIER = [package(60.0, 1.0), package(55.0, 2.0), package(80.0, 4.0), package(79.0, 8.0)]


@pytest.mark.parametrize(
    ("latency_ms", "accuracy"),
    [
        (1.0, 60.0),
        (2.0, 70.0),  # half way on the logarithmic scale; dominated packages do not count
        (4.0, 80.0),
        (9.0, 80.0),
        (0.5, 0.0),  # no package for comparison is as fast
    ],
)
def test_the_best_packages_are_interpolated(latency_ms: float, accuracy: float) -> None:
    assert reached_in(latency_ms, FRONTIER) == pytest.approx(accuracy)


def test_float32_is_compared_with_float32() -> None:
    packages = {
        "FLOP_0.5x_none": package(80.0, 4.0),
        "FLOP_0.5x_int8": package(79.0, 1.0, "int8"),
        "latency_0.5x_float32": package(78.0, 4.0, used=0.95),
        "latency_0.5x": package(76.0, 1.0, "int8", used=0.9),
    }
    assert losses(packages) == {"latency_0.5x_float32": 2.0, "latency_0.5x": 3.0}


def test_results_are_medians_with_the_extremes_of_the_use_of_limits() -> None:
    runs = [
        {"FLOP_0.5x_none": package(80.0, 4.0), "latency_0.5x": package(accuracy, 4.0, used=used, share=share)}
        for accuracy, used, share in ((79.0, 0.95, 0.5), (70.0, 1.01, 0.5), (78.0, 0.7, 1.0))
    ]
    figures = figures_of("snips", runs)
    assert figures["snips_latency_0.5x_accuracy"] == 78.0
    assert figures["snips_latency_0.5x_lost"] == figures["snips_most_lost"] == 2.0
    assert figures["snips_most_used"] == 1.01
    assert figures["snips_least_used"] == 0.95  # the last goal was not cut
    assert math.isclose(figures["snips_missed"], 0)


def test_a_goal_unreachable_with_some_seeds_counts_with_the_others() -> None:
    runs = [{"latency_0.5x": package(70.0, 4.0, used=0.9), "latency_0.1x": package(50.0, 1.0, used=1.0)}]
    runs += [{"latency_0.5x": package(accuracy, 4.0, used=0.9)} for accuracy in (72.0, 71.0)]
    figures = figures_of("resnet8", runs)
    assert figures["resnet8_latency_0.5x_accuracy"] == 71.0
    assert figures["resnet8_latency_0.1x_accuracy"] == 50.0


def test_the_use_of_limits_is_unknown_if_all_latency_limits_are_unreachable() -> None:
    figures = figures_of("snips", [{"FLOP_0.5x_none": package(80.0, 4.0)}])
    assert figures["snips_FLOP_0.5x_none_accuracy"] == 80.0
    assert not {"snips_most_used", "snips_least_used", "snips_most_lost"} & figures.keys()


def goal(name: str, state: GoalState, accuracy: float | None) -> Goal:
    costs = {"flops": 5.0, "latency_ms@host": 0.9}
    return Goal(
        name,
        0,
        PackageSpec({"latency_ms@host": 1.0}),
        state=state,
        achieved=costs,
        measured=costs,
        accuracy=accuracy,
    )


def test_missed_goals_count() -> None:
    job = Job("job", JobState.DONE, (goal("missed", GoalState.UNMET, 0.5),), 0, (Source({"flops": 10.0}),))
    (missed,) = packages_of(job).values()
    assert (missed.accuracy, missed.share, missed.used, missed.met) == (50.0, 0.5, 0.9, False)


def test_a_failed_goal_is_an_error() -> None:
    goals = (goal("met", GoalState.MET, 0.9), goal("failed", GoalState.FAILED, None))
    with pytest.raises(RuntimeError, match="job is done: failed"):
        packages_of(Job("job", JobState.DONE, goals, 0, (Source({"flops": 10.0}),)))


def test_a_job_with_a_failed_source_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="job is failed: no such file"):
        packages_of(Job("job", JobState.FAILED, (), 0, reason="no such file"))


def test_the_benchmark_is_skipped_without_data() -> None:
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
