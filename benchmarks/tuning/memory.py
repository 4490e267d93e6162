"""Memory of a training step on a device, compared with the training network as TensorFlow converts it.

`python -m benchmarks.tuning.memory [--quick] [--json FILE]`

ResNet-8 (MLPerf Tiny's architecture, random weights, folded batch norms) is trained with batches of 16: as
converted, as packages have it, and in micro-batches of 4, whose outputs are computed twice. The networks run
in turn in processes of their own with one thread. Memory is how far the peak resident memory of a process
rises while it trains; time is processor time. After the same steps, losses and weights of the first two have
to have the same bits, and those of the third nearly the same values. No data are needed.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from subprocess import run as run_process
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run
from benchmarks.tuning.step import resnet8, tuning_of
from executors.outputs.objectives import Categorical
from executors.structure import fold_batch_norm
from executors.structure.signature import Activation
from mistify_server.worker.packaging.scheduling.memory import with_little_memory
from mistify_server.worker.packaging.training.network import TrainingNetwork, convert_training
from mistify_server.worker.packaging.training.parts import trainable_weights

BATCH: Final = 16
MICRO_BATCH: Final = 4
ROUNDS: Final = 7
QUICK_ROUNDS: Final = 3

TARGETS: Final[dict[str, Target]] = {
    "memory_over_converted": {"what": "memory of a step relative to the conversion's", "max": 0.88},
    "time_over_converted": {"what": "processor time of a step relative to the conversion's", "max": 1.1},
    "other_bits": {"what": "runs whose losses or weights are not equal to the bit", "max": 0},
    "micro_batch_memory_over_converted": {"what": "the same in micro-batches of 4, memory", "max": 0.55},
    "micro_batch_time_over_converted": {"what": "the same in micro-batches of 4, time", "max": 1.5},
    "micro_batch_difference": {
        "what": "largest difference of a weight after all steps, relative to the largest weight",
        "max": 1e-5,
    },
}

_PROCESS: Final = "benchmarks.tuning.memory_litert"


class Trained(NamedTuple):
    """The result of a process.

    Attributes:
        megabytes: Rise of the peak memory.
        milliseconds: Processor time of a step.
        weights: All trained weights in one array.
        losses: Losses of the steps.
    """

    megabytes: float
    milliseconds: float
    weights: npt.NDArray[np.float32]
    losses: npt.NDArray[np.float32]

    def has_bits_of(self, other: "Trained") -> bool:
        """Check whether losses and weights are equal to the bit."""
        same = self.weights.tobytes() == other.weights.tobytes()
        return same and self.losses.tobytes() == other.losses.tobytes()


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.memory", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Train all networks in turn, print the table and return the figures."""
    converted = converted_network()
    networks = {
        "as converted": converted,
        "in a package": with_little_memory(converted),
        f"micro-batches of {MICRO_BATCH}": with_little_memory(converted_network(MICRO_BATCH)),
    }
    trained: dict[str, list[Trained]] = {name: [] for name in networks}
    with TemporaryDirectory() as directory:
        for number, content in enumerate(networks.values()):
            (Path(directory) / f"{number}.tflite").write_bytes(content)
        for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
            for number, name in enumerate(networks):
                trained[name].append(_trained(Path(directory), number))
    Console().print(_table(trained))
    return figures_of(*trained.values())


def figures_of(converted: list[Trained], little: list[Trained], parts: list[Trained]) -> Figures:
    """Return the medians of ratios within each round."""
    figures = {
        "converted_mb": median(one.megabytes for one in converted),
        "little_mb": median(one.megabytes for one in little),
        "micro_batch_mb": median(one.megabytes for one in parts),
        "other_bits": float(
            sum(not one.has_bits_of(other) for one, other in zip(little, converted, strict=True))
        ),
        "micro_batch_difference": max(
            float(np.abs(one.weights - other.weights).max() / np.abs(other.weights).max())
            for one, other in zip(parts, converted, strict=True)
        ),
    }
    for prefix, side in (("", little), ("micro_batch_", parts)):
        pairs = list(zip(side, converted, strict=True))
        figures[f"{prefix}memory_over_converted"] = median(a.megabytes / b.megabytes for a, b in pairs)
        figures[f"{prefix}time_over_converted"] = median(a.milliseconds / b.milliseconds for a, b in pairs)
    return figures


def converted_network(micro_batch: int | None = None) -> bytes:
    """Return the training network as TensorFlow converts it."""
    model = fold_batch_norm(resnet8())
    settings = {"batch_size": BATCH, "micro_batch": micro_batch}
    tuning = tuning_of("network").model_copy(update=settings)
    objectives = {"scores": Categorical(Activation.SOFTMAX)}
    return convert_training(TrainingNetwork(model, trainable_weights(model, tuning), objectives, tuning))


def _trained(directory: Path, number: int) -> Trained:
    result = directory / "result.npz"
    command = [sys.executable, "-m", _PROCESS, str(directory / f"{number}.tflite"), str(BATCH), str(result)]
    run_process(command, check=True, capture_output=True)
    with np.load(result) as arrays:
        figures = float(arrays["megabytes"]), float(arrays["milliseconds"])
        return Trained(*figures, arrays["weights"], arrays["losses"])


def _table(trained: dict[str, list[Trained]]) -> Table:
    table = Table(title=f"ResNet-8, batch {BATCH}", title_justify="left")
    for column in ("", "MB", "ms"):
        table.add_column(column, justify="right" if column else "left")
    for name, each in trained.items():
        megabytes = median(one.megabytes for one in each)
        milliseconds = median(one.milliseconds for one in each)
        table.add_row(name, f"{megabytes:.1f}", f"{milliseconds:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
