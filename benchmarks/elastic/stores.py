"""The block package of a ResNet, used by the benchmarks of on-device search."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import keras
import numpy as np

from benchmarks.elastic.networks import resnet14, resnet20
from benchmarks.harness.run import add_data_option, add_seeds_option, data_with
from benchmarks.harness.worker import TEST, TRAIN, Porting
from mistify.costs.quantization import Quantization
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify_client.examples import Examples
from mistify_server.tasks.sources import DataSource, ModelSource

#: The goals of the server, as shares of the multiply-adds.
SHARES: Final = (0.8, 0.65, 0.5)

_PACKAGE: Final = "package"
_CHOICES: Final = "choices.json"


class Extent(NamedTuple):
    """Training steps of the source and of the two stages of its supernet."""

    source: int
    distil: int
    paths: int


FULL: Final = Extent(1_500, 200, 400)
QUICK: Final = Extent(60, 10, 10)

#: As many steps as in `elastic.quality`.
TRAINED: Final = Extent(4_800, 600, 2_400)


class PortedBlocks(NamedTuple):
    """A package with the blocks of a supernet.

    Attributes:
        directory: The package's directory.
        choices: Share of the goal -> files of the blocks that the server's executor chose.
    """

    directory: Path
    choices: Mapping[float, tuple[str, ...]]

    @property
    def store(self) -> BlockStore:
        """The blocks."""
        return BlockStore.load(self.directory)

    @property
    def files(self) -> BlockFiles:
        """The files of the blocks, which stay open while this is in use."""
        return BlockFiles(self.directory)


@contextmanager
def ported_blocks(options: Namespace, full: Extent = FULL) -> Iterator[PortedBlocks]:
    """Train a network and its supernet on CIFAR-10's training file, and package the blocks.

    Args:
        options: The options of `add_options`, and `quick`. An existing checkpoint is reused.
        full: Training steps of a full run.

    Raises:
        MissingDataError: The data are missing.
    """
    data = data_with((TRAIN, TEST), options)
    network, extent = (resnet14, QUICK) if options.quick else (resnet20, full)
    with TemporaryDirectory() as directory:
        name = "-".join(map(str, (network.__name__, *extent)))
        root = Path(options.checkpoint or directory) / name
        if not (root / _CHOICES).exists():
            root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=root) as work:
                choices = _ported(network(), extent, data, Path(work), root / _PACKAGE)
            (root / _CHOICES).write_text(json.dumps(choices))
        kept = json.loads((root / _CHOICES).read_text())
        yield PortedBlocks(root / _PACKAGE, {float(share): tuple(files) for share, files in kept.items()})


def device_examples(options: Namespace, store: BlockStore) -> Examples:
    """Return the images of the test file, which the server has used neither for training nor selection."""
    with np.load(data_with((TEST,), options) / TEST) as arrays:
        images, classes = arrays["x"].astype(np.float32), arrays["y"].astype(np.int64)
    return Examples({store.inputs[0].name: images}, {store.outputs[0].name: classes})


def chosen_by(model: keras.Model, store: BlockStore) -> tuple[str, ...]:
    """Return the files of the blocks that make up one of the server's subnets, by the names of its layers.

    Args:
        store: The blocks of the subnet.
    """
    taken = [
        variant
        for variant in store.variants[store.last :]
        if any(layer.name.startswith(f"{Path(variant.file).stem}-") for layer in model.layers)
    ]
    own = [
        block
        for block in store.variants[: store.last]
        if not any(variant.start <= block.start < variant.end for variant in taken)
    ]
    return tuple(block.file for block in sorted([*taken, *own], key=attrgetter("start")))


def add_options(parser: ArgumentParser) -> None:
    """Add the options for data, checkpoint and seeds."""
    add_data_option(parser)
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="keep the trained blocks here, and reuse them"
    )
    add_seeds_option(parser)


def _ported(
    network: keras.Model, extent: Extent, data: Path, work: Path, package: Path
) -> dict[float, tuple[str, ...]]:
    """Write the package, and return the server's choices."""
    network.save(work / "network.keras")
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    settings: dict[str, object] = {"source_steps": extent.source, "learning_rate": 0.05, "batch_size": 32}
    source = Porting(ModelSource(path=str(work / "network.keras")), files, work / "source", settings)
    settings = {
        "source_steps": 0, "distil_steps": extent.distil, "path_steps": extent.paths, "batch_size": 32,
        "blocks": True,
    }  # fmt: skip
    porting = Porting(
        source.tuned, files, work / "supernet", settings, algorithm="adaptivenet", least=min(SHARES)
    )
    chosen = porting.descended(dict.fromkeys(SHARES))
    porting.write_package(chosen[SHARES[0]], package, precision=Quantization.INT8)
    store = BlockStore.load(package)
    return {share: chosen_by(porting.network(checkpoint), store) for share, checkpoint in chosen.items()}
