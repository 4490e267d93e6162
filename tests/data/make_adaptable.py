"""Make the package that the client's tests adapt: a small classifier of digits, trained for a moment.

`digits.npz` has images of other people's digits than those of the training, with their classes.

Run `python -m tests.data.make_adaptable` once with the server's dependencies. Tests only read the files.
"""

import shutil
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from tests.mistify_server.worker.packaging.networks import package_task, packaged

HERE = Path(__file__).parent
TRAINED = 1200
PACKAGES = {"none": "adaptable", "float16": "adaptable_float16", "dynamic": "adaptable_dynamic"}


def network() -> keras.Model:
    """Return a small residual network for images [8, 8, 1] of values up to 16."""
    layers = keras.layers
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(12, 3, padding="same", use_bias=False, name="stem")(inputs)
    x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, 2, padding="same", use_bias=False)(x)))
    y = layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(y))
    z = layers.BatchNormalization()(layers.Conv2D(16, 1, 2, use_bias=False)(x))
    x = layers.Flatten()(layers.ReLU()(layers.Add()([y, z])))
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))


def digits() -> tuple[Dataset, Dataset]:
    """Return training data, and data of other people."""
    data = load_digits()
    images, classes = data.images[..., None].astype(np.float32), data.target.astype(np.int64)
    first, rest = np.split(np.arange(len(images)), [TRAINED])
    return tuple(Dataset({"image": images[rows]}, {"digit": classes[rows]}) for rows in (first, rest))


def trained(train: Dataset) -> keras.Model:
    """Return the network after some passes through the data."""
    model = network()
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    model.fit(train.inputs["image"], train.targets["digit"], batch_size=32, epochs=8, verbose=0)
    return model


def write(directory: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def main() -> None:
    train, rest = digits()
    model = trained(train)
    setup = TrainingSetup(train, train, None, TrainingParams(batch_size=16))
    for precision, name in PACKAGES.items():
        task = package_task(
            tuning=TuningConfig(adaptation=True),
            quantization=QuantizationConfig.model_validate({"precision": precision}),
        )
        write(HERE / name, dict(packaged(model, task, setup, rest).files))
    tuning = TuningConfig(adaptation=True, trainable="network", batch_size=16)
    write(HERE / "adaptable_trainable", dict(packaged(model, package_task(tuning=tuning), setup, rest).files))
    small = keras.models.clone_model(model)
    small.set_weights(model.get_weights())
    branches = Branches(
        ("stem", "stem_norm", "stem_relu"), (BranchNetwork(0.5, small, {}), BranchNetwork(1.0, model, {}))
    )
    task = package_task(tuning=TuningConfig(adaptation=True))
    write(HERE / "adaptable_branches", dict(packaged(model, task, setup, rest, branches=branches).files))
    np.savez(
        HERE / "adaptable_digits.npz",
        image=rest.inputs["image"].astype(np.uint8),
        digit=rest.targets["digit"].astype(np.uint8),
    )


if __name__ == "__main__":
    main()
