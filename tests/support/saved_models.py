"""SavedModels of TensorFlow modules without any Keras layer."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier


class Digits(tf.Module):
    """A two-layer perceptron after an identity convolution, for images [n, 8, 8, 1]."""

    def __init__(self) -> None:
        super().__init__()
        digits = load_digits()
        learned = MLPClassifier((32,), max_iter=60, random_state=0)
        learned.fit(digits.images.reshape(-1, 64) / 16, digits.target)
        kernel = np.zeros((3, 3, 1, 1), np.float32)
        kernel[1, 1] = 1
        self.kernel = tf.Variable(kernel)
        self.weights = [tf.Variable(weight.astype(np.float32)) for weight in learned.coefs_]
        self.biases = [tf.Variable(bias.astype(np.float32)) for bias in learned.intercepts_]

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32, "image")])
    def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probabilities of the digits."""
        x = tf.reshape(tf.nn.conv2d(image, self.kernel, 1, "SAME"), [-1, 64])
        x = tf.nn.relu(x @ self.weights[0] + self.biases[0])
        return {"digit": tf.nn.softmax(x @ self.weights[1] + self.biases[1])}


def save_digits(path: Path) -> Digits:
    """Train and save the perceptron with its signature."""
    module = Digits()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return module
