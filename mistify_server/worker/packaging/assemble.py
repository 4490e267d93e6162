"""Assembly of a package from its networks and manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from executors.data import HeldOut
from executors.outputs.objectives import OutputObjective
from mistify.jobs.job import BranchFigures
from mistify.jobs.network_graph import NetworkGraph
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.training import TRAIN
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.results import PackageResult
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.result import Conversion
from mistify_server.worker.packaging.manifest import manifest_of
from mistify_server.worker.packaging.measurement.package import measure


@dataclass(frozen=True)
class PackageFiles:
    """A package.

    Attributes:
        files: Name -> content, including the manifest.
        manifest: The parsed manifest.
        graph: The operators of its network; None if there are too many. They are kept with the goal instead
            of among the files, because devices have no use for them.
    """

    files: dict[str, bytes]
    manifest: Manifest
    graph: NetworkGraph | None


def assemble(
    conversion: Conversion, task: PackageTask, objectives: Mapping[str, OutputObjective], held_out: HeldOut
) -> PackageFiles:
    """Measure converted networks, and return them as a package.

    Args:
        conversion: The networks of the package.
        task: The package task, with the costs and accuracy of the checkpoint.
        objectives: Output -> its objective.
        held_out: The held-out data for comparison and measurement.

    Raises:
        MistifyError: CORRUPT_PACKAGE, its outputs differ from the original's.
    """
    measured = measure(conversion, task, objectives, held_out)
    files = _files(conversion)
    manifest = manifest_of(conversion, measured, task, files)
    description = (manifest.model_dump_json(indent=2) + "\n").encode()
    return PackageFiles({**files, MANIFEST: description}, manifest, measured.graph)


def store_package(package: PackageFiles, task: PackageTask, artifacts: Artifacts) -> PackageResult:
    """Store the files of a package as artifacts, and return their digests with the package's figures."""
    manifest = package.manifest
    return PackageResult(
        files={name: artifacts.put(content, Path(name).suffix) for name, content in package.files.items()},
        achieved=manifest.achieved,
        measured=manifest.measured,
        accuracy=manifest.accuracy,
        validation_accuracy=manifest.validation_accuracy,
        validation_metric=task.recipe.data.validation_metric,
        metric=manifest.metric,
        output_scores=manifest.output_scores,
        validation_output_scores=manifest.validation_output_scores,
        note=manifest.note,
        branches=tuple(
            BranchFigures(branch.share, branch.achieved, branch.measured, branch.accuracy)
            for branch in manifest.branches
        ),
        graph=package.graph,
    )


def _files(conversion: Conversion) -> dict[str, bytes]:
    """Return the contents of all files except the manifest, by name."""
    networks = conversion.networks
    training = {TRAIN: networks.train} if networks.train else {}
    return {NETWORK: networks.serve, **training, **conversion.description.files, **conversion.other_files}
