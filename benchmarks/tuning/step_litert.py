"""The LiteRT side of `tuning.step`, which only loads what a device needs."""

import sys

import numpy as np

from benchmarks.tuning.side import KD_WEIGHT, RATE, random_batch, serve
from mistify.litert import Interpreter
from mistify.package import training


def main(directory: str, size: int, threads: int) -> None:
    """Run steps of `train.tflite`."""
    batch = random_batch(size)
    interpreter = Interpreter(model_path=f"{directory}/{training.TRAIN}", num_threads=threads)
    train = interpreter.get_signature_runner(training.TRAIN_STEP)
    scalars = {training.KD_WEIGHT: np.float32(KD_WEIGHT), training.LEARNING_RATE: np.float32(RATE)}
    serve(
        lambda: train(image=batch.images, target_scores=batch.classes, teacher_scores=batch.taught, **scalars)
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
