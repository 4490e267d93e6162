"""Improved SemHash: discrete gates with a gradient."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit

from executors.algorithms.nnfactory.semhash import pruned, semhash

LOGITS = np.array([[-4.0, -1.0, -0.01, 0.01, 1.0, 4.0]] * 2, np.float32)
DISCRETE = np.array([True, False])


def test_half_of_the_gates_are_discrete_and_the_others_between():
    gates = semhash(tf.constant(LOGITS), tf.constant(DISCRETE)).numpy()
    assert gates[0].tolist() == [0, 0, 0, 1, 1, 1]
    expected = [
        0,
        1.2 * expit(-1) - 0.1,
        1.2 * expit(-0.01) - 0.1,
        1.2 * expit(0.01) - 0.1,
        1.2 * expit(1) - 0.1,
        1,
    ]
    np.testing.assert_allclose(gates[1], expected, rtol=1e-6)


def test_both_have_the_gradient_of_the_continuous_ones():
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(semhash(logits, tf.constant(DISCRETE)))
    slope = 1.2 * expit(LOGITS) * expit(-LOGITS)
    slope[np.abs(LOGITS) > 3] = 0
    np.testing.assert_allclose(tape.gradient(total, logits).numpy(), slope, rtol=1e-5)


def test_gates_beyond_the_limit_are_closed_in_the_order_of_their_weights_and_learn_all_the_same():
    logits = tf.Variable([[3.0, 1.0, 2.0, -1.0], [3.0, 1.0, 2.0, -1.0], [3.0, 1.0, 2.0, -1.0]])
    with tf.GradientTape() as tape:
        gates = pruned(tf.sigmoid(logits), logits, tf.constant([0.5, 1.0, 0.1]))
        total = tf.reduce_sum(gates)
    closed = [[False, True, False, True], [False] * 4, [False, True, True, True]]
    assert gates.numpy() == pytest.approx(np.where(closed, 0, expit(logits.numpy())), rel=1e-6)
    slope = expit(logits.numpy()) * expit(-logits.numpy())
    assert tape.gradient(total, logits).numpy() == pytest.approx(slope, rel=1e-5)
