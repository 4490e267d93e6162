"""Make the tiny models that the client's tests run, with TensorFlow's outputs.

Run `python -m tests.data.make_tiny` once with the server's dependencies. Tests only read the files.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.conversion.fixed_batch import with_fixed_batch
from mistify_server.worker.packaging.conversion.signatures import with_branch_signatures

HERE = Path(__file__).parent
WEIGHTS = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    """Return fixed random weights, which become constants of the graph that uses them."""
    return WEIGHTS.normal(scale=0.3, size=shape).astype(np.float32)


KERNEL, DENSE, MIX = weights(3, 3, 1, 4), weights(64, 3), weights(4, 2)
HEADS = [weights(64, 3) for _ in range(3)]
MIXER = weights(64, 64)


@tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 1], tf.float32, name="image")])
def classify(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Apply a convolution and a dense layer: one input, one output."""
    features = tf.nn.relu(tf.nn.conv2d(image, KERNEL, 1, "SAME"))
    return {"scores": tf.nn.softmax(tf.reshape(features, [-1, 64]) @ DENSE)}


@tf.function(
    input_signature=[
        tf.TensorSpec([None, 4], tf.float32, name="left"),
        tf.TensorSpec([None, 4], tf.float32, name="right"),
    ]
)
def compare(left: tf.Tensor, right: tf.Tensor) -> dict[str, tf.Tensor]:
    """Combine two inputs to two outputs."""
    return {"difference": tf.nn.relu(left - right), "mix": left @ MIX + right @ MIX}


@tf.function(
    input_signature=[
        tf.TensorSpec([None, 4, 4, 1], tf.float32, name="image"),
        tf.TensorSpec([], tf.int32, name="branch"),
    ]
)
def choose(image: tf.Tensor, branch: tf.Tensor) -> dict[str, tf.Tensor]:
    """Choose between three branches with a common convolution."""

    def scores(number: int) -> tf.Tensor:
        features = tf.reshape(tf.nn.relu(tf.nn.conv2d(image, KERNEL, 1, "SAME")), [-1, 64])
        return tf.nn.softmax(features @ HEADS[number])

    def others() -> tf.Tensor:
        return tf.cond(branch < 2, lambda: scores(1), lambda: scores(2))

    return {"scores": tf.cond(branch < 1, lambda: scores(0), others)}


@tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 1], tf.float32, name="image")])
def classify_slowly(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Compute nearly the same as `classify`, with a hundred times the work."""
    features = tf.reshape(tf.nn.relu(tf.nn.conv2d(image, KERNEL, 1, "SAME")), [-1, 64])
    mixed = features
    for _ in range(300):
        mixed = tf.tanh(mixed @ MIXER)
    return {"scores": tf.nn.softmax(features @ DENSE + 1e-6 * mixed[:, :3])}


def convert(function: tf.types.experimental.GenericFunction, examples: np.ndarray | None = None) -> bytes:
    """Convert a function to LiteRT with the signature `serving_default`, in int8 if there are examples."""
    module = tf.Module()
    module.function = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    if examples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([example[None]] for example in examples)
        converter.inference_input_type = converter.inference_output_type = tf.int8
    converted: bytes = converter.convert()
    return converted


def main() -> None:
    """Write the models, and `tiny_expected.npz` with inputs of three examples and TensorFlow's outputs."""
    rng = np.random.default_rng(11)
    image = rng.normal(size=(3, 4, 4, 1)).astype(np.float32)
    networks = {
        # All except the last two are like in packages made before signatures for a fixed batch size existed.
        "tiny": convert(classify),
        "tiny_int8": convert(classify, image),
        "tiny_two": convert(compare),
        "tiny_branches": with_branch_signatures(convert(choose)),
        "tiny_slow": convert(classify_slowly),
        "tiny_fixed": with_fixed_batch(convert(classify)),
        "tiny_branches_fixed": with_fixed_batch(with_branch_signatures(convert(choose))),
    }
    for name, network in networks.items():
        (HERE / f"{name}.tflite").write_bytes(network)
    left, right = (rng.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    outputs = classify(image) | compare(left, right)
    arrays = {name: tensor.numpy() for name, tensor in outputs.items()}
    branches = np.stack([choose(image, tf.constant(branch))["scores"].numpy() for branch in range(3)])
    np.savez(HERE / "tiny_expected.npz", image=image, left=left, right=right, branches=branches, **arrays)


if __name__ == "__main__":
    main()
