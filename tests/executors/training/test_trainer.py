import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.outputs.objectives import objectives_of, predictions
from executors.pruning.masks import Masks
from executors.structure import analyse, copied, narrow, narrow_arrays
from executors.training.augmentation import flipped
from executors.training.evaluation import Evaluation
from executors.training.objective import _kept_predictions
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, constant, cosine
from mistify.config.data.dataset import Augmentation, DataSettings

layers = keras.layers


def linear(classes=10, activation=None):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1), name="image")
    return keras.Model(inputs, layers.Dense(classes, activation, name="digit")(layers.Flatten()(inputs)))


def with_params(training_setup, **changes):
    params = training_setup.params.model_copy(update=changes)
    return dataclasses.replace(training_setup, params=params)


def one_step(model, training_setup, **options):
    """Return the weights after one step on a batch of the whole training set."""
    Trainer(model, training_setup, 0, **options).train(constant(1))
    return model.get_weights()


def by_hand(model, training_setup):
    """Compute the same step from the formulas: mean cross-entropy, distillation at temperature T, Adam."""
    x, y = tf.constant(training_setup.train.inputs["image"]), training_setup.train.targets["digit"]
    params = training_setup.params
    heat, share = params.temperature, params.distillation
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
        if training_setup.teacher is not None:
            soft = (training_setup.teacher["digit"] + 1e-7) ** (1 / heat)
            soft /= soft.sum(axis=1, keepdims=True)
            kd = -tf.reduce_mean(tf.reduce_sum(soft * tf.nn.log_softmax(logits / heat), axis=1))
            loss = (1 - share) * loss + share * heat**2 * kd
    gradients = tape.gradient(loss, model.trainable_variables)
    # Adam's first step moves each weight by the learning rate, against the sign of its gradient.
    epsilon = 1e-7 / np.sqrt(1 - 0.999**11)  # ten priming steps and this one
    rate = 2e-3 if params.learning_rate is None else params.learning_rate
    return [
        np.asarray(variable) - rate * gradient / (np.abs(gradient) + epsilon)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
    ]


@pytest.mark.parametrize("taught", [True, False])
def test_a_step_follows_the_formula(taught, training_setup):
    everything = with_params(training_setup, batch_size=len(training_setup.train))
    if not taught:
        everything = dataclasses.replace(everything, teacher=None)
    model = linear()
    expected = by_hand(model, everything)
    for wanted, actual in zip(expected, one_step(model, everything), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=2e-5)


def test_a_teacher_model_predicts_augmented_images(training_setup):
    """Without augmentation, its targets equal stored predictions; with shifted images, they differ."""
    teacher_model = linear(activation="softmax")
    outputs = Evaluation(teacher_model).outputs(training_setup.train.inputs)
    taught = dataclasses.replace(
        training_setup, teacher=predictions(objectives_of(teacher_model, training_setup.train), outputs)
    )
    by_model = dataclasses.replace(training_setup, teacher=None, teacher_model=teacher_model)
    for wanted, actual in zip(one_step(linear(), taught), one_step(linear(), by_model), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=2e-5)

    settings = DataSettings(augment=Augmentation(brightness=0.9))
    taught, by_model = (
        with_params(dataclasses.replace(of, settings=settings), distillation=1.0) for of in (taught, by_model)
    )
    start = teacher_model.get_weights()
    for of, stays in ((by_model, True), (taught, False)):
        model = linear(activation="softmax")
        moved = [np.abs(a - b).max() for a, b in zip(one_step(model, of), start, strict=True)]
        assert (max(moved) < 1e-3) == stays


def test_stored_predictions_for_flipped_images_are_those_of_the_mirror_images(training_setup):
    """A teacher model, which sees the images of the step, therefore gives the same targets."""
    teacher_model = linear(activation="softmax")
    objectives, inputs = objectives_of(teacher_model, training_setup.train), training_setup.train.inputs
    as_they_are = predictions(objectives, Evaluation(teacher_model).outputs(inputs))
    turned = {name: array[:, :, ::-1] for name, array in inputs.items()}
    of_mirrored = predictions(objectives, Evaluation(teacher_model).outputs(turned))
    flipping = with_params(
        dataclasses.replace(training_setup, settings=DataSettings(augment=Augmentation(flip=True))),
        distillation=1.0,
    )
    taught = dataclasses.replace(flipping, teacher=as_they_are, mirrored=of_mirrored)
    by_model = dataclasses.replace(flipping, teacher=None, teacher_model=teacher_model)
    unaware = dataclasses.replace(flipping, teacher=as_they_are)
    wanted = one_step(linear(), by_model)
    for actual, like in zip(one_step(linear(), taught), wanted, strict=True):
        np.testing.assert_allclose(actual, like, atol=2e-5)
    others = one_step(linear(), unaware)
    assert max(np.abs(a - b).max() for a, b in zip(others, wanted, strict=True)) > 1e-3


@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 1, 3)])
def test_distillation_is_per_example_for_any_output_shape(shape):
    seed = tf.constant([3, 4])
    flips = flipped(6, seed).numpy()
    assert 0 < flips.sum() < 6
    of_images, of_mirrored = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.full(shape, -1.0)
    parts = {
        "teacher": {"y": tf.constant(of_images)},
        "mirrored": {"y": tf.constant(of_mirrored, tf.float32)},
    }
    taught = _kept_predictions(parts, seed)["y"].numpy()
    assert taught.shape == shape
    for number, flips_it in enumerate(flips):
        np.testing.assert_array_equal(taught[number], (of_mirrored if flips_it else of_images)[number])


def test_probabilities_and_logits_are_trained_equally(training_setup):
    with_logits, with_softmax = linear(), linear(activation="softmax")
    with_softmax.set_weights(with_logits.get_weights())
    for left, right in zip(
        one_step(with_logits, training_setup), one_step(with_softmax, training_setup), strict=True
    ):
        np.testing.assert_allclose(left, right, atol=1e-4)


def test_every_example_occurs_once_per_epoch(training_setup):
    seen = np.zeros(len(training_setup.train), int)
    numbered = dataclasses.replace(
        training_setup.train, inputs={"image": np.arange(len(seen)).reshape(-1, 1, 1, 1)}
    )
    counted = with_params(dataclasses.replace(training_setup, train=numbered), batch_size=100)
    trainer = Trainer(linear(), counted, seed=5)
    for _ in range(len(seen) * 3 // 100):
        seen[next(trainer._batches)] += 1
    assert set(np.unique(seen)) <= {2, 3}


def test_a_penalty_affects_weights_and_the_callback_runs_after_every_step(training_setup):
    model = linear()
    kernel = model.trainable_variables[0]
    count = tf.Variable(0)
    trainer = Trainer(
        model, training_setup, 0, lambda: 100.0 * tf.reduce_sum(tf.abs(kernel)), lambda: count.assign_add(1)
    )
    before = float(np.abs(kernel).sum())
    trainer.train(constant(60))
    assert int(count) == 60 + 10  # including the priming steps, which change nothing
    assert float(np.abs(kernel).sum()) < 0.7 * before


def test_priming_changes_no_weight(training_setup):
    model = linear()
    before = model.get_weights()
    Trainer(model, training_setup, 0).train(constant(3) * 0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


OPTIMIZERS = {"sgd": 0.01, "adam": 2e-3}


@pytest.fixture(params=OPTIMIZERS)
def few(request, training_setup):
    """Return a setup with the whole training set as batch, so that the order of examples does not matter."""
    train = training_setup.train.subset(np.arange(64))
    teacher, rate = {"digit": training_setup.teacher["digit"][:64]}, OPTIMIZERS[request.param]
    setup = dataclasses.replace(training_setup, train=train, teacher=teacher)
    return with_params(setup, batch_size=64, optimizer=request.param, learning_rate=rate)


def convolutional():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, use_bias=False)(inputs)))
    x = layers.Dense(12, "tanh")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10, name="digit")(x))


def assert_same_weights(one, other, atol):
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(left, right, atol=atol)


def test_a_trainer_with_the_state_of_another_continues_identically(few):
    never_stopped = convolutional()
    first = Trainer(never_stopped, few, 0)
    first.train(constant(6))
    stopped = keras.models.clone_model(never_stopped)
    stopped.set_weights(never_stopped.get_weights())
    second = Trainer(stopped, few, 1, optimizer_state=first.optimizer_state())
    for trainer in (first, second):
        trainer.train(constant(6))
    assert second.optimizer_state().steps == first.optimizer_state().steps
    assert_same_weights(stopped, never_stopped, 1e-5)


@pytest.mark.parametrize("remembers", [False, True])
def test_a_restarted_trainer_trains_like_a_new_one(few, remembers):
    """Bit by bit, even though the network itself draws random numbers."""
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Dropout(0.5)(layers.Dense(8, "relu")(layers.Flatten()(inputs)))
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))
    first = Trainer(model, few, 0)
    first.train(constant(5))
    optimizer_state = first.optimizer_state() if remembers else None
    other = copied(model)
    first.restart(7, optimizer_state)
    new = Trainer(other, few, 7, optimizer_state=optimizer_state)
    assert first.loss == new.loss
    for trainer in (first, new):
        trainer.train(constant(5))
        trainer.apply_average()
    assert_same_weights(other, model, 0)


def test_the_optimizer_state_is_cut_with_the_network(few):
    """The narrowed network continues like the masked one."""
    wide = convolutional()
    structure = analyse(wide)
    masks = Masks(structure)
    masked = Trainer(wide, few, 0, after_step=masks.apply)
    masked.train(constant(4))
    masks.set({name: np.arange(group.size) % 3 != 1 for name, group in structure.groups.items()})
    optimizer_state = masked.optimizer_state()
    arrays = {
        kind: narrow_arrays(structure, masks.keep, actual) for kind, actual in optimizer_state.arrays.items()
    }
    small = narrow(structure, masks.keep)
    narrowed = Trainer(small, few, 1, optimizer_state=dataclasses.replace(optimizer_state, arrays=arrays))
    for trainer in (masked, narrowed):
        trainer.train(constant(6))
    assert_same_weights(small, narrow(structure, masks.keep), 1e-4)


def test_the_last_loss_is_kept(training_setup):
    trainer = Trainer(linear(), training_setup, 0)
    assert trainer.loss is None
    losses = [trainer.train(constant(3)) for _ in range(2)]
    assert trainer.loss == losses[-1] != losses[0]
    trainer.train(constant(0))
    successor = Trainer(linear(), training_setup, 0, optimizer_state=trainer.optimizer_state())
    assert successor.loss == losses[-1]


def test_settling_gives_the_running_average(training_setup):
    """`a_1 = w_1`, `a_n = k a_{n-1} + (1 - k) w_n` with `k = min(0.98, 1 - 1/n)`."""
    model = linear()
    trainer = Trainer(model, training_setup, 0)
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
    trainer.apply_average()
    for wanted, actual in zip(average, model.get_weights(), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-5)


def test_a_restarted_average_ignores_earlier_steps(training_setup):
    model = linear()
    trainer = Trainer(model, training_setup, 0)
    trainer.train(constant(20))
    trainer.start_average()
    for steps in (0, 1):
        trainer.train(constant(steps))
        here = model.get_weights()
        trainer.apply_average()
        for wanted, actual in zip(here, model.get_weights(), strict=True):
            np.testing.assert_array_equal(actual, wanted)


def test_diverging_training_is_reported(training_setup):
    with pytest.raises(FloatingPointError, match="learning_rate"):
        Trainer(linear(), training_setup, 0, penalty=lambda: tf.constant(np.inf)).train(constant(60))


def test_learning_rates_follow_their_schedules():
    assert cosine(4) == pytest.approx([1, (1 + np.sqrt(0.5)) / 2, 0.5, (1 - np.sqrt(0.5)) / 2], abs=1e-6)
    assert list(constant(2)) == [1, 1]


def heads():
    """Return a network with two inputs, one of token ids, and an output of each kind."""
    keras.utils.set_random_seed(2)
    tokens = keras.Input((4,), dtype="int32", name="tokens")
    figures = keras.Input((2,), name="figures")
    x = layers.Embedding(2_000, 6)(tokens)
    tags = layers.Dense(5, name="tags")(x)
    both = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), figures])
    spam = layers.Dense(1, "sigmoid", name="spam")(both)
    return keras.Model([tokens, figures], [tags, spam, layers.Dense(1, name="price")(both)])


def examples(seed=0, count=32):
    rng = np.random.default_rng(seed)
    inputs = {
        "tokens": rng.integers(0, 2_000, (count, 4)),
        "figures": rng.integers(0, 9, (count, 2)).astype(np.uint8),
    }
    targets = {
        "tags": rng.integers(-1, 5, (count, 4)),
        "spam": rng.integers(0, 2, count),
        "price": rng.normal(size=count).astype(np.float32),
    }
    return Dataset(inputs, targets)


def test_losses_of_all_outputs_add_up_and_decrease():
    model, data = heads(), examples()
    tags, spam, price = (
        np.asarray(output) for output in model([data.inputs["tokens"], data.inputs["figures"] * 1.0])
    )
    shares = np.exp(tags) / np.exp(tags).sum(-1, keepdims=True)
    counted = data.targets["tags"] >= 0
    right = np.take_along_axis(shares, np.maximum(data.targets["tags"], 0)[..., None], 2)[..., 0]
    yes = np.where(data.targets["spam"], spam[:, 0], 1 - spam[:, 0])
    expected = -np.log(right[counted]).mean() - np.log(yes).mean()
    expected += np.square(price[:, 0] - data.targets["price"]).mean()

    trainer = Trainer(
        model, TrainingSetup(data, examples(1), None, TrainingParams(batch_size=32, learning_rate=0.003)), 0
    )

    assert trainer.train(constant(1) * 0) == pytest.approx(expected, rel=1e-4)
    assert trainer.train(constant(200)) < 0.8 * expected


def test_a_student_learns_every_output_of_the_teacher():
    teacher, student, data = heads(), heads(), examples()
    teacher.set_weights([2 * weight + 0.1 for weight in teacher.get_weights()])
    outputs = Evaluation(teacher).outputs(data.inputs)
    taught = predictions(objectives_of(teacher, data), outputs)
    params = TrainingParams(batch_size=32, optimizer="adam", learning_rate=0.02, distillation=1.0)
    setup = TrainingSetup(data, examples(1), taught, params)
    trainer = Trainer(student, setup, 0)
    before = apart(trainer.evaluation.outputs(data.inputs), outputs)
    trainer.train(constant(300))
    after = apart(trainer.evaluation.outputs(data.inputs), outputs)
    assert all(after[name] < 0.3 * before[name] for name in ("spam", "price")), (before, after)
    assert after["tags"] < 0.5 * before["tags"]


def apart(actual, wanted):
    """Return the mean distance of outputs; logits are compared up to the constant that softmax removes."""
    means = {
        name: (output.mean(-1, keepdims=True) if name == "tags" else 0) for name, output in actual.items()
    }
    targets = {
        name: (output.mean(-1, keepdims=True) if name == "tags" else 0) for name, output in wanted.items()
    }
    return {
        name: np.abs((actual[name] - means[name]) - (wanted[name] - targets[name])).mean() for name in actual
    }


def test_weights_without_influence_on_the_loss_are_not_changed(training_setup):
    """A comparison passes on no gradients."""
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Flatten()(layers.Dense(2, name="before")(inputs))
    x = keras.ops.cast(x > 0.5, "float32")
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))
    before, after = model.get_layer("before").get_weights(), model.get_layer("digit").get_weights()
    Trainer(model, training_setup, 0).train(constant(2))
    np.testing.assert_array_equal(model.get_layer("before").get_weights()[0], before[0])
    assert not np.array_equal(model.get_layer("digit").get_weights()[0], after[0])
