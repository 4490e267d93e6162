"""The command `run` to try a package: inputs from files, outputs to a file, and the latency."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from mistify.costs.budget import LATENCY
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.formatting import amount
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import ThreadsOption
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.loading import load

RUNS = 10


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(run)


def run(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE_DIR")],
    inputs: Annotated[
        list[Path], typer.Option("--input", help=".npy file; repeat it for each input, in order.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write: .npy, or .npz for several outputs.")
    ] = None,
    threads: ThreadsOption = None,
) -> None:
    """Run a package on arrays and print its latency."""
    with reported_errors():
        for line in try_package(package, inputs, output, threads):
            typer.echo(line)


def try_package(
    package: Path, inputs: Sequence[Path], output: Path | None, threads: int | None
) -> Iterator[str]:
    """Run a package on `.npy` files several times; yield lines that describe outputs and latency.

    Args:
        inputs: `.npy` files, one per input, in the order of the signature; the first dimension of each array
            is the batch.
        output: The file for the outputs; None to write none.
        threads: The number of threads; None for the number with which the package was measured.

    Raises:
        MistifyError: The package cannot be used, a file contains no array, or an array does not fit.
    """
    model = load(package, threads=threads)
    arrays = [_read(path) for path in inputs]
    result = model(*arrays)
    outputs = result if isinstance(result, dict) else {model.outputs[0].name: result}
    for name, array in outputs.items():
        yield f"{name}: {array.dtype} {array.shape}"
    if output is not None:
        _write(output, outputs)
        yield f"written: {output}"
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        model(*arrays)
        seconds.append(time.perf_counter() - start)
    batch = len(next(iter(outputs.values())))
    yield f"latency: {amount(LATENCY, 1000 * median(seconds))} (batch {batch}, median of {RUNS} runs)"


def _read(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _invalid(path, str(error), "a .npy file with one array") from error
    if not isinstance(array, np.ndarray):
        raise _invalid(path, "an archive", "a .npy file with one array")
    return array


def _write(path: Path, outputs: Mapping[str, Any]) -> None:
    if len(outputs) > 1:
        if path.suffix != ".npz":
            raise _invalid(path, f"{len(outputs)} outputs", "a name that ends in .npz")
        np.savez(path, **outputs)
    else:
        with path.open("wb") as stream:
            np.save(stream, next(iter(outputs.values())), allow_pickle=False)


def _invalid(path: Path, value: str, expected: str) -> MistifyError:
    problem = Problem(str(path), value, expected, "give another file")
    return MistifyError(ErrorCode.INVALID_DATASET, f"{path} cannot be used", [problem])
