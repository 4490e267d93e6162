"""A job of 64 goals on one, two and four machines without a shared disk, which are then lost one by one.

`python -m benchmarks.server.scale [--quick] [--json FILE]`

The machines are nodes of a real Ray cluster with one slot each, in network namespaces with links to the
server, the head of the cluster and an S3 server. Each has a disk of its own (a mount namespace): models and
checkpoints are exchanged through the bucket. The goals limit multiply-adds and parameters of the digits
network, eight values each, so that the goal tree has paths of up to 15 goals.

This machine may have fewer processors than there are nodes. So the figures compare processor seconds on the
critical path: each worker does what it did in the order in which it did it, but with a processor of its own.
They include the start of each worker, and exclude waiting for the network. On a busy machine the same work
takes more processor seconds, so they are only comparable if all workers together used about as many in each
run: see the second figure of each.

In a last run of a smaller job, each node is killed, one after the other, and replaced by a new one. The
packages of all runs of a job must be the same.

`--quick` has a job of 9 goals on one and two nodes, too few for the targets of speed. It needs root,
as network namespaces do.
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.console import Console

from benchmarks.harness.run import Figures, MissingDataError, Target, run
from benchmarks.server.scale_cluster import Cluster, Machine, running_cluster
from benchmarks.server.scale_path import ProcessorTimes, critical_path_seconds, works_of
from mistify.jobs.job import GoalState, Job
from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE
from mistify.wording import counted
from mistify_client.rpc.porting import PortingClient

TARGETS: Final[dict[str, Target]] = {
    "speed_of_2": {
        "what": "two nodes: times as fast as one, by the critical path",
        "min": 1.8,
        "full_run_only": True,
    },
    "speed_of_4": {
        "what": "four nodes: times as fast as one, by the critical path",
        "min": 3.2,
        "full_run_only": True,
    },
    "nodes_killed": {"what": "nodes lost during a job", "min": 4, "full_run_only": True},
    "packages_that_differ": {"what": "packages that differ from those of one node", "max": 0},
    "goals_that_failed": {"max": 0},
}

_STEPS: Final = {"source_steps": 40, "adapt_steps": 40, "cuts": 2, "tune_steps": 60}

#: Number of limits on each axis in the job during which nodes are lost.
_DISTURBED: Final = 3
_PAUSE: Final = 0.5

#: Goal and file -> the digest of the file.
Packages: TypeAlias = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Run:
    """A finished job.

    Attributes:
        path: Processor seconds on its critical path.
        total: Processor seconds of all workers.
        elapsed: Seconds from submission to end.
        nodes: The number of nodes at its start.
        lost: The number of nodes that were killed, each of which was replaced.
    """

    job: Job
    path: float
    total: float
    elapsed: float
    nodes: int
    lost: int

    @property
    def packages(self) -> Packages:
        """The digests of all files that do not contain the time."""
        return {
            (goal.id, file.name): file.sha256
            for goal in self.job.goals
            for file in goal.files
            if file.name not in (MANIFEST, SIGNATURE_FILE)
        }

    def differing(self, other: "Run") -> int:
        """Return the number of goals of which a file is missing in one of two runs, or is different."""
        return len({goal for (goal, _), _ in self.packages.items() ^ other.packages.items()})

    @property
    def failed(self) -> int:
        """The number of goals without a package."""
        return sum(goal.state is GoalState.FAILED for goal in self.job.goals)


def config(values: int) -> str:
    """Return a config with a goal for each pair of this many limits on multiply-adds and on parameters."""
    shares = [round(0.95 - 0.8 * place / values, 2) for place in range(values)]
    common = {
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet", "config": _STEPS},
    }
    return json.dumps(
        [
            {
                "id": f"flop-{100 * flop:.0f}-params-{100 * params:.0f}",
                "adaptation_goal": {"FLOP": f"{flop}x", "num_of_params": f"{params}x"},
                **common,
            }
            for flop in shares
            for params in shares
        ]
    )


def measure(options: Namespace) -> Figures:
    """Run the job on each number of nodes, and the smaller one with losses; print a line for each."""
    for module in ("ray", "moto", "boto3", "opentelemetry"):
        _require(module)
    counts, values, lost = ((1, 2), 3, 2) if options.quick else ((1, 2, 4), 8, 4)
    console = Console()
    runs: list[Run] = []
    for count in counts:
        done = _run(values, count)
        runs.append(done)
        console.print(
            f"{len(done.job.goals)} goals on {counted(count, 'node')}: {done.path:.1f} processor s on the "
            f"critical path, {done.total:.1f} in all, {done.elapsed:.0f} s elapsed"
        )
    undisturbed = runs[0] if values == _DISTURBED else _run(_DISTURBED, 1)
    disturbed = _run(_DISTURBED, lost, kills=lost)
    goals = len(disturbed.job.goals)
    console.print(f"{goals} goals on {lost} nodes, each lost once: {disturbed.elapsed:.0f} s elapsed")
    figures = {
        **{f"path_of_{run.nodes}_s": run.path for run in runs},
        **{f"work_of_{run.nodes}_s": run.total for run in runs},
        **{f"speed_of_{run.nodes}": runs[0].path / run.path for run in runs[1:]},
        "nodes_killed": disturbed.lost,
        "packages_that_differ": sum(runs[0].differing(run) for run in runs[1:])
        + undisturbed.differing(disturbed),
        "goals_that_failed": sum(run.failed for run in [*runs, undisturbed, disturbed]),
    }
    of_full_run = {name for name, target in TARGETS.items() if target.get("full_run_only")}
    return {name: figure for name, figure in figures.items() if not (options.quick and name in of_full_run)}


def _require(module: str) -> None:
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        raise MissingDataError(f"{module} is not installed; run make install") from error


def _run(values: int, count: int, kills: int = 0) -> Run:
    """Run a job on some nodes of a new cluster; kill some of them one by one, and replace each."""
    from tests.support.collectors import http_collector  # noqa: PLC0415 (needs an optional package)

    with running_cluster() as cluster, http_collector() as collector:
        nodes = [cluster.add_node() for _ in range(count)]
        address = cluster.start_server(count, collector.url)
        machines = {machine.name: machine.pid for machine in cluster.machines}
        with ProcessorTimes(machines) as times:
            with PortingClient(address) as client:
                begin = time.monotonic()
                job_id = client.submit(config(values), "").id
                losses = _Losses(cluster, nodes[:kills])
                job = _finished(client, job_id, losses)
                elapsed = time.monotonic() - begin
            cluster.stop_server()
        parents = {goal.id: goal.parent for goal in job.goals}
        works = works_of(collector.spans, parents, times)
    total = sum(work.seconds for work in works)
    return Run(job, critical_path_seconds(works), total, elapsed, count, losses.count)


class _Losses:
    """Kills nodes one by one, and adds a new one for each."""

    def __init__(self, cluster: Cluster, nodes: Sequence[Machine]) -> None:
        self._cluster = cluster
        self._left = list(nodes)
        self.count = 0

    def __call__(self, done: int) -> None:
        """Kill the next node if enough goals have ended since the last."""
        if self._left and done > self.count:
            self._left.pop(0).kill()
            self.count += 1
            self._cluster.add_node()


def _finished(client: PortingClient, job_id: str, meanwhile: Callable[[int], None]) -> Job:
    """Wait for a job to end, and tell repeatedly how many goals have ended."""
    while True:
        job = client.job(job_id)
        if job.state.ended:
            return job
        meanwhile(sum(goal.state.ended for goal in job.goals))
        time.sleep(_PAUSE)


if __name__ == "__main__":
    sys.exit(run("server.scale", TARGETS, measure, sys.argv[1:]))
