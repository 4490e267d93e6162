"""Packages for the benchmarks of tuning with peers: early weights, ported to one goal per device."""

from pathlib import Path
from typing import Final

import keras

from benchmarks.harness.worker import Porting
from benchmarks.tuning import fleet
from benchmarks.tuning import step as tuning_step
from executors.sources.keras.loading import load_keras
from executors.training.evaluation import call
from mistify.config.package.tuning import TuningConfig
from mistify.package.manifest import Manifest
from mistify_client.runtime.inputs import Array
from mistify_server.tasks.sources import DataSource, ModelSource

#: The packages' multiply-adds, as shares of ResNet-8's.
SHARES: Final = (0.5, 0.4, 0.3, 0.2, 0.15)

#: Training steps of the source, and of each goal.
SOURCE_STEPS: Final = 50
GOAL_STEPS: Final = 16

#: For Adam, because batch norms are folded; 0.001 is small for gradient descent, and usual for Adam.
TUNING: Final = TuningConfig(trainable="network", optimizer="adam", batch_size=32)


def make_packages(data: DataSource, scratch: Path, directory: Path, seed: int = 0) -> None:
    """Write each device's package to a directory named after its number."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((32, 32, 3), name="image")
    scaled = keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    source = scratch / "source.keras"
    keras.Model(inputs, tuning_step.resnet8()(scaled)).save(source)
    settings = {"source_steps": SOURCE_STEPS, "learning_rate": 0.05}
    porting = Porting(ModelSource(path=str(source)), data, scratch / "artifacts", settings)
    for device, share in enumerate(SHARES):
        package = porting.write_package(
            porting.checkpoint(share, GOAL_STEPS), directory / str(device), tuning=TUNING
        )
        names = {"job": fleet.JOB, "goal": str(device)}
        Manifest.load(package).model_copy(update=names).save(package)


def pretrained_probabilities(model: Path, images: Array) -> Array:
    """Return the probabilities [images, classes] predicted by a pretrained network."""
    network = load_keras(model)
    return next(iter(call(network, {network.inputs[0].name: images}, training=False).values()))
