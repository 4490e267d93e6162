"""Export of a package to an ONNX file."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files.writing import write_bytes
from mistify.package.exits import EXITS
from mistify.package.manifest import NETWORK, SIGNATURE, Manifest, branch_signature
from mistify.package.opened import Package
from mistify.package.records import corrupt_package
from mistify.package.source import SOURCE, SourceInterface
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.interface import Interface, Port
from mistify_client.runtime.versions import open_current

__all__ = ["Exported", "export_onnx"]

#: Largest difference of outputs between LiteRT and ONNX Runtime, as a share of the largest output.
TOLERANCE: Final = 1e-4

_PRECISIONS: Final = (Quantization.NONE, Quantization.FLOAT16)


@dataclass(frozen=True)
class Exported:
    """A written file.

    Attributes:
        branch: The number of the exported branch; None if the package has none.
        exits: Whether the package also has exits, which are not exported.
        nodes: The number of nodes.
        difference: The largest difference from the package's outputs in ONNX Runtime, as a share of the
            largest output; None if that is not installed.
    """

    branch: int | None
    exits: bool
    nodes: int
    difference: float | None


def export_onnx(package: Path, file: Path) -> Exported:
    """Write the network of a package's current version as an ONNX file in float32.

    Args:
        package: The directory of the package. Of one with branches, its own network is written.
        file: The file, which must not exist.

    Raises:
        MistifyError: NOT_FOUND or CORRUPT_PACKAGE, the package cannot be read; UNAVAILABLE, onnx is not
            installed; INVALID_CONFIG, the file exists or has no directory; INVALID_MODEL, the network is
            quantized, or an operator has no equivalent in ONNX; INTERNAL, the written network
            would be invalid, or its outputs differ.
    """
    _check_file(file)
    opened = open_current(package)
    _check_precision(package, opened.manifest)
    _check_installed()
    from mistify_client.exporting.comparison import difference  # noqa: PLC0415 (as below)
    from mistify_client.exporting.conversion import checked, converted  # noqa: PLC0415 (needs onnx)

    manifest, network = opened.manifest, opened.read(NETWORK)
    branch = manifest.default_branch if manifest.branches else None
    interface = _interface(opened)
    signature = SIGNATURE if branch is None else branch_signature(branch)
    try:
        model = converted(network, signature, interface, _about(manifest, branch))
    except NotExportableError as error:
        problem = Problem(
            str(package / NETWORK), str(error), "operators that ONNX has", "see docs/onnx.md#back-to-onnx"
        )
        raise _not_exported(package, problem) from error
    try:
        content = checked(model)
    except ValueError as error:
        raise _own_error(f"the network exported from {package} is invalid ({error})") from error
    apart = difference(network, signature, content, interface)
    if apart is not None and apart > TOLERANCE:
        raise _own_error(
            f"the network exported from {package} differs from it by {apart:.2g} of the largest output; "
            f"expected at most {TOLERANCE:g}"
        )
    write_bytes(file, content)
    return Exported(branch, EXITS in manifest.files, len(model.graph.node), apart)


def _check_file(file: Path) -> None:
    """Refuse a file that exists already, or has no directory."""
    if file.exists() or file.is_symlink():
        problem = Problem("--onnx", f"{file}, which exists", "a new file", "remove it, or give another name")
    elif not file.parent.is_dir():
        problem = Problem(
            "--onnx",
            f"{file}, whose directory does not exist",
            "a file in a directory",
            "create the directory",
        )
    else:
        return
    raise invalid_config([problem], "the command line")


def _check_precision(package: Path, manifest: Manifest) -> None:
    precision = manifest.quantization
    if precision not in _PRECISIONS:
        raise _not_exported(
            package,
            Problem(
                str(package),
                f"a package with {precision.value} weights, which other runtimes would compute differently",
                "one in float32 or float16",
                'port the goal with "quantization": "none", export it, and quantize the file with the other '
                "runtime's tools",
            ),
        )


def _check_installed() -> None:
    if find_spec("onnx") is None:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            "the export needs onnx, which is not installed; run pip install 'mistify-porting[onnx]'",
        )


def _interface(package: Package) -> Interface:
    """Return the names, layouts and types of the source, or of the package if it does not record them.

    Raises:
        MistifyError: CORRUPT_PACKAGE, those recorded are not the package's.
    """
    infos = (*package.manifest.inputs, *package.manifest.outputs)
    source = SourceInterface.of(package)
    if source is None:
        return {info.name: Port(info.name) for info in infos}
    ranks = {info.name: len(info.shape) for info in infos}
    recorded = {tensor.name: tensor for tensor in source.tensors()}
    for name, rank in ranks.items():
        if name not in recorded or len(recorded[name].axes) != rank:
            problem = Problem(
                str(package.directory / SOURCE),
                f"no layout that fits {name}",
                f"one with {rank} axes",
                "fetch the package again",
            )
            raise corrupt_package(package.directory, [problem])
    return {name: Port(recorded[name].source, recorded[name].axes, recorded[name].dtype) for name in ranks}


def _about(manifest: Manifest, branch: int | None) -> dict[str, str]:
    """Return the metadata of the file."""
    about = {"mistify.job": manifest.job, "mistify.goal": manifest.goal}
    return about if branch is None else {**about, "mistify.branch": str(branch)}


def _own_error(message: str) -> MistifyError:
    return MistifyError(
        ErrorCode.INTERNAL,
        f"{message}; nothing was written; report this as an error of Mistify, with the package",
    )


def _not_exported(package: Path, problem: Problem) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_MODEL, f"{package} cannot be exported to ONNX", [problem])
