"""A process of `tuning.memory`, which only loads what a device needs."""

import hashlib
import sys
import time
from typing import Final

import numpy as np

from benchmarks.tuning.side import KD_WEIGHT, RATE, random_batch
from mistify.litert import Interpreter
from mistify.package import training

_STEPS: Final = 10


def main(network: str, size: int) -> None:
    """Train, and print megabytes, milliseconds, and a digest of losses and weights."""
    batch = random_batch(size)
    interpreter = Interpreter(model_path=network, num_threads=1)
    before = _peak_megabytes()
    train = interpreter.get_signature_runner(training.TRAIN_STEP)
    scalars = {training.KD_WEIGHT: np.float32(KD_WEIGHT), training.LEARNING_RATE: np.float32(RATE)}
    digest = hashlib.sha256()

    def step() -> None:
        trained = train(
            image=batch.images, target_scores=batch.classes, teacher_scores=batch.taught, **scalars
        )
        digest.update(trained["loss"].tobytes())

    step()
    start = time.process_time()
    for _ in range(_STEPS):
        step()
    milliseconds = 1000 * (time.process_time() - start) / _STEPS
    megabytes = _peak_megabytes() - before
    for _, weight in sorted(interpreter.get_signature_runner(training.WEIGHTS)().items()):
        digest.update(weight.tobytes())
    print(megabytes, milliseconds, digest.hexdigest())


def _peak_megabytes() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
