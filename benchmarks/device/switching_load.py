"""Inferences of a multi-branch package under an intermittent load, for `device.switching`."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from benchmarks.device.load import Load
from benchmarks.harness.monitoring import monitored
from mistify_client import PortedModel, load

#: Share of the CPU used by the load. At three fifths, the smallest branch exceeds the budget half of the
#: time: the load takes slices of 0.15 ms, twice the branch's latency.
_TAKEN: Final = 0.4
_PHASE_SECONDS: Final = 5.0
_PHASES: Final = 6
_PACE_SECONDS: Final = 0.002

#: A side has recovered when this share of the inferences in a stretch of this length is within the budget.
_RECOVERED: Final = 0.9
_STRETCH_SECONDS: Final = 0.5

#: The budget, as a multiple of the largest branch's latency on an idle CPU, and the monitor's target as a
#: share of it. The monitor keeps the median at its target, so that nearly all inferences are within the
#: budget.
_BUDGET: Final = 1.5
_TARGET: Final = 0.8

_MONITOR: Final = """
interval = "100ms"
[targets]
latency = "{target:.4f}ms"
[policy]
dwell = "500ms"
"""


@dataclass(frozen=True)
class Trace:
    """A sequence of inferences.

    Attributes:
        ended: Seconds from the start to the end of each inference.
        latency_ms: Milliseconds of each inference.
        branch: Number of the branch that ran each inference.
        changes: Seconds from the start to each change of the load.
        failed: Number of inferences that failed, or returned an output unlike those of all branches.
    """

    ended: npt.NDArray[np.float64]
    latency_ms: npt.NDArray[np.float64]
    branch: npt.NDArray[np.int64]
    changes: tuple[float, ...]
    failed: int

    @property
    def loaded(self) -> npt.NDArray[np.bool_]:
        """Return which inferences [inferences] ended under load: those after an odd number of changes."""
        odd: npt.NDArray[np.bool_] = np.searchsorted(self.changes, self.ended) % 2 == 1
        return odd


def under_load(package: Path, *, quick: bool, soak: float, picture: Path | None) -> dict[str, float]:
    """Compare the monitor with the largest and the smallest branch, and run the soak test.

    Args:
        package: A package with branches.
        quick: Change the load only once, and shorten the soak test.
        soak: Duration of the soak test in seconds.
        picture: A PNG file for a plot of the latencies.
    """
    model = load(package, threads=1)
    features = example(model)
    last = len(model.options) - 1
    model.switch(model.options[last].id)
    budget = 1e3 * _BUDGET * median(timed(lambda: model(features)) for _ in _paced(time.monotonic() + 1))
    config = package.parent / "monitor.toml"
    config.write_text(_MONITOR.format(target=_TARGET * budget))
    sides: dict[str, tuple[int, Callable[[], AbstractContextManager[None]]]] = {
        "monitor": (0, partial(monitored, package, config)),
        "largest": (last, nullcontext),
        "smallest": (0, nullcontext),
    }
    phases = 2 if quick else _PHASES
    traces = {}
    with Load(_TAKEN) as busy:
        for side, (branch, watched) in sides.items():
            model.switch(model.options[branch].id)
            with watched():
                traces[side] = _traced(model, features, busy, phases)
    accuracies = np.array([branch.accuracy for branch in model.branches])
    figures = {"budget_ms": budget, "recovery_seconds": _recovery(traces["monitor"], budget)}
    for side, trace in traces.items():
        within = trace.latency_ms <= budget
        figures[f"{side}_within"] = 100 * float(np.mean(within))
        figures[f"{side}_within_loaded"] = 100 * float(np.mean(within[trace.loaded]))
        figures[f"{side}_accuracy"] = 100 * float(accuracies[trace.branch].mean())
        figures[f"{side}_inferences"] = len(trace.ended)
    figures["monitor_accuracy_share"] = accuracy_share(figures)
    figures["failed"] = sum(trace.failed for trace in traces.values())
    if picture:
        _draw(traces, budget, accuracies, picture)
    return figures | {"growth_mib": _growth(model, features, 5 if quick else soak)}


def accuracy_share(figures: Mapping[str, float]) -> float:
    """Return the monitor's share of the largest branch's advantage in accuracy over the smallest.

    NaN if the largest branch is not more accurate than the smallest.
    """
    monitor, largest, smallest = (figures[f"{side}_accuracy"] for side in ("monitor", "largest", "smallest"))
    return (monitor - smallest) / (largest - smallest) if largest > smallest else math.nan


def _traced(model: PortedModel, features: npt.NDArray[Any], busy: Load, phases: int) -> Trace:
    """Run inferences under an intermittent load, comparing outputs with those of the branches."""
    known = _known(model, features)
    start = time.monotonic()
    rows: list[tuple[float, float, int]] = []
    changes: list[float] = []
    failed = 0
    for phase in range(phases):
        if phase:
            busy.switch(on=phase % 2 == 1)
            changes.append(time.monotonic() - start)
        for _ in _paced(start + (phase + 1) * _PHASE_SECONDS):
            before = time.monotonic()
            output = _output(model, features)
            ended = time.monotonic()
            branch = next(
                (number for number, outputs in enumerate(known) if np.array_equal(output, outputs)), None
            )
            failed += branch is None
            rows.append((ended - start, 1e3 * (ended - before), branch or 0))
    busy.switch(on=False)
    ends, latencies, branches = (np.array(column) for column in zip(*rows, strict=True))
    return Trace(ends, latencies, branches, tuple(changes), failed)


def _paced(end: float) -> Iterator[None]:
    """Yield at the start time of each inference, until `end` on the monotonic clock."""
    for begin in itertools.count(time.monotonic(), _PACE_SECONDS):
        if begin >= end:
            return
        time.sleep(max(0.0, begin - time.monotonic()))
        yield


def _known(model: PortedModel, features: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return each branch's output for the example, which identifies the branches."""
    before, outputs = model.wanted, []
    for option in model.options:
        model.switch(option.id)
        outputs.append(_output(model, features))
    model.switch(before)
    return outputs


def _output(model: PortedModel, features: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the model's only output."""
    outputs = model(features)
    if isinstance(outputs, dict):
        raise TypeError(f"several outputs: {', '.join(outputs)}")
    return outputs


def _recovery(trace: Trace, budget: float) -> float:
    """Return the longest time from a change until most inferences are within the budget, in seconds."""
    return max(
        _until_recovered(trace.ended[during] - begin, trace.latency_ms[during] <= budget)
        for begin, end in pairwise([*trace.changes, trace.ended[-1]])
        for during in [(trace.ended >= begin) & (trace.ended < end)]
    )


def _until_recovered(ended: npt.NDArray[np.float64], within: npt.NDArray[np.bool_]) -> float:
    """Return the seconds until enough inferences of a stretch are within the budget, or the whole time."""
    before = np.concatenate([[0], np.cumsum(within)])
    last = np.searchsorted(ended, ended + _STRETCH_SECONDS)
    whole = ended + _STRETCH_SECONDS <= ended[-1]
    shares = (before[last] - before[:-1]) / (last - np.arange(len(ended)))
    recovered = np.flatnonzero(whole & (shares >= _RECOVERED))
    return float(ended[recovered[0]] if len(recovered) else ended[-1])


def _growth(model: PortedModel, features: npt.NDArray[Any], seconds: float) -> float:
    """Return the memory growth of the process in MiB during inferences and switches."""
    _busy(model, features, min(5.0, seconds))
    before = _resident()
    _busy(model, features, seconds)
    return _resident() - before


def _busy(model: PortedModel, features: npt.NDArray[Any], seconds: float) -> None:
    rng, end = np.random.default_rng(0), time.monotonic() + seconds
    while time.monotonic() < end:
        model.switch(model.options[rng.integers(len(model.options))].id)
        model(features)
        model.statistics()


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def example(model: PortedModel) -> npt.NDArray[Any]:
    """Return a random input."""
    (info,) = model.inputs
    return np.random.default_rng(0).uniform(0, 255, (1, *info.shape[1:])).astype(info.dtype)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _draw(
    traces: Mapping[str, Trace], budget: float, accuracies: npt.NDArray[np.float64], file: Path
) -> None:
    """Plot the latencies over time, and the accuracy of the branches that ran."""
    figure = Figure(figsize=(8, 2.0 * (1 + len(traces))), layout="constrained")
    *each, together = figure.subplots(1 + len(traces), sharex=True)
    for axes, (side, trace) in zip(each, traces.items(), strict=True):
        colours = {"c": trace.branch, "cmap": "viridis", "vmin": 0, "vmax": len(accuracies) - 1}
        axes.scatter(trace.ended, trace.latency_ms, s=1, **colours)
        axes.axhline(budget, color="red", lw=1)
        axes.set(title=f"{side}: latency (colour: branch)", ylabel="ms", ylim=(0, 3 * budget))
        together.step(trace.ended, 100 * accuracies[trace.branch], where="post", label=side)
    for axes in (*each, together):
        for begin, end in zip(trace.changes[::2], [*trace.changes[1::2], trace.ended[-1]], strict=False):
            axes.axvspan(begin, end, alpha=0.1)
    together.set(title="accuracy of the running branch", ylabel="%")
    together.set(xlabel="seconds (shaded: under load)")
    together.legend(loc="lower right", fontsize="small")
    figure.savefig(file, dpi=120)
