"""The critical path of a job is that of workers with a processor each."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from typing import Any

import pytest

from benchmarks.server import scale
from benchmarks.server.scale_path import (
    ProcessorTimes,
    Work,
    critical_path_seconds,
    interpolated,
    works_of,
)
from mistify.jobs.job import Job, JobState

pytest.importorskip("opentelemetry", reason="OpenTelemetry is not installed")

from tests.support.collectors import ReceivedSpan

A, B = ("node-1", 7), ("node-2", 7)


def test_steps_wait_for_those_that_they_need_and_for_their_worker() -> None:
    works = [
        Work("source", (), A, 1.0, 3.0),
        Work("edge 0", ("source",), A, 2.0, 5.0),
        Work("edge 1", ("source",), B, 90.0, 2.0),  # on a busy processor: it took long, but used little
        Work("package", ("edge 0",), B, 91.0, 1.0),
        Work("edge 2", ("edge 1",), A, 92.0, 2.0),
    ]
    assert critical_path_seconds(works) == 3 + 5 + 2
    assert critical_path_seconds(reversed(works)) == 3 + 5 + 2
    assert critical_path_seconds([]) == 0


def test_the_parts_of_a_step_follow_each_other_on_any_worker() -> None:
    assert critical_path_seconds([Work("package", (), A, 1.0, 3.0), Work("package", (), B, 2.0, 4.0)]) == 7


@pytest.mark.parametrize(
    ("moment", "seconds"), [(9.0, 0.0), (10.0, 1.0), (11.0, 2.0), (14.0, 3.5), (99.0, 4.0)]
)
def test_processor_times_between_samples_are_interpolated(moment: float, seconds: float) -> None:
    assert interpolated([(10.0, 1.0), (12.0, 3.0), (16.0, 4.0)], moment) == seconds


def span(name: str, own: str, parent: str, ended: int, **attributes: Any) -> ReceivedSpan:
    about = {key.replace("_", "."): value for key, value in attributes.items()}
    return ReceivedSpan(name, "t", own, parent, 0, ended * 10**9, False, "", about, [], {})


class Times:
    """Workers that are always busy from the beginning."""

    def seconds(self, worker: Any, moment: float) -> float:
        return moment


def test_work_is_found_in_a_trace_with_what_it_needs() -> None:
    steps = {
        "inspect": ("inspect", {}),
        "source": ("source", {}),
        "first": ("edge", {"mistify_edge": "0/1", "mistify.goal.id": "half"}),
        "second": ("edge", {"mistify_edge": "0/4", "mistify.goal.id": "third"}),
        "last": ("package", {"mistify_edge": "0/4", "mistify.goal.id": "third"}),
        "measured": ("reference", {}),
    }
    spans = []
    for number, (key, (name, attributes)) in enumerate(steps.items(), 1):
        task = key if name == "inspect" else f"{key}-task"
        if name != "inspect":
            spans.append(span(name, key, "job", number, **attributes))
        spans.append(span("task" if name != "inspect" else name, task, key, number))
        spans.append(span("attempt", f"{key}-attempt", task, number))
        about = {"host_name": f"node-{number % 2}", "process_pid": 7}
        spans.append(span("worker", f"{key}-worker", f"{key}-attempt", number, **about))
    works = works_of(spans, {"half": None, "third": "half"}, Times())  # type: ignore[arg-type]
    assert [(work.step, work.needs) for work in works] == [
        ("inspect", ()),
        ("source", ("inspect",)),
        ("edge 0/1", ("source",)),
        ("edge 0/4", ("edge 0/1",)),
        ("package third", ("edge 0/4",)),
        ("reference", ("source",)),
    ]
    assert [work.seconds for work in works] == [1, 2, 2, 2, 2, 2]  # since the previous end on the same worker


def test_a_worker_is_found_on_its_machine_with_the_time_of_its_descendants() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", start, "mistify_server.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        times = ProcessorTimes({"here": os.getpid()})
        process.stdout.readline()  # type: ignore[union-attr]
        times._sample()
        process.communicate(b"\n")
    assert times.seconds(("here", process.pid), float("inf")) >= 0.3
    assert times.seconds(("elsewhere", process.pid), float("inf")) == 0


@pytest.mark.parametrize("quick", [True, False])
def test_only_a_full_run_is_compared_with_all_targets(monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    def finished(values: int, count: int, kills: int = 0) -> scale.Run:
        job = Job("job-1", JobState.DONE, (), 0)
        return scale.Run(job, path=8.0 / count, total=8.0, elapsed=9.0, nodes=count, lost=kills)

    monkeypatch.setattr(scale, "_run", finished)  # a cluster takes minutes, and needs root
    monkeypatch.setattr(scale, "_require", lambda module: None)
    figures = scale.measure(Namespace(quick=quick))
    always = {"packages_that_differ", "goals_that_failed"}
    assert figures.keys() & scale.TARGETS.keys() == (always if quick else scale.TARGETS.keys())
    assert quick or (figures["speed_of_4"], figures["nodes_killed"]) == (4.0, 4)


def test_the_goals_are_pairs_of_limits() -> None:
    goals = json.loads(scale.config(8))
    limits = [tuple(goal["adaptation_goal"].values()) for goal in goals]
    assert len({goal["id"] for goal in goals}) == len(set(limits)) == 64
    assert min(limits) == ("0.25x", "0.25x")
