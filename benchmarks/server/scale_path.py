"""The critical path of a job in processor seconds of its workers."""

import bisect
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tests.support.collectors import ReceivedSpan

#: The name of a machine, and the id of a process there.
WorkerId: TypeAlias = tuple[str, int]

_TICK: Final = os.sysconf("SC_CLK_TCK")
_EVERY_SECONDS: Final = 0.5
_WORKER: Final = b"mistify_server.worker"


@dataclass(frozen=True)
class Work:
    """What a worker did in one go.

    Attributes:
        step: The step that it belongs to, such as `edge 3`.
        needs: The steps that had to end before.
        worker: Who did it.
        ended: When, in seconds since 1970.
        seconds: Processor seconds of the worker since its previous work ended, or since it was started.
    """

    step: str
    needs: tuple[str, ...]
    worker: WorkerId
    ended: float
    seconds: float


def critical_path_seconds(works: Iterable[Work]) -> float:
    """Return when the last step would have ended if every worker had a processor of its own.

    Each worker does the same as it did, in the same order: it begins when its previous work and all needed
    steps have ended. The time is thus the longest sum of processor seconds along steps that had to wait for
    each other, because one needs the other or because they have the same worker.
    """
    ends: dict[str, float] = defaultdict(float)
    free: dict[WorkerId, float] = defaultdict(float)
    for work in sorted(works, key=lambda work: work.ended):
        begin = max([free[work.worker], ends[work.step], *(ends[step] for step in work.needs)])
        ends[work.step] = free[work.worker] = begin + work.seconds
    return max(ends.values(), default=0.0)


class ProcessorTimes:
    """The processor seconds of workers over time, from the moment they start.

    Args:
        machines: Name of a machine -> the process of which its others are descendants.
    """

    def __init__(self, machines: Mapping[str, int]) -> None:
        self._machines = {pid: name for name, pid in machines.items()}
        self._known: dict[int, WorkerId | None] = {}
        self._times: dict[WorkerId, list[tuple[float, float]]] = defaultdict(list)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ProcessorTimes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def seconds(self, worker: WorkerId, moment: float) -> float:
        """Return the processor seconds of a worker and its descendants until a moment (s since 1970)."""
        return interpolated(self._times[worker], moment)

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_SECONDS):
            self._sample()

    def _sample(self) -> None:
        parents, spent = dict[int, int](), dict[int, float]()
        now = time()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                # its own, and those of descendants that have ended
                spent[int(name)] = sum(map(int, fields[11:15])) / _TICK
        totals: dict[WorkerId, float] = defaultdict(float)
        for pid, seconds in spent.items():
            if worker := self._worker_above(pid, parents):
                totals[worker] += seconds
        for worker, total in totals.items():
            self._times[worker].append((now, total))

    def _worker_above(self, pid: int, parents: Mapping[int, int]) -> WorkerId | None:
        """Return the worker that a process is, or of which it is a descendant."""
        while pid in parents:
            if pid not in self._known:
                self._known[pid] = self._worker_at(pid, parents)
            if worker := self._known[pid]:
                return worker
            pid = parents[pid]
        return None

    def _worker_at(self, pid: int, parents: Mapping[int, int]) -> WorkerId | None:
        with suppress(OSError):
            if _WORKER not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return None
            status = Path(f"/proc/{pid}/status").read_text()
            within = next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
            above = pid
            while above in parents and above not in self._machines:
                above = parents[above]
            return (self._machines[above], int(within)) if above in self._machines else None
        return None


def interpolated(times: Sequence[tuple[float, float]], moment: float) -> float:
    """Return the processor seconds at a moment between samples; they are 0 before the first."""
    place = bisect.bisect_right(times, (moment, float("inf")))
    if place == 0:
        return 0.0
    if place == len(times):
        return times[-1][1]
    (before, low), (after, high) = times[place - 1 : place + 1]
    return low + (high - low) * (moment - before) / (after - before)


def works_of(
    spans: Iterable["ReceivedSpan"], parents: Mapping[str, str | None], times: ProcessorTimes
) -> list[Work]:
    """Return the work on a job.

    Args:
        spans: The spans of its trace.
        parents: Id of each goal -> that of the goal from which it is adapted, None for the source.
        times: The processor times of its workers.
    """
    by_id = {span.span_id: span for span in spans}
    edge_of = {
        span.attributes["mistify.goal.id"]: span.attributes["mistify.edge"]
        for span in by_id.values()
        if span.name == "edge"
    }
    works: list[Work] = []
    last: dict[WorkerId, float] = defaultdict(float)
    for span in sorted(by_id.values(), key=lambda span: span.ended_ns):
        if span.name != "worker":
            continue
        worker = span.attributes["host.name"], span.attributes["process.pid"]
        ended = span.ended_ns / 1e9
        total = times.seconds(worker, ended)
        step, needs = _step(_ancestor(span, by_id), parents, edge_of)
        works.append(Work(step, needs, worker, ended, total - last[worker]))
        last[worker] = total
    return works


def _ancestor(span: "ReceivedSpan", by_id: Mapping[str, "ReceivedSpan"]) -> "ReceivedSpan":
    """Return the step or, for an inspection, the task in which a worker did something."""
    attempt = by_id[span.parent_id]
    task = by_id[attempt.parent_id]
    return task if task.name == "inspect" else by_id[task.parent_id]


def _step(
    span: "ReceivedSpan", parents: Mapping[str, str | None], edge_of: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return the name of a step, and those of the steps that it needs."""
    if span.name == "edge":
        above = parents[span.attributes["mistify.goal.id"]]
        return f"edge {span.attributes['mistify.edge']}", (
            "source" if above is None else f"edge {edge_of[above]}",
        )
    if span.name == "package":
        edge = f"edge {span.attributes['mistify.edge']}"
        return f"package {span.attributes['mistify.goal.id']}", (edge,)
    return span.name, {"inspect": (), "source": ("inspect",)}.get(span.name, ("source",))
