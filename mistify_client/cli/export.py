"""The command `mistify export`: the network of a package for other runtimes than LiteRT."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mistify.wording import counted
from mistify_client.cli.errors import reported_errors
from mistify_client.exporting.packages import Exported, export_onnx
from mistify_client.porting.printing import print_line
from mistify_client.runtime.trust import require_trusted


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(export)


def export(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE_DIR")],
    *,
    onnx: Annotated[Path, typer.Option(metavar="FILE", help="The file to write, which must not exist.")],
) -> None:
    """Write the network of a package as an ONNX file, for ONNX Runtime, OpenVINO or TensorRT.

    The file has the names and the layout of the source's inputs and outputs, a free batch size, and weights
    in float32. Packages in float32 and float16 can be exported. If onnxruntime is installed, the outputs are
    compared. Exit codes: 2 the file exists, or the network is quantized or has an operator that ONNX lacks; 3
    there is no such package; 8 onnx is not installed; 10 the package is damaged.
    """
    with reported_errors():
        require_trusted(package)
        for line in _summary(export_onnx(package, onnx), onnx):
            print_line(Console(), line)


def _summary(exported: Exported, file: Path) -> Iterator[str]:
    if exported.branch is not None:
        yield f"branch {exported.branch}, the goal's own network; the other branches are not exported"
    if exported.exits:
        yield "the whole network; its exits are not exported"
    if exported.difference is None:
        yield "not compared with the package, because onnxruntime is not installed"
    else:
        yield f"largest difference from the package: {exported.difference:.1g} of the largest output"
    yield f"written: {file} ({counted(exported.nodes, 'node')})"
