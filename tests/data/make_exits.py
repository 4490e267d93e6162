"""Make the packages with early exits that the client's tests run: a small classifier of digits.

`exits_expected.npz` has images of other people's digits than those of the training, with their classes, and
the probabilities that the network and its heads have for them in TensorFlow.

Run `python -m tests.data.make_exits` once with the server's dependencies. Tests only read the files.
"""

import shutil
from pathlib import Path
from unittest import mock

import keras
import numpy as np
from sklearn.datasets import load_digits

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.exits import making
from tests.mistify_server.worker.packaging.networks import package_task, packaged

HERE = Path(__file__).parent
PACKAGES = {"none": "exits", "int8": "exits_int8"}
LOSSES = (0.01, 0.03)

#: The examples for training, for choices and for the test.
PARTS = (900, 1400)


def network() -> keras.Model:
    """Return a small residual network for images [8, 8, 1] of values up to 16."""
    layers = keras.layers
    keras.utils.set_random_seed(1)
    inputs = x = keras.Input((8, 8, 1), name="image")
    for number, (width, stride) in enumerate([(6, 1), (8, 2), (24, 1), (24, 1), (24, 1), (24, 1)]):
        x = layers.Conv2D(width, 3, stride, padding="same", use_bias=False, name=f"conv_{number}")(x)
        x = layers.ReLU(name=f"relu_{number}")(layers.BatchNormalization()(x))
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(layers.Flatten()(x)))


def digits() -> list[Dataset]:
    """Return training data, validation data, and data of other people."""
    data = load_digits()
    images, classes = data.images[..., None].astype(np.float32), data.target.astype(np.int64)
    parts = np.split(np.arange(len(images)), PARTS)
    return [Dataset({"image": images[rows]}, {"digit": classes[rows]}) for rows in parts]


def trained(train: Dataset) -> keras.Model:
    """Return the network after some passes through the data."""
    model = network()
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    model.fit(train.inputs["image"], train.targets["digit"], batch_size=32, epochs=40, verbose=0)
    return model


def main() -> None:
    train, validation, test = digits()
    model = trained(train)
    setup = TrainingSetup(train, validation, None, TrainingParams(batch_size=16))
    converted = []

    def spied(stages, heads, *others):
        converted.append((stages, heads))
        return convert(stages, heads, *others)

    convert = making.convert_exits
    with mock.patch.object(making, "convert_exits", spied):
        for precision, name in PACKAGES.items():
            quantization = QuantizationConfig.model_validate({"precision": precision})
            task = package_task(exits=ExitsConfig(loss=LOSSES), quantization=quantization)
            files = packaged(model, task, setup, test).files
            shutil.rmtree(HERE / name, ignore_errors=True)
            (HERE / name).mkdir()
            for file, content in files.items():
                (HERE / name / file).write_bytes(content)
    (stages, heads), _ = converted
    features, answers = test.inputs["image"], []
    for stage, head in zip(stages, [*heads, None], strict=True):
        features = stage.predict(features, verbose=0)
        answers.append(features if head is None else head.predict(features, verbose=0))
    np.savez(
        HERE / "exits_expected.npz",
        image=test.inputs["image"].astype(np.uint8),
        digit=test.targets["digit"].astype(np.uint8),
        answers=np.array(answers, np.float32),
        whole=model.predict(test.inputs["image"], verbose=0),
    )


if __name__ == "__main__":
    main()
