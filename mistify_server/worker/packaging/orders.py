"""Between a worker's tasks and packages: what is ordered, and what is told of what was made."""

from pathlib import Path

from mistify.jobs.job import BranchFigures
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.results import PackageResult
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.package import Package, PackageOrder


def order_of(task: PackageTask, training_steps: int = 0) -> PackageOrder:
    """The package that a task asks for."""
    return PackageOrder(
        job_id=task.job_id,
        goal_id=task.goal_id,
        budget=task.budget,
        accuracy_target=task.accuracy_target,
        metric=task.data.metric,
        quantization=task.quantization,
        compression=task.compression,
        tuning=task.tuning,
        saved_model=task.saved_model,
        costs=task.costs,
        accuracy=task.accuracy,
        profiles=tuple(task.hardware.values()),
        training_steps=training_steps,
        seed=task.seed,
    )


def package_result(package: Package, artifacts: Artifacts) -> PackageResult:
    """Put the files of a package into the artifacts."""
    files = {name: artifacts.put(content, Path(name).suffix) for name, content in package.files.items()}
    manifest = package.manifest
    return PackageResult(
        files=files,
        achieved=manifest.achieved,
        measured=manifest.measured,
        accuracy=manifest.accuracy,
        note=manifest.note,
        branches=tuple(
            BranchFigures(branch.share, branch.achieved, branch.measured, branch.accuracy)
            for branch in manifest.branches
        ),
    )
