"""Trade-offs in a report, made from a job or read from a file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mistify.config.data.metric import Metric
from mistify.jobs.job import Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.report import report
from mistify.jobs.tradeoffs import Point, TradeOff, trade_offs
from tests.support.many_goals import job_of
from tests.support.stored import digits_job


@pytest.mark.parametrize(("metric", "expected"), [(Metric.ACCURACY, ["a", "c"]), (Metric.MSE, ["b", "d"])])
def test_the_front_contains_the_points_that_no_other_dominates(metric: Metric, expected: list[str]) -> None:
    points = [
        Point("a", 1.0, 0.5, True),
        Point("b", 1.0, 0.4, True),
        Point("c", 2.0, 0.7, True),
        Point("d", 3.0, 0.3, True),
        Point("e", 4.0, 0.5, True),
    ]
    assert [point.goal for point in TradeOff("", "", metric, points, [], None).front] == expected


def test_a_report_file_gives_the_same_trade_offs_as_the_job(tmp_path: Path) -> None:
    job = digits_job(tmp_path)
    found = trade_offs(report(job))
    assert trade_offs(json.loads(json.dumps(report(job)))) == found
    flops, *_, latency = found
    assert {point.goal: point.cost for point in flops.points} == {
        goal.id: goal.achieved["flops"] for goal in job.goals
    }
    assert [point.goal for point in flops.points if not point.met] == ["small"]
    assert flops.limits == sorted(
        goal.spec.budget["flops"] for goal in job.goals if "flops" in goal.spec.budget
    )
    # The latency limit applies to a board, not to this machine, and nothing was measured on the board.
    assert (latency.limits, [point.goal for point in latency.points]) == (
        [],
        ["half", "small", "switching", "sparse"],
    )
    assert latency.source == (job.sources[0].measured["latency_ms@host"], job.sources[0].tuned_accuracy)


def test_a_cost_of_a_single_package_gives_no_trade_off() -> None:
    one = Goal(
        "one", 0, PackageSpec({}), state=GoalState.MET, achieved={"flops": 1.0, "params": 2.0}, accuracy=0.5
    )
    two = replace(one, id="two", achieved={"flops": 3.0})
    waiting = Goal("waiting", 0, PackageSpec({}))
    job = Job("j", JobState.RUNNING, (one, two, waiting), 0, (Source({}),))
    (flops,) = trade_offs(report(job))
    assert (flops.axis, [point.goal for point in flops.points], flops.source) == (
        "flops",
        ["one", "two"],
        None,
    )
    assert trade_offs(report(replace(job, goals=()))) == []


def test_each_batch_has_its_own_trade_offs_and_source() -> None:
    one = Goal(
        "one", 0, PackageSpec({"flops": 5.0}), state=GoalState.MET, achieved={"flops": 1.0}, accuracy=0.5
    )
    other = replace(
        one, spec=replace(one.spec, budget={"flops": 7.0}), id="other", batch=1, metric=Metric.MSE
    )
    goals = [replace(goal, id=f"{goal.id}-{number}") for goal in (one, other) for number in (1, 2)]
    job = Job("j", JobState.DONE, tuple(goals), 0, (Source({"flops": 9.0}, tuned_accuracy=0.9),))
    named = Source({"flops": 8.0}, batch=1, model="second.keras", metric=Metric.MSE, tuned_accuracy=0.1)
    with_both = trade_offs(report(replace(job, sources=(*job.sources, named))))
    assert [(each.batch_name, each.source) for each in with_both] == [
        ("batch 0", (9.0, 0.9)),
        ("batch 1: second.keras", (8.0, 0.1)),
    ]
    first, second = trade_offs(report(job))
    assert [(each.batch_name, each.batch) for each in (first, second)] == [
        ("batch 0", 0),
        ("batch 1", 1),
    ]
    assert [point.goal for point in first.points] == ["one-1", "one-2"]
    assert [point.goal for point in second.points] == ["other-1", "other-2"]
    assert (first.limits, first.metric, first.source) == ([5.0], Metric.ACCURACY, (9.0, 0.9))
    assert (second.limits, second.metric, second.source) == ([7.0], Metric.MSE, None)
    older = {name: figures for name, figures in report(job).items() if name != "sources"}
    assert trade_offs(older) == [first, second]


def test_predicted_latencies_are_compared_as_shares_of_the_source() -> None:
    job = job_of(20)
    *_, elsewhere = trade_offs(report(job))
    source = job.sources[0].costs
    limited = {
        goal.id: (axis, limit)
        for goal in job.goals
        for axis, limit in goal.spec.budget.items()
        if axis != "flops"
    }
    assert len(limited) == 16
    assert elsewhere.title == "predicted latency, share of the source's"
    costs = {point.goal: point.cost for point in elsewhere.points}
    assert costs == {
        goal.id: pytest.approx(goal.achieved[limited[goal.id][0]] / source[limited[goal.id][0]])
        for goal in job.goals
        if goal.id in limited
    }
    shares = {round(limit / source[axis], 6) for axis, limit in limited.values()}
    assert {round(limit, 6) for limit in elsewhere.limits} == shares
    assert elsewhere.source == (1.0, job.sources[0].tuned_accuracy)


def test_the_size_is_plotted_if_a_goal_limits_it() -> None:
    job = job_of(3)
    assert "size_bytes" not in {trade_off.axis for trade_off in trade_offs(report(job))}
    limited = replace(job.goals[0], spec=PackageSpec({"size_bytes": 70e3}))
    (size,) = (
        each
        for each in trade_offs(report(replace(job, goals=(limited, *job.goals[1:]))))
        if each.axis == "size_bytes"
    )
    assert (size.limits, len(size.points)) == ([70e3], 3)


def test_each_of_several_outputs_has_its_trade_offs() -> None:
    job = job_of(5, ("digit", "style"))
    found = trade_offs(report(job))
    axes = [each.axis for each in found if not each.output]
    assert [each.output for each in found] == [
        *[""] * len(axes),
        *["digit"] * len(axes),
        *["style"] * len(axes),
    ]
    digit = next(each for each in found if each.output == "digit")
    assert [point.score for point in digit.points] == [goal.output_scores[0].value for goal in job.goals]
    assert {each.output for each in trade_offs(report(job_of(5, ("digit",))))} == {""}
