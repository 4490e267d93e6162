"""A process of `tuning.memory`, which only loads what a device needs."""

import sys
import time
from typing import Final

import numpy as np

from benchmarks.tuning.side import KD_WEIGHT, RATE, random_batch
from mistify.litert import Interpreter
from mistify.package import training

_STEPS: Final = 10


def main(network: str, size: int, result: str) -> None:
    """Train, and write memory, time, losses and weights to a file."""
    batch = random_batch(size)
    interpreter = Interpreter(model_path=network, num_threads=1)
    before = _peak_megabytes()
    train = interpreter.get_signature_runner(training.TRAIN_STEP)
    scalars = {training.KD_WEIGHT: np.float32(KD_WEIGHT), training.LEARNING_RATE: np.float32(RATE)}

    def loss() -> np.float32:
        trained = train(
            image=batch.images, target_scores=batch.classes, teacher_scores=batch.taught, **scalars
        )
        return np.float32(trained["loss"])

    losses = [loss()]
    start = time.process_time()
    losses += [loss() for _ in range(_STEPS)]
    milliseconds = 1000 * (time.process_time() - start) / _STEPS
    megabytes = _peak_megabytes() - before
    weights = interpreter.get_signature_runner(training.WEIGHTS)()
    flat = np.concatenate([weights[name].ravel() for name in sorted(weights)])
    np.savez(result, megabytes=megabytes, milliseconds=milliseconds, losses=np.array(losses), weights=flat)


def _peak_megabytes() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
