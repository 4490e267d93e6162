"""Write a package of an ImageNet network in blocks.

`python -m benchmarks.device.lending_package NETWORK DIR`

NETWORK is mobilenet-v2 or resnet-50, for images of 224 x 224, with random weights.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np

from executors.structure.blocks import blocks_of
from mistify.costs.quantization import Quantization
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import MANIFEST, NETWORK, Manifest, MeasuredLatency, Versions
from mistify.package.records import describe_file
from mistify_client.assembly.stitching import stitch
from mistify_server.worker.packaging.conversion.blocks import block_store

NETWORKS = {"mobilenet-v2": keras.applications.MobileNetV2, "resnet-50": keras.applications.ResNet50}

#: Segments with at most this share of the parameters and multiply-adds are joined with their neighbours.
_LARGEST = 0.03


def write_package(name: str, directory: Path) -> None:
    """Write a package whose network consists of the blocks in it."""
    keras.utils.set_random_seed(0)
    model = NETWORKS[name](weights=None, classifier_activation=None)
    examples = np.random.default_rng(0).uniform(-1, 1, (2, 224, 224, 3)).astype(np.float32)
    files = block_store(blocks_of(model, _LARGEST), Quantization.NONE, {model.inputs[0].name: examples})
    directory.mkdir(parents=True)
    for file, content in files.items():
        (directory / file).write_bytes(content)
    store = BlockStore.load(directory)
    own = tuple(block.file for block in store.variants)
    # Random weights have no accuracy to lose.
    losses = dict.fromkeys(range(1, store.last), 0.0)
    store = store.model_copy(update={"served": own, "rounding_losses": losses})
    (directory / BLOCKS).write_bytes(store.as_file())
    with BlockFiles(directory) as opened:
        (directory / NETWORK).write_bytes(stitch(opened, store.network_of(own)))
    Manifest(
        job="benchmark",
        goal=name,
        budget={},
        achieved={},
        accuracy=0,
        validation_accuracy=0,
        latency=MeasuredLatency(median_ms=20, p95_ms=25, runs=1, threads=1, machine="", runtime=""),
        inputs=store.inputs,
        outputs=store.outputs,
        versions=Versions(mistify="", tensorflow="", keras=""),
        files={path.name: describe_file(path) for path in directory.iterdir() if path.name != MANIFEST},
        created=datetime.now(UTC),
    ).save(directory)


if __name__ == "__main__":
    write_package(sys.argv[1], Path(sys.argv[2]))
