import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.sparsity import Masks
from executors.structure import analyse, narrow, narrow_arrays
from executors.training import Memory, Trainer, constant, cosine, split

layers = keras.layers


def linear(classes=10, activation=None):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1))
    return keras.Model(inputs, layers.Dense(classes, activation)(layers.Flatten()(inputs)))


def one_step(model, schooling, **options):
    """The weights after one step of a trainer whose batch is the whole training set."""
    Trainer(model, schooling, 0, **options).train(constant(1))
    return model.get_weights()


def by_hand(model, schooling):
    """The same step from the formulas: mean cross entropy, distillation at temperature T, Adam."""
    x, y = tf.constant(schooling.train.x), schooling.train.y
    heat, share = schooling.temperature, schooling.distillation
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
        if schooling.teacher is not None:
            soft = (schooling.teacher + 1e-7) ** (1 / heat)
            soft /= soft.sum(axis=1, keepdims=True)
            kd = -tf.reduce_mean(tf.reduce_sum(soft * tf.nn.log_softmax(logits / heat), axis=1))
            loss = (1 - share) * loss + share * heat**2 * kd
    gradients = tape.gradient(loss, model.trainable_variables)
    # Adam's first step moves each weight by the rate, against the sign of its gradient.
    epsilon = 1e-7 / np.sqrt(1 - 0.999**11)  # ten priming steps and this one
    return [
        np.asarray(variable) - schooling.learning_rate * gradient / (np.abs(gradient) + epsilon)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
    ]


@pytest.mark.parametrize("taught", [True, False])
def test_a_step_is_the_formula(taught, schooling):
    everything = dataclasses.replace(schooling, batch_size=len(schooling.train))
    if not taught:
        everything = dataclasses.replace(everything, teacher=None)
    model = linear()
    expected = by_hand(model, everything)
    for wanted, found in zip(expected, one_step(model, everything), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_probabilities_and_logits_learn_alike(schooling):
    with_logits, with_softmax = linear(), linear(activation="softmax")
    with_softmax.set_weights(with_logits.get_weights())
    for left, right in zip(one_step(with_logits, schooling), one_step(with_softmax, schooling), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-4)


def test_every_example_comes_once_per_epoch(schooling):
    seen = np.zeros(len(schooling.train), int)
    numbered = dataclasses.replace(schooling.train, x=np.arange(len(seen)).reshape(-1, 1, 1, 1))
    counted = dataclasses.replace(schooling, train=numbered, teacher=None, batch_size=100)
    trainer = Trainer(linear(), counted, seed=5)
    for _ in range(len(seen) * 3 // 100):
        seen[next(trainer._batches)] += 1
    assert set(np.unique(seen)) <= {2, 3}


def test_a_penalty_pulls_and_runs_after_every_step(schooling):
    model = linear()
    kernel = model.trainable_variables[0]
    count = tf.Variable(0)
    trainer = Trainer(
        model, schooling, 0, lambda: 100.0 * tf.reduce_sum(tf.abs(kernel)), lambda: count.assign_add(1)
    )
    before = float(np.abs(kernel).sum())
    trainer.train(constant(60))
    assert int(count) == 60 + 10  # the priming steps as well, which change nothing
    assert float(np.abs(kernel).sum()) < 0.7 * before


def test_priming_changes_no_weight(schooling):
    model = linear()
    before = model.get_weights()
    Trainer(model, schooling, 0).train(constant(3) * 0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


OPTIMIZERS = {"sgd": 0.01, "adam": 2e-3}


@pytest.fixture(params=OPTIMIZERS)
def few(request, schooling):
    """Schooling whose batch is the whole training set, so that no order of examples matters."""
    train = schooling.train.subset(np.arange(64))
    teacher, rate = schooling.teacher[:64], OPTIMIZERS[request.param]
    return dataclasses.replace(
        schooling, train=train, teacher=teacher, batch_size=64, optimizer=request.param, learning_rate=rate
    )


def convolutional():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, use_bias=False)(inputs)))
    x = layers.Dense(12, "tanh")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def assert_same_weights(one, other, atol):
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(left, right, atol=atol)


def test_a_trainer_with_the_memory_of_another_goes_on_as_if_it_were_that(few):
    never_stopped = convolutional()
    first = Trainer(never_stopped, few, 0)
    first.train(constant(6))
    stopped = keras.models.clone_model(never_stopped)
    stopped.set_weights(never_stopped.get_weights())
    second = Trainer(stopped, few, 1, memory=first.memory())
    for trainer in (first, second):
        trainer.train(constant(6))
    assert second.memory().steps == first.memory().steps
    assert_same_weights(stopped, never_stopped, 1e-5)


def test_a_memory_is_cut_with_the_network(few):
    """The narrowed network goes on as the masked one does."""
    wide = convolutional()
    structure = analyse(wide)
    masks = Masks(structure)
    masked = Trainer(wide, few, 0, after_step=masks.apply)
    masked.train(constant(4))
    masks.set({name: np.arange(group.size) % 3 != 1 for name, group in structure.groups.items()})
    memory = masked.memory()
    arrays = {kind: narrow_arrays(structure, masks.keep, found) for kind, found in memory.arrays.items()}
    small = narrow(structure, masks.keep)
    narrowed = Trainer(small, few, 1, memory=Memory(memory.steps, arrays))
    for trainer in (masked, narrowed):
        trainer.train(constant(6))
    assert_same_weights(small, narrow(structure, masks.keep), 1e-4)


def test_settling_gives_the_running_average(schooling):
    """`a_1 = w_1`, `a_n = k a_{n-1} + (1 - k) w_n` with `k = min(0.98, 1 - 1/n)`."""
    model = linear()
    trainer = Trainer(model, schooling, 0)
    average = None
    for step in range(1, 61):
        trainer.train(constant(1))
        weights = [weight.astype(np.float64) for weight in model.get_weights()]
        keep = min(0.98, 1 - 1 / step)
        average = (
            weights
            if average is None
            else [keep * old + (1 - keep) * new for old, new in zip(average, weights, strict=True)]
        )
    trainer.settle()
    for wanted, found in zip(average, model.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_an_average_that_starts_anew_knows_nothing_of_the_steps_before(schooling):
    model = linear()
    trainer = Trainer(model, schooling, 0)
    trainer.train(constant(20))
    trainer.start_average()
    for steps in (0, 1):
        trainer.train(constant(steps))
        here = model.get_weights()
        trainer.settle()
        for wanted, found in zip(here, model.get_weights(), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_diverging_is_told(schooling):
    with pytest.raises(FloatingPointError, match="learning_rate"):
        Trainer(linear(), schooling, 0, penalty=lambda: tf.constant(np.inf)).train(constant(60))


def test_schedules():
    assert cosine(4) == pytest.approx([1, (1 + np.sqrt(0.5)) / 2, 0.5, (1 - np.sqrt(0.5)) / 2], abs=1e-6)
    assert list(constant(2)) == [1, 1]


def test_a_split_keeps_every_example_once(schooling):
    data = dataclasses.replace(schooling.train, y=np.arange(len(schooling.train)))
    first, second = split(data, 0.1)
    assert len(second) == round(0.1 * len(data))
    assert sorted([*first.y, *second.y]) == list(range(len(data)))
