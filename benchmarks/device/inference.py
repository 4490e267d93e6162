"""The overhead of a call through `load()` compared with the network itself.

`python -m benchmarks.device.inference [--quick] [--json FILE]`

The built-in `digits-resnet` is packaged in float32 and in int8, and run with one thread. Single examples go
alternately through the loaded package and through LiteRT's interpreter: with `invoke` alone and the input in
place, and with the input set and the output read, as any caller has to do.

The figures for each precision are the minimum over many bursts of the median of a burst:

- `invoke_us`: `Interpreter.invoke` alone;
- `interpreter_us`: with `set_tensor` before and `get_tensor` after it;
- `load_us`: a call of the loaded package, including checks and records;
- `overhead_us`: `load_us - invoke_us`.
"""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run, seconds
from benchmarks.harness.worker import Checkpoint, Porting
from mistify.costs.quantization import Quantization
from mistify.litert import Interpreter
from mistify.package.manifest import NETWORK
from mistify_client import load
from mistify_server.tasks.sources import DataSource, ModelSource

PRECISIONS: Final = (Quantization.NONE, Quantization.INT8)
FIGURES: Final = ("invoke_us", "interpreter_us", "load_us", "overhead_us")

TARGETS: Final[dict[str, Target]] = {
    f"{precision.value}_overhead_us": {
        "what": f"overhead of a call over the network itself, {what}, us",
        "max": 10,
    }
    for precision, what in zip(PRECISIONS, ("float32", "int8"), strict=True)
}

#: Bursts per side, and calls per burst.
_BURSTS: Final = 60
_CALLS: Final = 500


def measure(options: Namespace) -> Figures:
    """Return all figures, and print a table."""
    figures: dict[str, float] = {}
    with TemporaryDirectory() as directory:
        for precision, package in _packages(Path(directory)).items():
            taken = _inferences(package, _BURSTS // 6 if options.quick else _BURSTS)
            figures |= {f"{precision.value}_{figure}": value for figure, value in taken.items()}
    Console().print(_table(figures))
    return figures


def _packages(directory: Path) -> dict[Quantization, Path]:
    data = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    (directory / "store").mkdir()
    porting = Porting(ModelSource(builtin="digits-resnet"), data, directory / "store", {"source_steps": 0})
    source: Checkpoint = porting.checkpoint(1, 0)
    return {
        precision: porting.write_package(source, directory / precision.value, precision=precision)
        for precision in PRECISIONS
    }


def _inferences(package: Path, bursts: int) -> dict[str, float]:
    """Return the microseconds per inference for each way of calling."""
    model = load(package, threads=1)
    (info,) = model.inputs
    example = np.random.default_rng(0).uniform(size=(1, *info.shape[1:])).astype(info.dtype)
    interpreter = Interpreter(model_path=str(package / NETWORK), num_threads=1)
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(source["index"], example.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(source["index"], example)

    def by_interpreter() -> object:
        interpreter.set_tensor(source["index"], example)
        interpreter.invoke()
        return interpreter.get_tensor(target["index"])

    ways: dict[str, Callable[[], object]] = {
        "invoke_us": interpreter.invoke,
        "interpreter_us": by_interpreter,
        "load_us": lambda: model(example),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(bursts):
        for way, call in ways.items():
            best[way] = min(best[way], 1e6 * median(seconds(call, _CALLS)))
    return {**best, "overhead_us": best["load_us"] - best["invoke_us"]}


def _table(figures: Figures) -> Table:
    table = Table(title="microseconds of an inference", title_justify="left")
    for column in ("precision", *(figure.removesuffix("_us") for figure in FIGURES)):
        table.add_column(column, justify="left" if column == "precision" else "right")
    for precision in PRECISIONS:
        table.add_row(
            precision.value, *(f"{figures[f'{precision.value}_{figure}']:.1f}" for figure in FIGURES)
        )
    return table


if __name__ == "__main__":
    sys.exit(run("device.inference", TARGETS, measure, sys.argv[1:]))
