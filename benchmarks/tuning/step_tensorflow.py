"""The TensorFlow side of `tuning.step`: the same network, loss and optimizer, compiled once."""

import json
import sys
from pathlib import Path

import keras
import tensorflow as tf

from benchmarks.tuning.side import KD_WEIGHT, RATE, TRAINED, random_batch, serve


def main(directory: str, size: int, threads: int) -> None:
    """Run steps of the Keras model."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = keras.models.load_model(f"{directory}/network.keras", compile=False)
    trained = json.loads(Path(directory, TRAINED).read_text("utf-8"))
    for variable in model.trainable_variables:
        variable.trainable = variable.path in trained
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
    optimizer.build(model.trainable_variables)
    batch = random_batch(size)
    images, classes, taught = map(tf.constant, batch)

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.math.log(model(images, training=False) + 1e-7)
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits)
            distilled = tf.nn.softmax_cross_entropy_with_logits(taught, logits)
            loss = tf.reduce_mean(entropy + KD_WEIGHT * distilled)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    compiled = tf.function(step, autograph=False)
    serve(lambda: compiled().numpy())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
