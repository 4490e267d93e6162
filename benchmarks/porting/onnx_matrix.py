"""ONNX files that can be adapted: `python -m benchmarks.porting.onnx_matrix [--only NAME] [--write FILE]`.

PyTorch networks with random weights are written by both of PyTorch's exporters; the ONNX files of installed
Python packages are read as they are. Each file is read in a process of its own:

- The outputs for random inputs are compared with those of ONNX Runtime, relative to the largest output, or to
  1 for probabilities.
- The processor time and the memory of reading are measured. Memory is how far the resident memory rises after
  all modules are loaded. It is compared with the size of files of 32 MB or more; smaller ones take less than
  TensorFlow itself.
- The channel groups are found, and compared with those of the same architecture in `keras.applications`.
- The parameters with one unit in each group are counted.

Networks of packages that are not installed are listed as skipped: torch and onnxscript (the extra `peers`),
torchvision, timm, magika, rapidocr, silero-vad. `--write FILE` writes the table in Markdown; `--quick` only
reads a few small networks of PyTorch's older exporter.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from rich.console import Console

from benchmarks.harness.run import Figures, MissingDataError, Target, run
from benchmarks.porting.onnx_networks import PACKAGED, TORCH, export
from benchmarks.porting.onnx_reading import Reading, read

T = TypeVar("T")

#: Bytes of files whose memory is compared with their size.
_LARGE: Final = 32_000_000

#: Networks of a quick run.
_FAST: Final = ("MobileNetV3Small", "detector", "rare options", "LSTM tagger", "Silero VAD")

TARGETS: Final[dict[str, Target]] = {
    "refused": {"what": "files that cannot be read", "max": 0},
    "difference": {
        "what": "largest difference from ONNX Runtime, relative to the largest output", "max": 1e-5,
    },
    "seconds": {"what": "longest processor time to read a file, s", "max": 15},
    "memory": {
        "what": "most memory to read a file of 32 MB or more, times its size",
        "max": 8,
        "full_run_only": True,
    },
    "permutes": {"what": "transpositions in convolutional and recurrent networks", "max": 0},
    "fewer_groups": {"what": "networks with fewer channel groups than in keras.applications", "max": 0},
}  # fmt: skip

_EXPORTERS: Final = {False: "TorchScript", True: "dynamo"}


@dataclass(frozen=True)
class Row:
    """A file in the table.

    Attributes:
        exporter: Name of the exporter or the package.
        convolutional: Whether no transposition may be needed.
        reading: None if it was not read.
        reason: Why it was not read; empty if it was.
        skipped: Whether a package is missing.
    """

    name: str
    exporter: str
    convolutional: bool = False
    reading: Reading | None = None
    reason: str = ""
    skipped: bool = False


def measure(options: Namespace) -> Figures:
    """Read all files, and print the table."""
    names = options.only or (_FAST if options.quick else [*TORCH, *PACKAGED])
    rows = []
    with TemporaryDirectory() as directory:
        for row in _rows(names, Path(directory), options.quick):
            rows.append(row)
            Console(stderr=True).print(markdown([row]).splitlines()[-1], markup=False)
    table = markdown(rows)
    print(table)
    if options.write:
        options.write.write_text(_PREFACE + table)
    if not any(row.reading for row in rows):
        raise MissingDataError("; ".join(sorted({row.reason for row in rows})))
    return figures_of(rows)


def figures_of(rows: Iterable[Row]) -> Figures:
    """Return the figures of a table."""
    rows = list(rows)
    done = [(row, row.reading) for row in rows if row.reading is not None]
    large = [reading.memory / reading.size for _, reading in done if reading.size >= _LARGE]
    return {
        "files": len(done),
        "skipped": sum(row.skipped for row in rows),
        "refused": sum(row.reading is None and not row.skipped for row in rows),
        "difference": max(reading.difference for _, reading in done),
        "seconds": max(reading.seconds for _, reading in done),
        **({"memory": max(large)} if large else {}),
        "permutes": sum(reading.permutes for row, reading in done if row.convolutional),
        "fewer_groups": sum(reading.groups < (reading.twin_groups or 0) for _, reading in done),
    }


def _rows(names: Iterable[str], directory: Path, quick: bool) -> Iterator[Row]:
    for name in names:
        if name in PACKAGED:
            yield _read_packaged(name)
            continue
        for newer in (False,) if quick else (False, True):
            path = directory / "net.onnx"
            yield _read_exported(name, path, newer)
            path.unlink(missing_ok=True)


def _read_packaged(name: str) -> Row:
    packaged = PACKAGED[name]
    row = partial(Row, name, packaged.package)
    try:
        path = packaged.path
    except MissingDataError as missing:
        return row(reason=str(missing), skipped=True)
    return _read(row, path, {key: tuple(value) for key, value in packaged.sizes.items()}, "")


def _read_exported(name: str, path: Path, newer: bool) -> Row:
    network = TORCH[name]
    row = partial(Row, name, _EXPORTERS[newer], network.convolutional)
    try:
        _apart(partial(export, name, path, newer))
    except MissingDataError as missing:
        return row(reason=str(missing), skipped=True)
    return _read(row, path, {}, network.twin)


def _read(row: Callable[..., Row], path: Path, sizes: dict[str, tuple[int, ...]], twin: str) -> Row:
    try:
        return row(reading=_apart(partial(read, path, sizes, twin)))
    except Exception as error:  # whatever reading raises is in the table
        return row(reason=" ".join(str(error).split()))


def _apart(function: Callable[[], T]) -> T:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function).result()


def markdown(rows: Iterable[Row]) -> str:
    """Return the table, with one row per file."""
    lines = [
        "| network | exporter or package | MB | difference | s | memory, MB | transpositions | groups "
        "| in Keras | least | |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        reading = row.reading
        if reading is None:
            verdict = f"{'skipped' if row.skipped else 'refused'}: {row.reason}"
            lines.append(f"| {row.name} | {row.exporter} | | | | | | | | | {verdict} |")
            continue
        twin = "" if reading.twin_groups is None else reading.twin_groups
        lines.append(
            f"| {row.name} | {row.exporter} | {reading.size / 1e6:.1f} | {reading.difference:.0e} "
            f"| {reading.seconds:.1f} | {reading.memory / 1e6:.0f} | {reading.permutes} | {reading.groups} "
            f"| {twin} | {reading.least:.1%} | read |"
        )
    return "\n".join(lines) + "\n"


_PREFACE: Final = """# ONNX matrix

Written by `make onnx-matrix`; not edited by hand. PyTorch networks with random weights and ten classes,
written by both of PyTorch's exporters, and the ONNX files of Python packages. *Difference*: largest
difference of the outputs from those of ONNX Runtime, relative to the largest output, or to 1 for
probabilities (at most 1e-5). *s* and *memory*: processor time and memory that reading takes. *Groups*:
channel groups, and those of the same architecture in `keras.applications`. *Least*: share of the
parameters that remains with one unit in each group.

"""


def _add_options(parser: ArgumentParser) -> None:
    known = [*TORCH, *PACKAGED]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=known, help="read only these networks")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table in Markdown")


if __name__ == "__main__":
    sys.exit(run("porting.onnx_matrix", TARGETS, measure, sys.argv[1:], _add_options))
