"""The loss of tasks within limits, and of what comes before them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.algorithms.nnfactory.answered_tasks import AnsweredTasks
from executors.algorithms.nnfactory.answers import answering
from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.objective import AnswersObjective, Curriculum, GatesObjective
from executors.algorithms.nnfactory.supernet import Supernet
from executors.structure import model_of
from executors.structure.signature import signature_of
from mistify.config.data.dataset import DataSettings
from tests.executors.algorithms.nnfactory.conftest import PARAMS, SPACE, made, residual


class Made:
    """The supernet of a network, and its tasks."""

    def __init__(self, setup, modulate=True):
        self.setup, self.source = setup, made(residual)
        keras.utils.set_random_seed(3)
        self.supernet = Supernet(self.source, AssemblerShape(SPACE.size, 16, 2, modulate), SPACE)
        signature = signature_of(model_of(self.source.graph))
        self.tasks = AnsweredTasks(setup.train, signature, DataSettings(), 0.5)

    def gates_loss(self, weight, least=1.0, noise=False, step=10):
        curriculum = Curriculum(least, 1)
        objective = GatesObjective(
            self.supernet, self.tasks, self.setup, curriculum, weight=weight, noise=noise, seed=0
        )
        return loss_of(objective, step)


def loss_of(objective, step=10):
    drawn = objective.draws(1, np.random.default_rng(0))
    values = {name: tf.constant(array[0]) for name, array in drawn.items()}
    return float(objective.loss({}, values, tf.constant(step)))


def test_each_step_has_a_batch_of_tasks_with_their_examples(setup):
    made_once = Made(setup)
    objective = GatesObjective(
        made_once.supernet, made_once.tasks, setup, Curriculum(0.1, 1), weight=1.0, noise=False, seed=0
    )
    drawn = objective.draws(3, np.random.default_rng(0))
    assert {name: array.shape[:2] for name, array in drawn.items()} == dict.fromkeys(
        drawn, (3, PARAMS.batch_size)
    )
    assert drawn["input image"].shape[2:] == (8, 8, 1)
    assert 0 <= drawn["limit"].min() < drawn["limit"].max() <= 1


def test_only_open_units_beyond_the_limit_cost_anything(setup):
    made_once = Made(setup)
    assert made_once.gates_loss(100.0) == pytest.approx(made_once.gates_loss(0.0))
    made_once = Made(setup)
    free = made_once.gates_loss(0.0, least=1e-6)
    made_once = Made(setup)
    assert made_once.gates_loss(100.0, least=1e-6) > free + 1


def test_the_cost_is_the_mean_square_of_the_excess(setup):
    """With all gates open, and a limit of almost 0 for some examples."""
    made_once = Made(setup)
    for layer in made_once.supernet.assembler.layers:
        if layer.name.endswith("-gaters"):
            layer.kernel.assign(tf.zeros_like(layer.kernel))
            layer.bias.assign(tf.fill(layer.bias.shape, 10.0))
    objective = GatesObjective(
        made_once.supernet, made_once.tasks, setup, Curriculum(1e-6, 1), weight=3.0, noise=False, seed=0
    )
    shares = objective.draws(1, np.random.default_rng(0))["limit"][0]
    expected = 3 * np.mean((1 - 1e-6**shares) ** 2)
    assert loss_of(objective) - made_once.gates_loss(0.0, 1e-6) == pytest.approx(expected, abs=0.05)


def test_noise_changes_gates_and_the_same_step_has_the_same(setup):
    quiet, noisy, again = (Made(setup).gates_loss(1.0, noise=noise) for noise in (False, True, True))
    assert noisy == pytest.approx(again)
    assert noisy != pytest.approx(quiet, rel=1e-4)


@pytest.mark.parametrize("modulate", [True, False])
def test_before_gates_all_answers_are_learned_and_each_task_if_scales_tell_it(setup, modulate):
    made_once = Made(setup, modulate)
    model = answering(made_once.supernet.gated, made_once.source, len(made_once.tasks.trained))
    objective = AnswersObjective(made_once.supernet, model, made_once.tasks, setup, 0)
    drawn = objective.draws(1, np.random.default_rng(0))
    assert drawn["answers"].shape == (1, PARAMS.batch_size, 8)
    variables = [layer.kernel for layer in model.layers if layer.name in ("answer", "nnfactory-answers")]
    values = {name: tf.constant(array[0]) for name, array in drawn.items()}
    with tf.GradientTape() as tape:
        loss = objective.loss({}, values, tf.constant(0))
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    assert [gradient is not None for gradient in gradients] == [modulate, True]
