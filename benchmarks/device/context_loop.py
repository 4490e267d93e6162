"""The loop that decides about subnet, engine and placement together, on a device with changing conditions.

`python -m benchmarks.device.context_loop --data DIR [--packages DIR] [--quick] [--json FILE]`

A residual network is trained on CIFAR-10 with an adaptivenet supernet. On the device, `mistify adapt` finds
subnets on 1,000 images of the test file, and `mistify engines` measures them. Accuracies are those on other
images of the test file. An app runs one inference after another, in a network namespace with a helper on the
other side of a link of 100 MB/s; device and helper have one core each. The policy is `contextual`.

- `memory_100` to `memory_25`: memory of the app relative to the limit, which is that share of the memory of
  the network as it was shipped; its proportional set size without libraries, less that before it loaded the
  package. Only accuracy and memory count. `lost_75` to `lost_25`: points of accuracy lost against the shipped
  network;
- `decision_us`: processor time of a decision of the policy, the median; `core_share`: processor time of the
  loop at one decision a second, with all measurements, as a share of one core;
- `tau_0`, `tau_1` and `tau_3`: Kendall's tau between predicted and measured latencies of all options with
  none, one and three competitors on the device's core, over pairs of options that differ by more than 10 %.
  Predictions are made while the first option runs alone; then all others run, in a random order;
- `gained_subnets`, `gained_placement` and `gained_engines`: the share of latency or memory, whichever is
  larger, that the whole loop saves over one that lacks this level: the shipped network alone, no helper, or
  the own engine alone. Each runs through the same trace of competitors and memory limits. Beside them are
  the mean latency, memory and accuracy of each loop.

DIR of `--data` has `cifar10/train.npz` and `cifar10/test.npz`; that of `--packages` keeps the package for
later runs. Needs root. A full run takes about an hour with two cores, half of it for training.
"""

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.device.context_driving import (
    SETTLED_SECONDS,
    Chosen,
    Loop,
    Observations,
    Timed,
    cores,
    looping,
    measured_median,
    option_ids,
)
from benchmarks.device.lending import competing
from benchmarks.device.namespaces import NamespaceLink, namespace_link
from benchmarks.harness.run import Figures, Target, add_data_option, data_with, run
from benchmarks.harness.worker import TEST, TRAIN
from mistify.package.block_files import BlockFiles
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.parsing.quantities import Quantity
from mistify.parsing.validation import Settings
from mistify_client.assembly.executions import Execution, open_network, part_that_runs
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.assembly.stitching import stitch
from mistify_client.engines.offering import best_engines, offer_engines
from mistify_client.engines.subnets import measured_entries
from mistify_client.monitor.policies.base import make_policy
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.search_session import adapt

_EACH: Final = "each loop without one level"

TARGETS: Final[dict[str, Target]] = {
    "memory_100": {"what": "memory of the app relative to a limit of 100 %", "max": 1.0},
    "memory_75": {"what": "memory of the app relative to a limit of 75 %", "max": 1.0},
    "memory_50": {"what": "memory of the app relative to a limit of 50 %", "max": 1.0},
    "memory_25": {"what": "memory of the app relative to a limit of 25 %", "max": 1.0, "full_run_only": True},
    "lost_75": {"what": "points lost within 75 % of the memory", "max": 1.0, "full_run_only": True},
    "lost_50": {"what": "points lost within 50 % of the memory", "max": 1.0, "full_run_only": True},
    "lost_25": {"what": "points lost within 25 % of the memory", "max": 4.0, "full_run_only": True},
    "decision_us": {"what": "a decision, us of processor time", "max": 1000},
    "core_share": {"what": "processor time of the loop as a share of one core", "max": 0.005},
    "tau_0": {"what": "Kendall's tau of latencies, idle device", "min": 0.9, "full_run_only": True},
    "tau_1": {"what": "Kendall's tau of latencies, one competitor", "min": 0.9, "full_run_only": True},
    "tau_3": {"what": "Kendall's tau of latencies, three competitors", "min": 0.9, "full_run_only": True},
    "gained_subnets": {
        "what": "latency or memory saved over the loop without subnets",
        "min": 0.15,
        "full_run_only": True,
    },
    "gained_placement": {
        "what": "latency or memory saved over the loop without helpers",
        "min": 0.15,
        "full_run_only": True,
    },
    "gained_engines": {
        "what": "latency or memory saved over the loop without engines",
        "min": 0.15,
        "full_run_only": True,
    },
}

MEMORY_SHARES: Final = (1.0, 0.75, 0.5, 0.25)
COMPETITORS: Final = (0, 1, 3)

#: Images for the search on the device, and others for its accuracies.
_SEARCHED: Final = 1_000
_HELD_OUT: Final = 2_000

_BANDWIDTH: Final = 100e6

#: Options that differ by less count as equally fast.
_APART: Final = 1.1

#: The trace of the ablation: competitors, share of the memory, seconds.
_TRACE: Final = ((0, 1.0, 30), (3, 1.0, 40), (3, 0.5, 40), (0, 1.0, 30), (1, 1.0, 40), (3, 0.75, 40))
_QUICK_TRACE: Final = ((0, 1.0, 12), (3, 0.5, 12))

_ACCURATE: Final = {"name": "contextual", "importance": {"accuracy": 9, "memory": 1}, "battery": "ignore"}
_BALANCED: Final = {
    "name": "contextual",
    "importance": {"accuracy": 5, "latency": 5, "memory": 3},
    "battery": "ignore",
}


class Subject(NamedTuple):
    """The package of the device.

    Attributes:
        package: Its directory.
        pool: The pool with measured engines.
        shipped: The shipped network with its measured engines, the own one last.
        accuracies: Files of a network -> accuracy on the images held out.
    """

    package: Path
    pool: SubnetPool
    shipped: tuple[PoolEntry, ...]
    accuracies: Mapping[tuple[str, ...], float]

    @property
    def own(self) -> PoolEntry:
        """The shipped network as it was shipped."""
        return next(entry for entry in self.shipped if not entry.engine.mapped_weights)

    @property
    def whole(self) -> tuple[PoolEntry, ...]:
        """All entries, including the shipped network."""
        others = (entry for entry in self.pool.entries if entry.files != self.own.files)
        return (*others, *self.shipped)

    def with_entries(self, directory: Path, entries: Sequence[PoolEntry]) -> Path:
        """Return a copy of the package with some of the entries as options."""
        shutil.copytree(self.package, directory)
        state_directory(directory).mkdir()
        pool = self.pool.model_copy(update={"entries": tuple(entries), "generation": 0})
        pool.save(state_directory(directory))
        return directory

    def accuracies_of(self, package: Path) -> dict[str, float]:
        """Return id of each option of a copy, in their order -> accuracy."""
        pool = SubnetPool.load(state_directory(package), Package.open(package))
        entries = () if pool is None else pool.entries
        return {
            option: self.accuracies[entry.files]
            for option, entry in zip(option_ids(package), entries, strict=True)
        }


def measure(options: Namespace) -> Figures:
    """Return all figures, and print tables."""
    data = data_with((TRAIN, TEST), options)
    with TemporaryDirectory() as temporary, namespace_link() as link:
        link.limit(_BANDWIDTH)
        work = Path(temporary)
        subject = _subject(options.packages or work / "packages", data, quick=options.quick)
        whole = subject.with_entries(work / "whole", subject.whole)
        with _helper(link, whole) as helper:
            return {
                **_limits(link, subject, work),
                **_ranking(link, whole, helper, quick=options.quick),
                **_ablation(link, subject, work, helper, quick=options.quick),
            }


def add_options(parser: ArgumentParser) -> None:
    """Add the options for the data and the package."""
    add_data_option(parser)
    parser.add_argument(
        "--packages", type=Path, metavar="DIR", help="directory of the package; made if missing"
    )


def _limits(link: NamespaceLink, subject: Subject, work: Path) -> Figures:
    """Return memory and accuracy within limits on the memory."""
    package = subject.with_entries(work / "limits", subject.whole)
    accuracies, figures = subject.accuracies_of(package), {}
    own = subject.own.memory_bytes or 0.0
    with looping(link, package, make_policy(_ACCURATE)) as loop:
        for share in MEMORY_SHARES:
            loop.run(2 * SETTLED_SECONDS, Targets(memory=share * own))
            settled = loop.run(3.0, Targets(memory=share * own))
            percent = f"{100 * share:.0f}"
            figures[f"memory_{percent}"] = settled.bytes / (share * own)
            lost = subject.accuracies[subject.own.files] - settled.accuracy(accuracies)
            figures[f"lost_{percent}"] = 100 * lost
            Console().print(
                f"{percent} % of {own / 1e6:.1f} MB: {settled.options[-1]}, {settled.bytes / 1e6:.1f} MB"
            )
    return figures


def _ranking(link: NamespaceLink, package: Path, helper: Sequence[str], *, quick: bool) -> Figures:
    """Return the rank correlations of predicted and measured latencies."""
    policy, figures = Chosen(Settings()), {}
    rng = np.random.default_rng(0)
    ids = option_ids(package)
    with looping(link, package, policy, helper) as loop:
        for competitors in COMPETITORS[:2] if quick else COMPETITORS:
            with competing(link, competitors):
                policy.option = ids[0]
                predicted = _predictions(loop.run(SETTLED_SECONDS))
                names = sorted(predicted)[: 3 if quick else None]
                measured = {}
                for place in rng.permutation(len(names)):
                    policy.option = names[place]
                    trace = loop.run(SETTLED_SECONDS)
                    if trace.options[-1] == names[place]:
                        measured[names[place]] = measured_median(trace, 3.0)
                figures[f"tau_{competitors}"] = _tau(predicted, measured)
                _print_ranking(competitors, predicted, measured)
    return figures


def _predictions(observations: Observations) -> dict[str, float]:
    """Return id of each option -> predicted milliseconds."""
    if observations.outcome is None:
        raise RuntimeError("no decision was made")
    situation = observations.outcome.situation
    return {option.id: situation.predicted(option).ms for option in situation.options}


def _tau(predicted: Mapping[str, float], measured: Mapping[str, float]) -> float:
    """Return Kendall's tau over the pairs that are apart, by their measured latencies."""
    signs = [
        np.sign((predicted[one] - predicted[other]) * (measured[one] - measured[other]))
        for one, other in combinations(measured, 2)
        if max(measured[one], measured[other]) > _APART * min(measured[one], measured[other])
    ]
    return fmean(signs) if signs else 1.0


def _ablation(
    link: NamespaceLink, subject: Subject, work: Path, helper: Sequence[str], *, quick: bool
) -> Figures:
    """Return what the whole loop saves over loops that lack a level, and the costs of the loop itself."""
    own_engine = [entry for entry in subject.whole if not entry.engine.mapped_weights]
    sides = {
        "whole": (subject.whole, helper),
        "subnets": (subject.shipped, helper),
        "placement": (subject.whole, ()),
        "engines": (own_engine, helper),
    }
    figures: dict[str, float] = {}
    for name, (entries, address) in sides.items():
        package = subject.with_entries(work / f"without-{name}", entries)
        policy = Timed(make_policy(_BALANCED))
        with looping(link, package, policy, address) as loop:
            traces = _traced(link, loop, subject, quick=quick)
        if name == "whole":
            figures["decision_us"] = median(policy.decision_us)
            figures["core_share"] = fmean(loop.step_ms) / 1e3
        figures[f"{name}_ms"] = fmean(each.ms for each in traces)
        figures[f"{name}_mb"] = fmean(each.bytes for each in traces) / 1e6
        accuracies = subject.accuracies_of(package)
        figures[f"{name}_accuracy"] = fmean(each.accuracy(accuracies) for each in traces)
    for name in list(sides)[1:]:
        saved = (1 - figures[f"whole_{cost}"] / figures[f"{name}_{cost}"] for cost in ("ms", "mb"))
        figures[f"gained_{name}"] = max(saved)
    Console().print(_ablation_table(sides, figures))
    return figures


def _traced(link: NamespaceLink, loop: Loop, subject: Subject, *, quick: bool) -> list[Observations]:
    """Return what ran in each part of the trace."""
    own, traces = subject.own.memory_bytes or 0.0, []
    for competitors, share, seconds in _QUICK_TRACE if quick else _TRACE:
        with competing(link, competitors):
            traces.append(loop.run(seconds, Targets(memory=share * own)))
    return traces


def _subject(packages: Path, data: Path, *, quick: bool) -> Subject:
    """Return the package with measured subnets; train it if it is missing."""
    package = (packages / ("quick" if quick else "full")).absolute()
    if not package.exists():
        package.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.device.context_package", str(data), str(package)]
        subprocess.run([*command, *(["quick"] if quick else [])], check=True, stderr=subprocess.DEVNULL)
    with np.load(data / TEST) as arrays:
        images, classes = arrays["x"].astype(np.float32), arrays["y"]
    state, version = state_directory(package), Package.open(package)
    pool = SubnetPool.load(state, version)
    if pool is None:
        examples = package.with_suffix(".npz")
        np.savez(examples, x=images[:_SEARCHED], y=classes[:_SEARCHED])
        pool = adapt(package, examples, Quantity(1.0, relative=True), seconds=0.05 if quick else 0.15).pool
        if quick:
            pool.model_copy(update={"entries": pool.entries[:: max(1, len(pool.entries) // 2)]}).save(state)
        offer_engines(package, seconds=0.1 if quick else 1.0)
        pool = SubnetPool.load(state, version)
    if pool is None:
        raise RuntimeError(f"{package} has no pool")
    seconds, held_out = (0.1, _HELD_OUT // 10) if quick else (1.0, _HELD_OUT)
    searched, others = slice(_SEARCHED), slice(_SEARCHED, _SEARCHED + held_out)
    own = _accuracy(version, (NETWORK,), images[searched], classes[searched])
    original = PoolEntry(files=(NETWORK,), latency_ms=pool.original_ms, accuracy=own)
    alone = pool.model_copy(update={"entries": (original,)})
    shipped = tuple(
        one.entry for one in measured_entries(version, alone, seconds, best_engines) if one.is_offered
    )
    networks = {entry.files for entry in (*pool.entries, original)}
    accuracies = {files: _accuracy(version, files, images[others], classes[others]) for files in networks}
    return Subject(package, pool, shipped, accuracies)


def _accuracy(version: Package, files: Sequence[str], images: "np.ndarray", classes: "np.ndarray") -> float:
    """Return the accuracy of a network of blocks."""
    blocks = with_shipped(blocks_of(version), version).network_of(files)
    with BlockFiles(version.directory) as opened:
        content = stitch(opened, blocks) if len(blocks) > 1 else opened.read(blocks[0])
    run_network = open_network(part_that_runs(content, Execution.INTERPRETER), Execution.INTERPRETER, 1)
    name, output = version.manifest.inputs[0].name, version.manifest.outputs[0].name
    parts = np.array_split(images, max(1, len(images) // 100))
    scores = np.concatenate([run_network({name: part})[output] for part in parts])
    return float((scores.argmax(axis=1) == classes).mean())


@contextmanager
def _helper(link: NamespaceLink, package: Path) -> Iterator[Sequence[str]]:
    """Run a helper for a package; yield its address for the device, and the file with its token."""
    token = package.with_suffix(".token")
    token.touch(0o600)
    token.write_text("of a benchmark")
    mistify = str(Path(sys.executable).with_name("mistify"))
    listen = ["--listen", f"{link.addresses[1]}:0", "--token-file", str(token), "--rate", "1000"]
    process = subprocess.Popen(
        [*link.inside(1, cores()[1]), mistify, "lend", "--package", str(package), *listen],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("a helper without standard output")
        yield process.stdout.readline().split()[-1], str(token)
    finally:
        process.kill()
        process.wait()


def _print_ranking(competitors: int, predicted: Mapping[str, float], measured: Mapping[str, float]) -> None:
    table = Table(title=f"latencies with {competitors} competitors, ms", title_justify="left")
    for column in ("option", "predicted", "measured"):
        table.add_column(column, justify="left" if column == "option" else "right")
    for option in sorted(measured, key=lambda each: measured[each]):
        table.add_row(option, f"{predicted[option]:.2f}", f"{measured[option]:.2f}")
    Console().print(table)


def _ablation_table(sides: Mapping[str, object], figures: Mapping[str, float]) -> Table:
    table = Table(title="means over the trace", title_justify="left")
    for column in ("loop", "ms", "MB", "accuracy"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for name in sides:
        shown = "whole" if name == "whole" else f"without {name}"
        costs = (f"{figures[f'{name}_ms']:.2f}", f"{figures[f'{name}_mb']:.1f}")
        table.add_row(shown, *costs, f"{figures[f'{name}_accuracy']:.1%}")
    return table


if __name__ == "__main__":
    sys.exit(run("device.context_loop", TARGETS, measure, sys.argv[1:], add_options))
