"""A real worker process that does no work: networks are JSON files with their costs.

Files in the control directory inject faults: `crash-KIND` contains how many more tasks of this kind kill the
worker, `abort-KIND` how often it aborts while TensorFlow's oneDNN optimizations are on, `exhaust-KIND` how
often it runs out of memory, and `fill-KIND` how often the disk is full; with `hold-KIND` it waits until the
file is removed, after which `devour-KIND` is how often it takes a gigabyte of memory. For adaptations to one
budget, KIND is `adapt-BUDGET`. `adapted` contains costs of all adapted networks, and `collapse-BUDGET` how
often they lose their accuracy. `served` contains the tasks that preparations serve. `tasks` lists all tasks
received.
Certain budgets fail in a specific way each.
"""

import argparse
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from executors.timing import activity
from mistify.config.data.targets import Scores, reached
from mistify.costs.budget import at_threads, latency_axis, size_axis
from mistify.errors import Problem
from mistify.jobs.details import LayerChange, LayerFigures, LayerTable
from mistify.jobs.job import BranchFigures, ProgressUpdate
from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.objects.binding import opened_artifacts
from mistify_server.tasks.messages import LOADING
from mistify_server.tasks.results import (
    AdaptResult,
    BranchCheckpoint,
    BranchResult,
    Inspection,
    PackageResult,
    PrepareResult,
    ReferenceResult,
    Result,
    SourceResult,
    TaskFailure,
)
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    InspectTask,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
    Task,
)
from mistify_server.worker.loop import work

HEARTBEAT_SECONDS = 0.2

#: The operators of every package.
GRAPH = NetworkGraph(
    "main",
    "host",
    (
        GraphNode(INPUT, None, "image", (), (1, 4, 4, 1), "FLOAT32", 64, error=0.0),
        GraphNode("QUANTIZE", 0, "", (0,), (1, 4, 4, 1), "INT8", 16, milliseconds=0.01, error=0.005),
        GraphNode(
            "CONV_2D",
            1,
            "head",
            (1,),
            (1, 4, 4, 8),
            "INT8",
            128,
            "INT8",
            80,
            104,
            1_152,
            0.25,
            0.034,
            "scores",
        ),
    ),
    64,
)

#: The layer table of every package.
LAYERS = LayerTable(
    "host",
    (
        LayerChange("stem", "Conv2D", ("stem",), LayerFigures(8, 80, 512, 0.5), None),
        LayerChange(
            "head", "Conv2D", ("head",), LayerFigures(32, 320, 4_608, 0.5), LayerFigures(8, 80, 1_152, 0.25)
        ),
    ),
)


class ScriptedWorker:
    def __init__(self, artifacts: Artifacts, control: Path, report: Callable[[ProgressUpdate], None]) -> None:
        self.artifacts = artifacts
        self.control = control
        self.report = report

    def answer(self, task: Task) -> Result:
        with (self.control / "tasks").open("a") as log:
            about = {"pid": os.getpid(), "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")}
            log.write(json.dumps({**about, **task.model_dump()}) + "\n")
        loads = (self.control / f"load-{task.kind}").exists()
        self.report(ProgressUpdate(stage=LOADING if loads else f"in {task.kind}", step=1, total_steps=2))
        self.meet(task.kind)
        if isinstance(task, AdaptTask):
            self.meet(f"adapt-{min(task.budget.values()):g}")
        match task:
            case InspectTask():
                return self.inspect(task)
            case SourceTask():
                return self.source(task)
            case AdaptTask():
                return self.adapt(task)
            case PrepareTask() | BranchTask():
                return self.prepare(task) if isinstance(task, PrepareTask) else self.branch(task)
            case PackageTask():
                precision, compression = task.spec.quantization.precision, task.spec.compression
                network = self.artifacts.path(task.checkpoint).read_bytes()
                manifest = json.dumps({"goal": task.goal_id, "job": task.job_id}).encode()
                accuracy = task.accuracy - (0.1 if precision.integer else 0.0)
                return PackageResult(
                    files={
                        "serve.tflite": self.artifacts.put(network * 20_000, ".tflite"),
                        "manifest.json": self.artifacts.put(manifest, ".json"),
                    },
                    achieved={
                        size_axis(precision): len(network) * 20_000.0,
                        **({"zero_share": compression.sparsity or 0.0} if compression else {}),
                    },
                    measured={f"latency_ms@{name}": 0.5 for name in task.recipe.hardware},
                    accuracy=accuracy,
                    validation_accuracy=accuracy,
                    note="as int8: not faster" if precision.integer else "",
                    branches=[
                        BranchFigures(branch.share, branch.costs, {"latency_ms@host": 0.5}, task.accuracy)
                        for branch in (task.branches.branches if task.branches else ())
                    ],
                    layers=LAYERS,
                    graph=GRAPH,
                    spent={"packaging": 0.125},
                )
            case ReferenceTask():
                return self.reference(task)

    def source(self, task: SourceTask) -> Result:
        costs = self.network(task.recipe.model.path)["costs"]
        if "broken" in costs:
            return TaskFailure(code="INVALID_MODEL", message="the source is broken")
        root = self.keep({axis: max(cost, task.exceed.get(axis, 0)) for axis, cost in costs.items()})
        return SourceResult(
            source_costs=costs,
            source_accuracy=0.9,
            teacher=self.keep(costs),
            teacher_accuracy=0.82,
            root=root,
            root_costs=json.loads(self.artifacts.path(root).read_text()),
            steps=10,
            spent={"loading": 0.25, "training": 0.5, "other": 0.25},
        )

    def reference(self, task: ReferenceTask) -> Result:
        if (self.control / "fail-reference").exists():
            return TaskFailure(code="INTERNAL", message="the source cannot be measured")
        measured = {latency_axis(at_threads("host", threads)): 1.0 for threads in task.threads}
        return ReferenceResult(accuracy=0.85, tuned_accuracy=0.86, measured=measured)

    def inspect(self, task: InspectTask) -> Result:
        try:
            network = self.network(task.recipe.model.path)
        except ValueError:
            problem = Problem("model", task.recipe.model.path, "a model", "save it again")
            return TaskFailure(code="INVALID_MODEL", message="no model", problems=(problem,))
        if not task.recipe.data.train.startswith("builtin:") and "y" not in json.loads(
            Path(task.recipe.data.train).read_text()
        ):
            shape = Problem("dataset.train", "no array y", "arrays x and y", "add it")
            return Inspection(costs={}, floor={}, problems=(shape,))
        return Inspection(**network)

    def prepare(self, task: PrepareTask) -> Result:
        if "params" in task.least and task.least["params"] == 11:
            return TaskFailure(code="INTERNAL", message="11 parameters cannot be prepared for")
        self.report(ProgressUpdate(f"preparing {task.recipe.algorithm}", 20, 40, loss=0.5))
        tasks = self.control / "served"
        served = self.artifacts.put(tasks.read_bytes(), ".json") if tasks.exists() else None
        return PrepareResult(prepared=self.keep(task.least), steps=40, served=served, spent={"training": 0.5})

    def branch(self, task: BranchTask) -> Result:
        made = (
            BranchCheckpoint(share=share, checkpoint=task.parent, costs=task.costs) for share in task.shares
        )
        return BranchResult(base=("stem",), branches=tuple(made), steps=5, spent={"training": 0.25})

    def adapt(self, task: AdaptTask) -> Result:
        parent = json.loads(self.artifacts.path(task.parent).read_text())
        match task.budget.get("params"):
            case 13:
                return TaskFailure(code="INTERNAL", message="13 parameters bring bad luck")
            case 17:
                raise ValueError("17 parameters are odd")
            case 19:
                raise FloatingPointError("the loss became nan in step 3")
            case 23:
                self.wait_at(".")
        weights = dict.fromkeys(task.budget, 1 / len(task.budget))
        update = ProgressUpdate("adapting", 0, 100, relative_costs=weights, structure_loss_weights=weights)
        with activity("other"), activity("tracing"), activity("training"):
            self.report(update)
        costs = {axis: min(cost, task.budget.get(axis, cost)) for axis, cost in parent.items()}
        for name in ("adapted", *(f"adapted-{axis}" for axis in task.budget)):
            known = self.control / name
            costs |= json.loads(known.read_text()) if known.exists() else {}
        met = reached(task.targets, Scores(0.8))
        collapses = self.counted(f"collapse-{min(task.budget.values()):g}")
        return AdaptResult(
            checkpoint=self.keep(costs),
            costs=costs,
            accuracy=0.1 if collapses else 0.8,
            met=met,
            reason="" if met else "reached 0.8",
            steps=100,
            spent={"tracing": 0.5, "training": 1.5},
        )

    def meet(self, name: str) -> None:
        if self.counted(f"crash-{name}"):
            print("these are my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0" and self.counted(f"abort-{name}"):
            os.abort()
        if self.counted(f"exhaust-{name}"):
            raise MemoryError("cannot allocate 9 GiB")
        if self.counted(f"fill-{name}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.wait_at(f"hold-{name}")
        if self.counted(f"devour-{name}"):
            print(len(b"x" * 2**30), file=sys.stderr)

    def counted(self, name: str) -> bool:
        file = self.control / name
        left = int(file.read_text()) if file.exists() else 0
        if left > 0:
            file.write_text(str(left - 1))
        return left > 0

    def wait_at(self, name: str) -> None:
        while (self.control / name).exists():
            time.sleep(0.01)

    def network(self, path: str | None) -> dict[str, dict[str, float]]:
        """Return the network in a model's file; the built-in one is small."""
        if path is None:
            return {
                "costs": {"flops": 1e4, "params": 1e3, "memory_bytes": 8e3, "size_bytes": 6e3},
                "floor": {},
            }
        network: dict[str, dict[str, float]] = json.loads(Path(path).read_text())
        return network

    def keep(self, costs: dict[str, float]) -> str:
        return self.artifacts.put(json.dumps(costs, sort_keys=True).encode(), ".json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True)
    arguments = parser.parse_args()
    work(
        lambda report: ScriptedWorker(opened_artifacts(arguments.store), arguments.control, report).answer,
        HEARTBEAT_SECONDS,
    )


if __name__ == "__main__":
    main()
