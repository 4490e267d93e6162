"""Make the packages that the client's tests train.

`trainable/` and `trainable_narrow/` are classifiers, `trainable_figures/` does regression, `trainable_kinds/`
has an output of each kind, and `trainable_tokens/` has integer inputs.

`expected.npz` in the first one contains a batch and TensorFlow's losses while training on it.

Run `python -m tests.data.make_trainable` once with the server's dependencies. Tests only read the files.
"""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.config.package.tuning import TuningConfig
from mistify.jobs.package_spec import PackageSpec
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import PackageTask
from tests.mistify_server.worker.packaging.networks import packaged

HERE = Path(__file__).parent
BATCH, STEPS, RATE, KD_WEIGHT = 8, 20, 0.05, 0.5


def network(width: int) -> keras.Model:
    """Return a small classifier for images [4, 4, 1] with three classes."""
    layers = keras.layers
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4, 4, 1), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(inputs)))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(5, 3, activation="relu", name="second")(x))
    return keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x))


def examples(seed: int, count: int) -> Dataset:
    """Return random images; their classes depend on the brightness of each half."""
    images = np.random.default_rng(seed).uniform(size=(count, 4, 4, 1)).astype(np.float32)
    left, right = images[:, :, :2].mean((1, 2, 3)), images[:, :, 2:].mean((1, 2, 3))
    classes = np.where(np.abs(left - right) < 0.05, 2, left < right).astype(np.int64)
    return Dataset({"image": images}, {"scores": classes})


def figures_network() -> keras.Model:
    """Return a small network for images [4, 4, 1] that predicts two numbers."""
    layers = keras.layers
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4, 4, 1), name="image")
    return keras.Model(inputs, layers.Dense(2, name="halves")(layers.Flatten()(inputs)))


def figures(seed: int, count: int) -> Dataset:
    """Return random images, and the brightness of each half."""
    images = np.random.default_rng(seed).uniform(size=(count, 4, 4, 1)).astype(np.float32)
    halves = np.stack([images[:, :, :2].mean((1, 2, 3)), images[:, :, 2:].mean((1, 2, 3))], axis=1)
    return Dataset({"image": images}, {"halves": halves})


def kinds_network() -> keras.Model:
    """Return a small network for images [4, 4, 1] with an output of each kind."""
    layers = keras.layers
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4, 4, 1), name="image")
    x = layers.Flatten()(inputs)
    outputs = [
        layers.Dense(3, "softmax", name="softmax")(x),
        layers.Dense(3, name="logits")(x),
        layers.Dense(1, "sigmoid", name="sigmoid")(x),
        layers.Dense(1, name="logit")(x),
        layers.Dense(1, name="figures")(x),
    ]
    return keras.Model(inputs, outputs)


def labels_of_each_kind(seed: int, count: int) -> Dataset:
    """Return random images; their classes and the brighter half, each twice, and the brightness."""
    data = examples(seed, count)
    images, classes = data.inputs["image"], data.targets["scores"]
    brighter = (images[:, :, :2].mean((1, 2, 3)) < images[:, :, 2:].mean((1, 2, 3))).astype(np.int64)
    targets = {
        "softmax": classes,
        "logits": classes,
        "sigmoid": brighter,
        "logit": brighter,
        "figures": images.mean((1, 2, 3)),
    }
    return Dataset({"image": images}, targets)


def tokens_network() -> keras.Model:
    """Return a small classifier for texts of 4 tokens with two classes."""
    layers = keras.layers
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,), name="tokens", dtype="int32")
    x = layers.Flatten()(layers.Embedding(10, 4)(inputs))
    return keras.Model(inputs, layers.Dense(2, "softmax", name="scores")(x))


def tokens(seed: int, count: int) -> Dataset:
    """Return random tokens; their classes depend on the first one."""
    drawn = np.random.default_rng(seed).integers(0, 10, (count, 4)).astype(np.int32)
    return Dataset({"tokens": drawn}, {"scores": (drawn[:, 0] < 5).astype(np.int64)})


def losses(model: keras.Model, data: Dataset, taught: np.ndarray) -> list[float]:
    """Train in TensorFlow on one batch, and return the loss of each step; the model is modified."""
    import tensorflow as tf

    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
    actual = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            logits = tf.math.log(model(data.inputs["image"], training=False) + 1e-7)
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(data.targets["scores"], logits)
            distilled = tf.nn.softmax_cross_entropy_with_logits(taught, logits)
            loss = tf.reduce_mean(entropy + KD_WEIGHT * distilled)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        actual.append(float(loss))
    return actual


def write_package(
    model: keras.Model,
    goal: str,
    directory: Path,
    data: Callable[[int, int], Dataset] = examples,
    metric: Metric = Metric.ACCURACY,
) -> None:
    """Package a network without adapting it."""
    settings = DataSettings(metric=metric)
    training_setup = TrainingSetup(data(1, 80), data(2, 40), None, TrainingParams(batch_size=16), settings)
    recipe = TaughtRecipe(
        model=ModelSource(path="source.keras"),
        data=DataSource(train="train.npz", test="test.npz", settings=settings),
        algorithm="uniform",
        settings={},
        hardware={},
        seed=0,
        teacher="teacher.keras",
    )
    task = PackageTask(
        recipe=recipe,
        job_id="job-1",
        goal_id=goal,
        spec=PackageSpec(
            {"flops": 1e6}, tuning=TuningConfig(trainable="network", optimizer="sgd", batch_size=BATCH)
        ),
        checkpoint="checkpoint.keras",
        costs={"flops": 9e5},
        accuracy=0.5,
    )
    directory.mkdir(exist_ok=True)
    for name, content in packaged(model, task, training_setup).files.items():
        (directory / name).write_bytes(content)


def main() -> None:
    """Write the packages, and `expected.npz` with a batch and the losses of training steps on it."""
    from executors.structure import fold_batch_norm

    model = network(4)
    write_package(model, "half", HERE / "trainable")
    write_package(network(3), "third", HERE / "trainable_narrow")
    write_package(figures_network(), "figures", HERE / "trainable_figures", figures, Metric.MSE)
    write_package(kinds_network(), "kinds", HERE / "trainable_kinds", labels_of_each_kind)
    write_package(tokens_network(), "tokens", HERE / "trainable_tokens", tokens)
    batch = examples(5, BATCH)
    taught = np.random.default_rng(6).dirichlet(np.ones(3), BATCH).astype(np.float32)
    np.savez(
        HERE / "trainable" / "expected.npz",
        image=batch.inputs["image"],
        scores=batch.targets["scores"],
        taught=taught,
        losses=losses(fold_batch_norm(model), batch, taught),
    )


if __name__ == "__main__":
    main()
