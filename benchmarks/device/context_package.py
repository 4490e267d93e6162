"""Write a package of a network for CIFAR-10 whose blocks have variants, for `benchmarks.device.context_loop`.

`python -m benchmarks.device.context_package DATA DIR [quick]`

The network is a ResNet with two residual blocks at each of three sizes. Its first convolution halves the
images, so that most of its memory are weights.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import keras

from benchmarks.harness.worker import TEST, TRAIN, Porting
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify_server.tasks.sources import DataSource, ModelSource

layers = keras.layers

#: Residual blocks at each size.
_BLOCKS: Final = 2

#: Share of the multiply-adds of the smallest network that the variants have to allow.
_LEAST: Final = 0.2


class _Extent(NamedTuple):
    """Channels at the largest size; training steps of the source and of the two stages of its supernet."""

    channels: int
    source: int
    distil: int
    paths: int


_FULL: Final = _Extent(64, 1_600, 300, 900)
_QUICK: Final = _Extent(64, 40, 5, 5)


def write_package(directory: Path, data: Path, extent: _Extent) -> None:
    """Train a network and its supernet, and write the package of the network with all blocks."""
    changes = DataSettings(augment=Augmentation(flip=True, crop=4))
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST), settings=changes)
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        _network(extent.channels).save(work / "network.keras")
        settings: dict[str, object] = {"learning_rate": 0.05, "batch_size": 32}
        source = ModelSource(path=str(work / "network.keras"))
        trained = Porting(source, files, work / "source", {**settings, "source_steps": extent.source})
        # The supernet is trained with Adam, at a rate of its own.
        steps = {"source_steps": 0, "distil_steps": extent.distil, "path_steps": extent.paths}
        porting = Porting(
            trained.tuned,
            files,
            work / "supernet",
            {**steps, "batch_size": 32, "blocks": True},
            algorithm="adaptivenet",
            least=_LEAST,
        )
        porting.write_package(porting.descended({1.0: None})[1.0], directory)


def _network(channels: int) -> keras.Model:
    """Return the network with random weights."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = _convolved(x, channels, stride=2)
    for width in (channels, 2 * channels, 4 * channels):
        for number in range(_BLOCKS):
            x = _residual(x, width, stride=2 if width > channels and number == 0 else 1)
    outputs = layers.Dense(10, "softmax", name="class")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs, name="network")


def _convolved(x: Any, width: int, stride: int = 1) -> Any:
    x = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def _residual(x: Any, width: int, stride: int) -> Any:
    y = _convolved(x, width, stride)
    y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
    y = layers.BatchNormalization()(y)
    if stride > 1:
        x = layers.BatchNormalization()(layers.Conv2D(width, 1, stride, use_bias=False)(x))
    return layers.ReLU()(layers.Add()([x, y]))


if __name__ == "__main__":
    write_package(Path(sys.argv[2]), Path(sys.argv[1]), _QUICK if sys.argv[3:] else _FULL)
