"""Two jobs are compared goal by goal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx

from mistify.config.data.metric import Metric
from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import HOST
from mistify.jobs.job import Goal, GoalState, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.web.pages.job_comparison import Change, compare_jobs

Config = Callable[..., dict[str, object]]

HERE = latency_axis(HOST.name)


def goal(name: str, accuracy: float | None, size: float, here_ms: float, seconds: float) -> Goal:
    return replace(
        Goal(name, 0, PackageSpec({}), state=GoalState.MET),
        accuracy=accuracy,
        achieved={"size_bytes": size},
        measured={HERE: here_ms},
        seconds=seconds,
    )


def job(name: str, *goals: Goal) -> Job:
    return Job(name, JobState.DONE, goals, created_unix_ms=0)


def test_goals_with_equal_ids_are_compared() -> None:
    old = job("old", goal("a", 0.900, 1_000, 2.0, 10.0), goal("b", 0.80, 1_000, 1.0, 10.0))
    new = job("new", goal("b", 0.75, 1_010, 2.5, 5.0), goal("a", 0.912, 500, 2.0, 10.1))
    compared = compare_jobs(old, new)
    assert [each.id for each in compared.goals] == ["a", "b"]
    first, second = compared.goals
    assert first.changes == (
        Change("90.0%", "91.2%", "+1.2", True),
        Change("1KB", "500B", "0.50x", True),
        Change("2ms", "2ms", "1.00x", None),
        Change("10 s", "10 s", "1.01x", None),
    )
    assert [(change.change, change.better) for change in second.changes] == [
        ("-5.0", False),
        ("1.01x", None),
        ("2.50x", False),
        ("0.50x", True),
    ]
    assert compared.mean_points is not None
    assert round(compared.mean_points, 6) == -1.9


def test_goals_of_one_job_only_have_no_changes() -> None:
    compared = compare_jobs(
        job("old", goal("a", 0.9, 1, 1, 1)), job("new", goal("b", 0.9, 1, 1, 1), goal("c", None, 1, 1, 1))
    )
    assert [(each.id, each.before is None, each.after is None) for each in compared.goals] == [
        ("a", False, True),
        ("b", True, False),
        ("c", True, False),
    ]
    assert all(each.changes == () for each in compared.goals)
    assert compared.mean_points is None


def test_scores_by_different_metrics_are_not_compared() -> None:
    other = replace(goal("a", 0.5, 1, 1, 1), metric=Metric.F1)
    compared = compare_jobs(job("old", goal("a", 0.9, 1, 1, 1)), job("new", other))
    assert (compared.goals[0].changes[0].change, compared.mean_points) == ("", None)


def test_errors_are_better_when_they_fall() -> None:
    first, second = (replace(goal("a", error, 1, 1, 1), metric=Metric.MSE) for error in (0.4, 0.2))
    compared = compare_jobs(job("old", first), job("new", second))
    assert (compared.goals[0].changes[0].change, compared.goals[0].changes[0].better) == ("0.50x", True)


async def test_the_page_shows_two_jobs(site: Any, serving_at: Any, serve: Any, make_config: Config) -> None:
    ids = []
    async with serving_at(site.settings()) as caller:
        for goals in ({"a": "0.5x", "b": "0.3x"}, {"a": "0.5x"}):
            made = await caller.submit([make_config(name, FLOP=limit) for name, limit in goals.items()])
            ids.append((await caller.finished(made.id)).id)
    async with serve() as web:
        await check_pages(web, *ids)


async def check_pages(web: httpx.AsyncClient, first: str, second: str) -> None:
    page = (await web.get(f"/compare?before={first}&after={second}")).text
    assert f'<option value="{first}" selected>' in page
    assert "scores change by +0.0 points" in page
    assert f'href="/jobs/{second}/goals/a"' in page
    assert f'href="/jobs/{second}/goals/b"' not in page
    assert "Choose two different jobs" in (await web.get(f"/compare?before={first}&after={first}")).text
    alone = await web.get(f"/compare?before={first}")
    assert (alone.status_code, "Choose two" in alone.text) == (200, False)
    missing = await web.get(f"/compare?before={first}&after=none")
    assert missing.status_code == 404
    assert f"/compare?before={first}" in (await web.get(f"/jobs/{first}")).text
