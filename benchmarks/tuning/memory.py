"""Memory of a training step on a device, compared with the training network as TensorFlow converts it.

`python -m benchmarks.tuning.memory [--quick] [--json FILE]`

ResNet-8 (MLPerf Tiny's architecture, random weights, folded batch norms) is trained with batches of 16. Both
networks run alternately in processes of their own with one thread. Memory is how far the peak resident memory
of a process rises while it trains; time is processor time. After the same steps, both have to have the same
bits in their losses and weights. No data are needed.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from subprocess import run as run_process
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

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
ROUNDS: Final = 7
QUICK_ROUNDS: Final = 3

TARGETS: Final[dict[str, Target]] = {
    "memory_over_converted": {"what": "memory of a step relative to the conversion's", "max": 0.88},
    "time_over_converted": {"what": "processor time of a step relative to the conversion's", "max": 1.1},
    "other_bits": {"what": "runs whose losses or weights are not equal to the bit", "max": 0},
}

_PROCESS: Final = "benchmarks.tuning.memory_litert"


class Trained(NamedTuple):
    """The result of a process.

    Attributes:
        megabytes: Rise of the peak memory.
        milliseconds: Processor time of a step.
        digest: Digest of losses and weights.
    """

    megabytes: float
    milliseconds: float
    digest: str


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.memory", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Train both networks alternately, print the table and return the figures."""
    converted = _converted()
    networks = {"as converted": converted, "with little memory": with_little_memory(converted)}
    trained: dict[str, list[Trained]] = {name: [] for name in networks}
    with TemporaryDirectory() as directory:
        for number, content in enumerate(networks.values()):
            (Path(directory) / f"{number}.tflite").write_bytes(content)
        for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
            for number, name in enumerate(networks):
                trained[name].append(_trained(Path(directory) / f"{number}.tflite"))
    Console().print(_table(trained))
    before, after = trained.values()
    return {
        "converted_mb": median(one.megabytes for one in before),
        "little_mb": median(one.megabytes for one in after),
        "memory_over_converted": median(
            b.megabytes / a.megabytes for a, b in zip(before, after, strict=True)
        ),
        "time_over_converted": median(
            b.milliseconds / a.milliseconds for a, b in zip(before, after, strict=True)
        ),
        "other_bits": float(sum(a.digest != b.digest for a, b in zip(before, after, strict=True))),
    }


def _converted() -> bytes:
    model = fold_batch_norm(resnet8())
    tuning = tuning_of("network").model_copy(update={"batch_size": BATCH})
    objectives = {"scores": Categorical(Activation.SOFTMAX)}
    return convert_training(TrainingNetwork(model, trainable_weights(model, tuning), objectives, tuning))


def _trained(network: Path) -> Trained:
    command = [sys.executable, "-m", _PROCESS, str(network), str(BATCH)]
    output = run_process(command, check=True, capture_output=True, text=True).stdout
    megabytes, milliseconds, digest = output.split()
    return Trained(float(megabytes), float(milliseconds), digest)


def _table(trained: dict[str, list[Trained]]) -> Table:
    table = Table(title=f"ResNet-8, batch {BATCH}", title_justify="left")
    for column in ("", "MB", "ms"):
        table.add_column(column, justify="right" if column else "left")
    for name, each in trained.items():
        megabytes, milliseconds = (median(values) for values in zip(*[one[:2] for one in each], strict=True))
        table.add_row(name, f"{megabytes:.1f}", f"{milliseconds:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
