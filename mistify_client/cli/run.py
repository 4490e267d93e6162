"""The command `run` to try a package on files: it prints the best classes and the latency."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final
from zipfile import BadZipFile

import numpy as np
import typer

from mistify.costs.budget import LATENCY
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.suffixes import suffix_of
from mistify.jobs.formatting import amount
from mistify.wording import counted
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.images import read_image
from mistify_client.cli.options import ThreadsOption
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.loading import load
from mistify_client.runtime.model import PortedModel

RUNS: Final = 10

#: Number of classes that are listed if the package has their names.
_TOP: Final = 5

#: Number of examples whose classes are listed.
_MOST_LISTED: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(run)


def run(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE_DIR")],
    *,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help=".npy, image or .txt file; repeat it for each input, in order."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="A text as the last input, or the only one.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write: .npy, or .npz for several outputs.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=0, help="Classes to list; by default 5 if the package names them.")
    ] = None,
    threads: ThreadsOption = None,
) -> None:
    """Run a package on arrays, an image or a text; print the best classes and the latency."""
    with reported_errors():
        for line in try_package(package, inputs or [], text=text, output=output, top=top, threads=threads):
            typer.echo(line)


def try_package(
    package: Path,
    inputs: Sequence[Path],
    *,
    text: str | None = None,
    output: Path | None = None,
    top: int | None = None,
    threads: int | None = None,
) -> Iterator[str]:
    """Run a package several times; yield lines that describe outputs, classes and latency.

    Args:
        inputs: One file per input, in the order of the signature: a `.npy` file, whose first dimension is the
            batch, or an image or a `.txt` file, which is prepared as described in the package.
        text: The text of the last input; None if all inputs have files.
        output: The file for the outputs; None to write none.
        top: Number of the classes with the highest outputs to list; None for some if they have names.
        threads: The number of threads; None for the number with which the package was measured.

    Raises:
        MistifyError: The package cannot be used, or a file cannot be used as its input.
    """
    model = load(package, threads=threads)
    arrays = list(_arrays(model, [*inputs, *([] if text is None else [text])]))
    result = model(*arrays)
    outputs = result if isinstance(result, dict) else {model.outputs[0].name: result}
    for name, array in outputs.items():
        yield f"{name}: {array.dtype} {array.shape}"
        names = model.manifest.labels.get(name, ())
        yield from _best_classes(array, names, top if top is not None else _TOP if names else 0)
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


def _arrays(model: PortedModel, sources: Sequence[Path | str]) -> Iterator[Array]:
    """Yield the inputs from their files, or from a text."""
    names = [info.name for info in model.inputs]
    if len(sources) != len(names):
        expected = f"one for each of {', '.join(names)}, in this order"
        problem = Problem("--input", counted(len(sources), "input"), expected, "repeat --input for each")
        raise MistifyError(ErrorCode.INVALID_DATASET, "the package cannot be run", [problem])
    for source, name in zip(sources, names, strict=True):
        if isinstance(source, str):
            yield model.prepare(source, name)
        elif suffix_of(source) in (".npy", ".npz"):
            yield _read(source)
        elif suffix_of(source) == ".txt":
            yield model.prepare(_read_text(source), name)
        else:
            yield model.prepare(read_image(source), name)


def _best_classes(array: Array, names: Sequence[str], top: int) -> Iterator[str]:
    """Yield the classes with the highest outputs of each example; none for outputs that are not classes."""
    if top == 0 or array.ndim != 2:
        return
    for number, row in enumerate(array[:_MOST_LISTED]):
        if len(array) > 1:
            yield f"  example {number}:"
        if len(row) == 1 and len(names) == 2:  # the names of no and yes
            yield f"  {row[0]:8.4g}  {names[1]}"
            continue
        for place in np.argsort(-row, kind="stable")[:top]:
            yield f"  {row[place]:8.4g}  {names[place] if names else f'class {place}'}"
    if len(array) > _MOST_LISTED:
        yield f"  and {counted(len(array) - _MOST_LISTED, 'other example')}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _invalid(path, str(error), "a text in UTF-8") from error


def _read(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise _invalid(path, str(error), "a .npy file with one array") from error
    if not isinstance(array, np.ndarray):
        raise _invalid(path, "an archive", "a .npy file with one array")
    return array


def _write(path: Path, outputs: Mapping[str, Any]) -> None:
    if len(outputs) > 1:
        if suffix_of(path) != ".npz":
            raise _invalid(path, f"{len(outputs)} outputs", "a name that ends in .npz")
        with path.open("wb") as stream:
            np.savez(stream, **outputs)
    else:
        with path.open("wb") as stream:
            np.save(stream, next(iter(outputs.values())), allow_pickle=False)


def _invalid(path: Path, value: str, expected: str) -> MistifyError:
    problem = Problem(str(path), value, expected, "give another file")
    return MistifyError(ErrorCode.INVALID_DATASET, f"{path} cannot be used", [problem])
