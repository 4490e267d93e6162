"""Time and memory of a training step on a device: LiteRT alone, compared with a TensorFlow client.

`python -m benchmarks.tuning.step [--quick] [--json FILE]`

ResNet-8 (MLPerf Tiny's architecture, random weights, folded batch norms) is trained with batches of 32, SGD
with momentum, cross entropy and a teacher with half of the weight: the whole network with one and with two
threads, its last two blocks, and its head with all biases. Each side is a separate process that only loads
what its client needs; they run alternating bursts of steps. Memory is the peak resident memory of a process
since its start. No data are needed.
"""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

import keras
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run
from benchmarks.tuning.side import TRAINED
from executors.outputs.objectives import Categorical
from executors.structure import fold_batch_norm
from executors.structure.signature import Activation
from mistify.config.package.tuning import TuningConfig
from mistify_server.worker.packaging.scheduling.memory import with_little_memory
from mistify_server.worker.packaging.training.network import TrainingNetwork, convert_training
from mistify_server.worker.packaging.training.parts import trainable_weights

BATCH: Final = 32
STEPS: Final = 20
BURSTS: Final = 15
QUICK_BURSTS: Final = 3


class Case(NamedTuple):
    """A part of the network to train, as in `TuningConfig.trainable`, and a number of threads."""

    trainable: Literal["network", "biases"] | int
    threads: int


CASES: Final[dict[str, Case]] = {
    "network": Case("network", 1),
    "network_2_threads": Case("network", 2),
    "last_2_blocks": Case(2, 1),
    "biases": Case("biases", 1),
}

TARGETS: Final[dict[str, Target]] = {
    "network_step_over_tensorflow": {
        "what": "step time of the whole network relative to TensorFlow",
        "max": 1.5,
    },
    "network_2_threads_step_over_tensorflow": {
        "what": "step time of the whole network relative to TensorFlow, two threads",
        "max": 2.0,
    },
    "last_2_blocks_step_over_tensorflow": {
        "what": "step time of the last two blocks relative to TensorFlow",
        "max": 1.0,
    },
    "network_memory_over_tensorflow": {"what": "memory relative to TensorFlow", "max": 0.5},
}

LITERT, TENSORFLOW = "benchmarks.tuning.step_litert", "benchmarks.tuning.step_tensorflow"


class Side(NamedTuple):
    """The results of one side: milliseconds per step in each burst, and the peak resident memory in MB."""

    steps: list[float]
    memory: float


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.step", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Run both sides alternately in each case, print the tables and return the figures."""
    figures: dict[str, float] = {}
    for name, case in CASES.items():
        with TemporaryDirectory() as directory:
            model, tuning = fold_batch_norm(resnet8()), tuning_of(case.trainable)
            model.save(Path(directory) / "network.keras")
            trained = [variable.path for variable in trainable_weights(model, tuning).values()]
            (Path(directory) / TRAINED).write_text(json.dumps(trained), "utf-8")
            (Path(directory) / "train.tflite").write_bytes(training_network(model, tuning))
            bursts = QUICK_BURSTS if options.quick else BURSTS
            litert, tensorflow = _sides(Path(directory), case.threads, bursts)
        Console().print(_table(name, {"LiteRT": litert, "TensorFlow": tensorflow}))
        figures |= figures_of(name, litert, tensorflow)
    return figures


def figures_of(case: str, litert: Side, tensorflow: Side) -> Figures:
    """Return ratios of consecutive bursts, so that a busy machine slows both sides."""
    ratios = [ours / theirs for ours, theirs in zip(litert.steps, tensorflow.steps, strict=True)]
    return {
        f"{case}_litert_ms": median(litert.steps),
        f"{case}_tensorflow_ms": median(tensorflow.steps),
        f"{case}_step_over_tensorflow": median(ratios),
        f"{case}_litert_mb": litert.memory,
        f"{case}_tensorflow_mb": tensorflow.memory,
        f"{case}_memory_over_tensorflow": litert.memory / tensorflow.memory,
    }


def resnet8(widths: Sequence[int] = (16, 32, 64)) -> keras.Model:
    """Return MLPerf Tiny's ResNet-8 for CIFAR-10, with random weights and optionally other widths."""
    layers = keras.layers
    keras.utils.set_random_seed(0)

    def normed(x: keras.KerasTensor, filters: int, size: int = 3, strides: int = 1) -> keras.KerasTensor:
        return layers.BatchNormalization()(layers.Conv2D(filters, size, strides=strides, padding="same")(x))

    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.ReLU()(normed(inputs, widths[0]))
    for filters, strides in zip(widths, (1, 2, 2), strict=True):
        y = normed(layers.ReLU()(normed(x, filters, strides=strides)), filters)
        shortcut = x if strides == 1 else layers.Conv2D(filters, 1, strides=strides)(x)
        x = layers.ReLU()(layers.Add()([shortcut, y]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax", name="scores")(x))


def tuning_of(trainable: Literal["network", "biases"] | int) -> TuningConfig:
    """Return the settings of a device that trains a network, its last blocks, or its biases and head."""
    return TuningConfig(trainable=trainable, optimizer="sgd", batch_size=BATCH)


def training_network(model: keras.Model, tuning: TuningConfig) -> bytes:
    """Return the training network of a package for a model."""
    objectives = {"scores": Categorical(Activation.SOFTMAX)}
    made = TrainingNetwork(model, trainable_weights(model, tuning), objectives, tuning)
    return with_little_memory(convert_training(made))


def _sides(directory: Path, threads: int, bursts: int) -> tuple[Side, Side]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(directory), str(BATCH), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for module in (LITERT, TENSORFLOW)
    ]
    steps: list[list[float]] = [[], []]
    try:
        for process in processes:
            _ask(process, STEPS)  # warm-up
        for _ in range(bursts):
            for process, milliseconds in zip(processes, steps, strict=True):
                milliseconds.append(1000 * _ask(process, STEPS) / STEPS)
        litert, tensorflow = (
            Side(milliseconds, _ask(process, 0))
            for process, milliseconds in zip(processes, steps, strict=True)
        )
    finally:
        for process in processes:
            process.communicate()
    return litert, tensorflow


def _ask(process: "subprocess.Popen[str]", steps: int) -> float:
    """Return the duration of a number of steps in seconds; for 0 steps, the memory in MB."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a side without pipes")
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _table(case: str, sides: dict[str, Side]) -> Table:
    table = Table(title=f"ResNet-8, batch {BATCH}: {case}", title_justify="left")
    for column in ("client", "step, ms", "fastest burst", "slowest burst", "memory, MB"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name, side in sides.items():
        figures = (median(side.steps), min(side.steps), max(side.steps), side.memory)
        table.add_row(name, *(f"{figure:.1f}" for figure in figures))
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
