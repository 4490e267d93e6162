"""Time of a training step compared with the machine's multiplication speed, and with Keras's batch norms.

`python -m benchmarks.porting.step [--quick] [--json FILE]`

ResNet-8 (MLPerf Tiny's architecture, random weights and data) at four widths is trained with steps of 64
examples by the trainer of all algorithms, with a teacher and one thread. The roof is the time of a step's
multiply-adds, three times those of an inference, at the speed of a product of two large matrices in this
process. Each network is trained with Mistify's batch norms and with those of Keras, in alternating bursts of
steps. Times are CPU times, which are less affected by other programs on a busy machine. No data are needed.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import process_time
from typing import Final
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, median_seconds, run_with_one_thread, seconds
from benchmarks.tuning.step import resnet8
from executors.data import Dataset
from executors.structure import analyse
from executors.training import objective
from executors.training.evaluation import call
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, constant

#: Widths of the three stages: the source's own; odd ones; narrower multiples of the vector size; half.
WIDTHS: Final = ((16, 32, 64), (11, 22, 45), (16, 24, 48), (8, 16, 32))
SOURCE: Final = WIDTHS[0]

TARGETS: Final[dict[str, Target]] = {
    "over_roof_16_32_64": {"what": "ResNet-8: step time relative to its multiplications alone", "max": 1.6},
    "of_source_16_24_48": {
        "what": "three quarters of the widths: step time relative to the source",
        "max": 0.75,
    },
    "of_source_8_16_32": {"what": "half of the widths: step time relative to the source", "max": 0.5},
}

_STEPS: Final = 10
_BURSTS: Final = 9
_QUICK_BURSTS: Final = 3
_MATRIX: Final = 1024


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("porting.step", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Train each network alternately with both batch norms, print the table and return the figures."""
    speed = multiply_adds_per_second()
    figures: dict[str, float] = {"gigaflops": 2e-9 * speed}
    table = Table(title=f"ResNet-8, a step of {TrainingParams().batch_size}, ms", title_justify="left")
    for column in ("widths", "step", "with Keras's batch norms", "roof", "of the roof", "first step, s"):
        table.add_column(column, justify="left" if column == "widths" else "right")
    for widths in WIDTHS:
        ours, first = trained(widths)
        with batch_norms_of_keras():
            theirs, _ = trained(widths)
        bursts = [
            (_step_ms(ours), _step_ms(theirs)) for _ in range(_QUICK_BURSTS if options.quick else _BURSTS)
        ]
        step, other = (median(side) for side in zip(*bursts, strict=True))
        name = "_".join(map(str, widths))
        roof = 1000 * 3 * TrainingParams().batch_size * multiply_adds(ours.model) / speed
        figures |= {
            f"ms_{name}": step,
            f"over_roof_{name}": step / roof,
            f"over_keras_{name}": median(own / keras_own for own, keras_own in bursts),
            f"of_source_{name}": step / figures.get(f"ms_{'_'.join(map(str, SOURCE))}", step),
            f"first_step_s_{name}": first,
        }
        cells = (step, other, roof, step / roof, first)
        table.add_row("/".join(map(str, widths)), *(f"{cell:.3g}" for cell in cells))
    Console().print(table)
    return figures


def multiply_adds_per_second() -> float:
    """Return the speed of a product of two large matrices in float32."""
    matrix = tf.random.normal([_MATRIX, _MATRIX], seed=0)
    return float(_MATRIX**3 / min(seconds(lambda: tf.matmul(matrix, matrix).numpy(), 20, process_time)))


def multiply_adds(model: keras.Model) -> float:
    """Return the multiply-adds of an inference."""
    return sum(layer.multiply_adds for layer in analyse(model).network().layers)


def trained(widths: Sequence[int]) -> tuple[Trainer, float]:
    """Return a trainer of a network after its first step, and the duration of that step in seconds."""
    model = resnet8(widths)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(512, 32, 32, 3)).astype(np.float32)
    teacher = rng.dirichlet(np.ones(10), 512).astype(np.float32)
    data = Dataset({"image": images}, {"scores": rng.integers(0, 10, 512)})
    training = Trainer(model, TrainingSetup(data, data, {"scores": teacher}, TrainingParams()), 0)
    return training, median_seconds(lambda: training.train(constant(1)), 1, process_time)


@contextmanager
def batch_norms_of_keras() -> Iterator[None]:
    """Use Keras's batch norms in training steps that are traced inside the block."""
    with patch.object(objective, "quick_call", call):
        yield


def _step_ms(training: Trainer) -> float:
    return 1000 * seconds(lambda: training.train(constant(_STEPS)), 1, process_time)[0] / _STEPS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
