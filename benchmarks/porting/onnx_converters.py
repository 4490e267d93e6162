"""ONNX files converted by Mistify, and by other converters: time, operators and latency.

`python -m benchmarks.porting.onnx_converters --environments DIR [--install] [--only NAME ...] [--quick]
[--json FILE]`

PyTorch networks with random weights become `.tflite` files in float32: by Mistify and by onnx2tf from ONNX
files, and by litert-torch from the modules. Each conversion is a process, whose whole processor time counts.
The others have environments of their own, `DIR/onnx2tf` and `DIR/litert-torch`, because their pins exclude
those of Mistify; `--install` makes them, with 4 GB. A converter without an environment is left out, which
the table says, and the benchmark is skipped without any.

All files run in the same LiteRT, with one thread, batch 1 and in turns, and are compared with ONNX Runtime.
onnx2tf gets files with a fixed batch and random calibration images, which it would otherwise download.
"""

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks.harness.records import REPOSITORY
from benchmarks.harness.run import Figures, MissingDataError, Target, paired_ratio, run, seconds
from benchmarks.porting.onnx_networks import TORCH
from mistify.litert import Interpreter, open_interpreter
from mistify_server.worker.packaging.tflite.flatbuffer import operators

Array = npt.NDArray[Any]

OURS: Final = "Mistify"
ONNX2TF, LITERT_TORCH = "onnx2tf", "litert-torch"

#: Environment -> its packages.
PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    ONNX2TF: ("onnx2tf==1.29.24", "tf-keras==2.19.0", "ai-edge-litert==2.1.0", "psutil==5.9.5", "requests"),
    LITERT_TORCH: (
        *("litert-torch==0.10.0", "torch==2.13.0", "torchvision==0.28.0", "timm==1.0.27"),
        *("onnx==1.23.2", "onnxscript==0.7.2", "pydantic", "rich"),
    ),
}

NETWORKS: Final = (
    *("ResNet18", "MobileNetV2", "MobileNetV3Small", "ShuffleNetV2"),
    *("detector", "rare options", "LSTM tagger", "ViT-Ti"),
)
_FAST: Final = ("MobileNetV3Small", "LSTM tagger")

#: Seconds of a conversion after which it counts as failed.
_TIMEOUT: Final = 400

#: Seconds of the calls that are measured together, and how often.
_ROUND: Final = 0.02
_ROUNDS: Final = 101
_QUICK_ROUNDS: Final = 11

#: The images for which onnx2tf looks in its working directory before it downloads them.
_CALIBRATION: Final = "calibration_image_sample_data_20x128x128x3_float32.npy"
_CALIBRATION_SHAPE: Final = (20, 128, 128, 3)

TARGETS: Final[dict[str, Target]] = {
    "failed": {"what": "networks that Mistify does not convert", "max": 0},
    "difference": {"what": "Mistify's largest difference from ONNX Runtime, relative to the largest output",
                   "max": 1e-5},
    "latency": {"what": "latency relative to that of the fastest other file, median", "max": 1.0},
    "latency_worst": {"what": "latency relative to that of the fastest other file, worst", "max": 1.05},
    "transposes": {"what": "transpositions in Mistify's convolutional networks", "max": 0},
    "seconds": {"what": "seconds of a conversion relative to the fastest other one, median", "max": 0.5},
}  # fmt: skip


@dataclass(frozen=True)
class Converted:
    """A file of a converter.

    Attributes:
        seconds: Processor time of the conversion.
        operators: Number of operators.
        transposes: Number of transpositions among them.
        difference: Largest difference from ONNX Runtime, relative to the largest output.
        latency: Seconds of an inference.
    """

    seconds: float
    operators: int
    transposes: int
    difference: float
    latency: float


@dataclass(frozen=True)
class Row:
    """A network with the files of all converters.

    Attributes:
        files: Converter -> its file.
        failures: Converter -> why there is no file.
        ratios: Other converter -> latency of Mistify's file relative to its file.
    """

    name: str
    files: Mapping[str, Converted]
    failures: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)


class FailedError(Exception):
    """A process did not do its work; the message is the last line that it printed."""


def measure(options: Namespace) -> Figures:
    """Convert all networks, and print the table."""
    if options.environments is None:
        raise MissingDataError(
            "--environments DIR names no directory; --install makes the environments there"
        )
    if options.install:
        for name in PACKAGES:
            _install(options.environments / name, PACKAGES[name])
    pythons = {name: options.environments.absolute() / name / "bin" / "python" for name in PACKAGES}
    if not pythons[LITERT_TORCH].exists():
        raise MissingDataError(
            f"{options.environments} has no {LITERT_TORCH}, which exports the networks: --install"
        )
    rows = []
    for name in options.only or (_FAST if options.quick else NETWORKS):
        with TemporaryDirectory() as directory:
            rows.append(_row(name, Path(directory), pythons, _QUICK_ROUNDS if options.quick else _ROUNDS))
        Console(stderr=True).print(_table(rows[-1:]))
    Console().print(_table(rows))
    return figures_of(rows)


def figures_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the figures of a table; those that need another converter only if it has a file."""
    own = [(row, row.files[OURS]) for row in rows if OURS in row.files]
    latencies = [max(row.ratios.values()) for row in rows if row.ratios]
    times = [
        mine.seconds / min(file.seconds for name, file in row.files.items() if name != OURS)
        for row, mine in own
        if len(row.files) > 1
    ]
    figures: dict[str, float] = {
        "networks": len(rows),
        "failed": len(rows) - len(own),
        **{f"failed_{name}": sum(name in row.failures for row in rows) for name in PACKAGES},
        "transposes": sum(mine.transposes for row, mine in own if _is_convolutional(row.name)),
    }
    if own:
        figures["difference"] = max(mine.difference for _, mine in own)
    if latencies:
        figures |= {"latency": median(latencies), "latency_worst": max(latencies)}
    if times:
        figures |= {"seconds": median(times), "seconds_worst": max(times)}
    return figures


def _is_convolutional(name: str) -> bool:
    network = TORCH[name]
    return network.convolutional and len(network.shape) > 1


def _install(environment: Path, packages: Sequence[str]) -> None:
    """Make a virtual environment with packages."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True)


def _row(name: str, directory: Path, pythons: Mapping[str, Path], rounds: int) -> Row:
    """Convert a network with all converters, and measure their files."""
    module = "benchmarks.porting.onnx_converters_torch"
    side = [str(pythons[LITERT_TORCH]), "-m", module]
    free, fixed = directory / "free.onnx", directory / "fixed.onnx"
    _processor_time([*side, "export", name, str(free), str(fixed)], REPOSITORY)
    converters: dict[str, Callable[[Path], float]] = {
        OURS: partial(_own, free),
        ONNX2TF: partial(_onnx2tf, pythons[ONNX2TF], fixed),
        LITERT_TORCH: lambda file: _processor_time([*side, "convert", name, str(file)], REPOSITORY),
    }
    times, failures = {}, {}
    for converter, convert in converters.items():
        if converter != OURS and not pythons[converter].exists():
            failures[converter] = "no environment"
            continue
        try:
            times[converter] = convert(directory / f"{converter}.tflite")
        except FailedError as failed:
            failures[converter] = str(failed)
    files, ratios = _measured(directory, times, rounds)
    return Row(name, files, failures, ratios)


def _own(onnx: Path, file: Path) -> float:
    module = "benchmarks.porting.onnx_converters_own"
    return _processor_time([sys.executable, "-m", module, str(onnx), str(file)], REPOSITORY)


def _onnx2tf(python: Path, onnx: Path, file: Path) -> float:
    """Convert with onnx2tf, which writes several files into a directory."""
    work = file.with_suffix("")
    work.mkdir()
    images = np.random.default_rng(0).uniform(0, 1, _CALIBRATION_SHAPE).astype(np.float32)
    np.save(work / _CALIBRATION, images)
    spent = _processor_time([python.parent / "onnx2tf", "-i", onnx, "-o", work / "out", "-n"], work)
    made = work / "out" / f"{onnx.stem}_float32.tflite"
    if not made.exists():
        raise FailedError("it wrote no file in float32")
    shutil.move(made, file)
    return spent


def _processor_time(command: Sequence[str | Path], directory: Path) -> float:
    """Run a command, and return its processor time in seconds.

    Raises:
        FailedError: It ended with an error, or took too long.
    """
    before = getrusage(RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"more than {_TIMEOUT} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        raise FailedError(next((line for line in lines[::-1] if "rror" in line), lines[-1])[:100])
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _measured(
    directory: Path, times: Mapping[str, float], rounds: int
) -> tuple[dict[str, Converted], dict[str, float]]:
    """Return the files of converters, and the latencies of Mistify's relative to each of the others."""
    feed, expected = _example(directory / "fixed.onnx")
    networks = {converter: directory / f"{converter}.tflite" for converter in times}
    interpreters = {converter: _opened(file, feed) for converter, file in networks.items()}
    files = {}
    for converter, file in networks.items():
        invoke = interpreters[converter].invoke
        invoke()
        kinds = [operator.name for operator in operators(file.read_bytes())]
        latency = median(seconds(invoke, rounds))
        difference = _difference(interpreters[converter], expected)
        files[converter] = Converted(
            times[converter], len(kinds), kinds.count("TRANSPOSE"), difference, latency
        )
    ratios = {}
    for converter in files.keys() - {OURS} if OURS in files else ():
        count = max(1, round(_ROUND / files[converter].latency))
        sides = [partial(_repeat, interpreters[side].invoke, count) for side in (converter, OURS)]
        ratios[converter] = paired_ratio(sides[0], sides[1], rounds).ratio
    return files, ratios


def _repeat(function: Callable[[], object], count: int) -> None:
    for _ in range(count):
        function()


def _example(onnx: Path) -> tuple[Array, list[Array]]:
    """Return a random input of an ONNX file with one input and a fixed batch, and ONNX Runtime's outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    (info,) = session.get_inputs()
    rng = np.random.default_rng(0)
    whole = "int" in info.type
    feed = rng.integers(0, 100, info.shape) if whole else rng.normal(size=info.shape).astype(np.float32)
    return feed, session.run(None, {info.name: feed})


def _opened(file: Path, feed: Array) -> Interpreter:
    """Open a network with one input in LiteRT, with one thread, and set its input."""
    interpreter = open_interpreter(file, 1)
    (info,) = interpreter.get_input_details()
    placed = placed_as(feed, info["shape"])
    interpreter.resize_tensor_input(info["index"], placed.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(info["index"], placed.astype(info["dtype"]))
    return interpreter


def placed_as(array: Array, shape: Iterable[int]) -> Array:
    """Return an array with channels first as a tensor of a shape has them: first or last."""
    last = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
    return array if array.shape == tuple(shape) else np.ascontiguousarray(last)


def _difference(interpreter: Interpreter, expected: Sequence[Array]) -> float:
    """Return the largest difference relative to the largest output; infinity for outputs of other shapes."""
    made = [interpreter.get_tensor(entry["index"]) for entry in interpreter.get_output_details()]
    pairs = [(values, placed_as(other, values.shape)) for values, other in zip(made, expected, strict=True)]
    if any(values.shape != other.shape for values, other in pairs):
        return float("inf")
    return max(float(np.abs(values - other).max() / np.abs(other).max()) for values, other in pairs)


def _table(rows: Iterable[Row]) -> Table:
    table = Table(title="files in float32, batch 1, one thread", title_justify="left")
    names = ("network", "converter", "s", "operators", "of them TRANSPOSE", "difference", "us", "ours / this")
    for number, column in enumerate(names):
        table.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        for converter, file in row.files.items():
            table.add_row(
                row.name, converter, f"{file.seconds:.1f}", str(file.operators), str(file.transposes),
                f"{file.difference:.0e}", f"{file.latency * 1e6:,.0f}",
                f"{row.ratios[converter]:.2f}" if converter in row.ratios else "",
            )  # fmt: skip
        for converter, reason in row.failures.items():
            table.add_row(row.name, converter, f"failed: {reason}")
    return table


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--environments", type=Path, metavar="DIR", help="directory of the environments")
    parser.add_argument("--install", action="store_true", help="make the environments first")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NETWORKS, help="only these networks")


if __name__ == "__main__":
    sys.exit(run("porting.onnx_converters", TARGETS, measure, sys.argv[1:], _add_options))
