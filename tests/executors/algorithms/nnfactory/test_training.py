"""The two stages of a supernet's training, their objectives, and what an interruption leaves of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.algorithms.nnfactory.answers import ANSWERS, answering
from executors.algorithms.nnfactory.gates import gated, gated_groups
from executors.algorithms.nnfactory.objective import Curriculum, mean_known_entropy
from executors.algorithms.nnfactory.supernet import Supernet
from executors.algorithms.nnfactory.training import FactoryTraining
from executors.contract.preparation import PreparationProgress
from tests.executors.algorithms.nnfactory.conftest import NETWORKS, PARAMS, SPACE, images, made


class Progress(PreparationProgress):
    """Remembers all reports; stops with the part of some number."""

    def __init__(self, parts=None, stop=None):
        super().__init__()
        self._parts = dict(parts or {})
        self.reported, self.kept, self._stop = [], 0, stop

    def report(self, step, total, loss=None):
        super().report(step, total, loss)
        self.reported.append((step, total))

    def keep(self, name, content):
        super().keep(name, content)
        self.kept += 1
        if self.kept == self._stop:
            raise KeyboardInterrupt


def trained(assignment, progress, params=PARAMS):
    keras.utils.set_random_seed(3)
    return FactoryTraining(assignment, params, progress).finished()


@pytest.fixture(scope="module")
def uninterrupted(assigned_once):
    progress = Progress()
    return trained(assigned_once, progress), progress


def test_a_supernet_knows_its_tasks_and_their_quality(uninterrupted, assigned_once):
    content, progress = uninterrupted
    supernet = Supernet.loaded(content, assigned_once.source)
    answers = assigned_once.setup.train.answers
    answered = [name for name, own in zip(SPACE.tasks, answers.T, strict=True) if {0, 1} <= {*own.tolist()}]
    assert [*supernet.space.tasks] == answered != [*SPACE.tasks]
    assert (supernet.space.axes, supernet.space.names) == (SPACE.axes, SPACE.names)
    assert len(supernet.quality.tasks) == 6
    assert supernet.limits[0] == pytest.approx(8 / 40)  # a network needs eight open units
    assert supernet.limits[-1] == 1
    assert np.shape(supernet.quality.scores) == (6, 12)
    assert [step for step, _ in progress.reported] == sorted({step for step, _ in progress.reported})
    assert progress.reported[-1] == (32, 32)


@pytest.mark.parametrize("stop", [3, 8, 11])
def test_what_was_interrupted_ends_at_the_same_supernet(uninterrupted, assigned_once, stop):
    """Within a stage, and between the two."""
    stopped = Progress(stop=stop)
    with pytest.raises(KeyboardInterrupt):
        trained(assigned_once, stopped)
    resumed = Progress(stopped._parts)
    assert trained(assigned_once, resumed) == uninterrupted[0]
    assert resumed.reported[0][0] > stopped.step


def test_what_is_finished_is_not_done_again(uninterrupted, assigned_once):
    content, progress = uninterrupted
    again = Progress(progress._parts)
    assert trained(assigned_once, again) == content
    assert again.reported == []


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_all_answers_are_learned_from_what_the_last_layer_of_the_network_reads(make):
    source = made(make)
    groups = gated_groups(source)
    network = gated(source, groups, False)
    model = answering(network, source, 7)
    rng = np.random.default_rng(0)
    gates = [rng.integers(0, 2, (2, group.units)).astype(np.float32) for group in groups]
    output, answers = model([images(2), *gates])
    np.testing.assert_array_equal(output, network([images(2), *gates]))
    read = keras.Model(network.inputs, network.get_layer("answer").input)([images(2), *gates])
    kernel, bias = model.get_layer(ANSWERS).get_weights()
    np.testing.assert_allclose(answers, read @ kernel + bias, atol=1e-5)


def test_answers_that_nobody_knows_do_not_count():
    logits = np.array([[0.3, 2.0], [-1.0, 5.0]], np.float32)
    entropies = np.log1p(np.exp([-0.3, -1.0]))
    assert float(mean_known_entropy(tf.constant(logits), np.array([[1, -1], [0, -1]]))) == pytest.approx(
        entropies.mean(), rel=1e-5
    )
    assert mean_known_entropy(tf.constant(logits), np.full((2, 2), -1)) == 0


def test_limits_fall_to_the_least_one_and_are_even_on_a_logarithmic_scale():
    curriculum = Curriculum(0.05, 100)
    shares = tf.constant([0.0, 0.5, 1.0])

    def limits(step):
        return curriculum.limits(shares, tf.constant(step)).numpy().tolist()

    assert limits(0) == [1, 1, 1]
    assert limits(50) == pytest.approx([1, 0.05**0.25, 0.05**0.5])
    assert limits(100) == limits(900) == pytest.approx([1, 0.05**0.5, 0.05])
