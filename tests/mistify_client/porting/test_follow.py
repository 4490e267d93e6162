"""Following a job: ids that a server must not send."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.follow import finish, follow
from mistify_client.porting.progress import LineDisplay
from mistify_client.rpc.porting import PortingClient


@pytest.mark.parametrize("name", ["../../stolen", "{}/stolen", ".."])
def test_ids_from_a_server_cannot_choose_where_packages_are_written(service, tmp_path, name):
    name = name.format(tmp_path)
    half, tenth = service.fake.job.goals
    job = replace(service.fake.job, goals=(replace(half, id=name), tenth))
    service.fake.job = job
    service.fake.events = [
        replace(event, goal_id=name) if event.goal_id == "half" else event for event in service.fake.events
    ]
    out = tmp_path / "here" / "out"
    out.mkdir(parents=True)
    with PortingClient(service.address) as client, pytest.raises(MistifyError) as caught:
        follow(client, job, out, LineDisplay(lambda line: None))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert repr(name) in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_damaged_package_does_not_affect_those_of_other_goals(service, tmp_path):
    half, tenth = service.fake.job.goals
    other = replace(half, id="other")
    service.fake.job = job = replace(service.fake.job, goals=(half, tenth, other))
    (ended,) = (event for event in service.fake.events if event.event is GoalState.MET)
    service.fake.events.append(replace(ended, goal_id="other", sequence=len(service.fake.events) + 1))
    service.fake.corrupt_downloads = 2
    with PortingClient(service.address) as client:
        job, damaged = follow(client, job, tmp_path, LineDisplay(lambda line: None))
    console = Console(width=100, file=io.StringIO())
    with pytest.raises(
        MistifyError, match=r"1 package could not be fetched.*\n  half: serve.tflite"
    ) as caught:
        finish(job, damaged, tmp_path, console)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    packages = [line for line in console.file.getvalue().splitlines() if line.startswith("package: ")]
    assert packages == [f"package: {tmp_path / 'goals' / 'other'}"]
    assert (tmp_path / "goals" / "other" / "serve.tflite").exists()
    assert (tmp_path / "report.json").exists()


def test_a_goal_of_another_batch_is_not_compared_with_the_source(service, tmp_path):
    half, tenth = service.fake.job.goals
    lines = []
    for batch in (0, 1):
        job = replace(service.fake.job, goals=(replace(half, batch=batch), tenth))
        service.fake.job = job
        with PortingClient(service.address) as client:
            follow(client, job, tmp_path / str(batch), LineDisplay(lines.append))
    progress = [line for line in lines if line.startswith("half: adapting")]
    assert ["multiply-adds 70%" in line for line in progress] == [True, False]


def test_pauses_are_shown_also_while_waiting_for_some_goals(service, tmp_path):
    running, *rest = service.fake.events
    paused = replace(running, event=JobState.PAUSED)
    happened = [running, paused, running, *rest]
    service.fake.events = [replace(event, sequence=number) for number, event in enumerate(happened, 1)]
    for only in (None, ["half"]):
        lines = []
        with PortingClient(service.address) as client:
            follow(client, service.fake.job, tmp_path, LineDisplay(lines.append), only)
        assert [line for line in lines if "paused" in line] == [
            "paused; this continues the job: mistify resume job-1",
            "no longer paused: running",
        ]


def shown(job, tmp_path, **settings):
    """Return the lines that end a job."""
    console = Console(width=100, file=io.StringIO())
    finish(job, DamagedPackages(), tmp_path, console, **settings)
    return console.file.getvalue().splitlines()


def test_choices_are_explained_on_request(service, tmp_path):
    half = service.fake.job.goals[0]
    choice = "the most accurate one in forecasts"
    goals = tuple(
        replace(half, id=name, algorithm="morphnet", choice=choice, precision_choice="int8, the smallest")
        for name in ("a", "b")
    )
    job = replace(service.fake.job, goals=goals)
    explained = ["a and b: chose int8, the smallest", f"a and b by morphnet: {choice}"]
    assert set(explained) <= set(shown(job, tmp_path, explain=True))
    lines = shown(job, tmp_path)
    assert not set(explained) & set(lines)
    assert "2 notes on choices and packages: --explain" in lines


def test_many_packages_and_notes_are_counted(service, tmp_path):
    half, tenth = service.fake.job.goals
    goals = tuple(replace(half, id=f"goal-{number}", note=f"lost {number}") for number in range(20))
    unmet = replace(tenth, state=GoalState.FAILED, reason="no network is that small")
    job = replace(service.fake.job, goals=(*goals, unmet))
    lines = shown(job, tmp_path)
    assert f"20 packages: {tmp_path / 'goals'}" in lines
    assert "21 notes on choices and packages: --explain" in lines  # one of them on the algorithm of all
    assert f"{unmet.id} is failed: no network is that small" in lines
    assert len(lines) <= 2 * len(job.goals) + 10
    assert "goal-7 lost 7" in shown(job, tmp_path, explain=True)
    few = shown(replace(job, goals=goals[:5]), tmp_path)
    assert "goal-4 lost 4" in few
    assert f"package: {tmp_path / 'goals' / 'goal-4'}" in few


def test_the_last_line_distinguishes_predicted_from_measured_goals(service, tmp_path):
    half = replace(
        service.fake.job.goals[0],
        spec=replace(service.fake.job.goals[0].spec, budget={"latency_ms@host": 1.0}),
        note="lost something",
    )
    there = replace(half, spec=replace(half.spec, budget={"latency_ms@pi": 1.0}), id="there")
    for goals, verdict in (
        ((half, there), "All 2 goals are met, 1 of them by prediction rather than measurement."),
        ((half,), "The goal is met."),
        ((there,), "The goal is met, by prediction rather than measurement."),
        ((there, there), "All 2 goals are met, by prediction rather than measurement."),
    ):
        console = Console(width=100, file=io.StringIO())
        job = replace(service.fake.job, goals=goals)
        assert finish(job, DamagedPackages(), tmp_path, console) == 0
        *lines, written, last = console.file.getvalue().splitlines()
        assert last == verdict
        assert f"{' and '.join(goal.id for goal in goals)} lost something" in lines
        assert written.startswith("report: ")
