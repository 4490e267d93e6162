"""Record the progress of a job, from which the tests of its time left are made.

Run `taskset -c 0 python -m tests.data.record_job_progress CONFIG NAME [--about TEXT] [--data-root DIR]`
with the server's dependencies: it writes `job_progress/NAME.json`. Tests only read the files. Their times
are processor time of the server and its worker on one core, so that other work on the machine does not
count.
"""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import psutil

from mistify.jobs.job import Goal, JobState, ProgressUpdate
from mistify_client.rpc.porting import PortingClient
from mistify_server.jobs import job_runner
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.time_left import Part, TimeLeftEstimator
from mistify_server.server import ServerSettings, running_server
from mistify_server.store.changes import Change
from mistify_server.store.plans import BatchState
from tests.support.recorded_progress import (
    RECORDED_PROGRESS,
    ProgressEvent,
    RecordedProgress,
    change_events,
    recorded_batch,
)

HERE = Path(__file__).parent / "job_progress"

#: Least number of seconds between two records of the steps of a part.
_LEAST = 0.5


class _Processor:
    """A clock that shows the processor time of this process and of all that it has started."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def __call__(self) -> float:
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._seconds[process.pid] = times.user + times.system
        return sum(self._seconds.values())


class _Recorder:
    """Makes estimators that record what they are told."""

    def __init__(self) -> None:
        self.events: list[ProgressEvent] = []
        self.states: Sequence[BatchState] = ()
        self.slots = 0

    def __call__(
        self, states: Sequence[BatchState], goals: Iterable[Goal], slots: int, elapsed: float
    ) -> TimeLeftEstimator:
        self.states, self.slots = states, slots
        events, goals = self.events, list(goals)
        batch_of = {goal.id: goal.batch for goal in goals}

        class Recorded(TimeLeftEstimator):
            now = elapsed

            def advance(self, part: Part, update: ProgressUpdate, at: float) -> None:
                super().advance(part, update, at)
                self.now = round(at, 2)
                steps = update.step, update.total_steps, update.stage
                events.append(ProgressEvent(self.now, "step", *part, *steps))

            def stop(self, part: Part, at: float) -> None:
                super().stop(part, at)
                self.now = round(at, 2)
                events.append(ProgressEvent(self.now, "stop", *part))

            def apply(self, change: Change) -> None:
                super().apply(change)
                for each in change_events(change, self.now, batch_of):
                    part = Part(each.batch, each.work, each.name)  # type: ignore[arg-type]
                    seconds = round(self._spent[part], 2) if each.kind == "result" else 0.0
                    events.append(replace(each, step=seconds))

        return Recorded(states, goals, slots, elapsed)


async def _record(arguments: argparse.Namespace, store: Path) -> RecordedProgress:
    recorder = _Recorder()
    settings = ServerSettings(store, listen="127.0.0.1:0", slots=1, data_roots=arguments.data_root)
    clock = _Processor()
    logs = partial(JobLog, clock=clock)
    with mock.patch.multiple(job_runner, TimeLeftEstimator=recorder, JobLog=logs):
        async with running_server(settings) as (address, _):
            job = await asyncio.to_thread(_ended, str(address), arguments.config.read_text())
    assert job.state is JobState.DONE, job.reason
    batches = tuple(recorded_batch(state.plan) for state in recorder.states)
    return RecordedProgress(
        arguments.about, recorder.slots, round(job.seconds, 2), batches, tuple(_thinned(recorder.events))
    )


def _ended(address: str, config: str) -> Any:
    """Run a job to its end."""
    with PortingClient(address) as client:
        job = client.submit(config, "recorded").id
        for _ in client.watch(job):
            pass
        return client.job(job)


def _thinned(events: Iterable[ProgressEvent]) -> Iterable[ProgressEvent]:
    """Leave out steps that soon follow others of the same part, except the first and the last ones."""
    latest: dict[tuple[object, ...], ProgressEvent] = {}
    for each in events:
        part = each.batch, each.work, each.name
        before = latest.get(part)
        between = each.kind == "step" and 0 < each.step < each.total
        if between and before is not None and each.at - before.at < _LEAST and before.total == each.total:
            continue
        latest[part] = each
        yield each


def main() -> None:
    """Record one job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("name")
    parser.add_argument("--about", default="")
    parser.add_argument("--data-root", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    with TemporaryDirectory() as store:
        recorded = asyncio.run(_record(arguments, Path(store)))
    HERE.mkdir(exist_ok=True)
    (HERE / f"{arguments.name}.json").write_bytes(
        RECORDED_PROGRESS.dump_json(recorded, exclude_defaults=True) + b"\n"
    )


if __name__ == "__main__":
    main()
