"""Packages with a block store, and the pools of subnets that a device keeps for them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.costs.quantization import Quantization
from mistify.files.writing import write_json
from mistify.machine import machine, runtime
from mistify.package.blocks import BlockStore
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.records import describe_file
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.search_session import TABLES
from mistify_client.subnets.space import SubnetSpace
from tests.mistify_client.chains import load_chain, stitch
from tests.support import block_stores, elastic_stores
from tests.support.block_stores import HALVED, LAST_TWO, ORIGINAL, called, images, residual
from tests.support.tiny_packages import make_package

#: Two subnets; the second is the original network.
FAST = (ORIGINAL[0], HALVED, LAST_TWO)
SUBNETS = (
    PoolEntry(files=FAST, latency_ms=4.0, accuracy=0.7),
    PoolEntry(files=ORIGINAL, latency_ms=10.0, accuracy=0.9),
)


def make_block_package(directory: Path, precision: Quantization = Quantization.NONE) -> Path:
    """Make a package with a block store; `serve.tflite` is the network of its original blocks."""
    store = directory.with_name("store")
    store.mkdir()
    block_stores.write(store, precision)
    whole = directory.with_name("whole.tflite")
    whole.write_bytes(stitch(store, ORIGINAL))
    blocks = BlockStore.load(store)
    package = make_package(directory, whole, blocks.inputs, blocks.outputs)
    block_stores.write(package, precision)
    return list_files(package)


def make_elastic_package(directory: Path, shipped: Sequence[str] = ()) -> Path:
    """Make a package of the digits classifier with subnets of different latency and accuracy.

    `serve.tflite` is the network of the shipped blocks, by default the original network.
    """
    store = elastic_stores.write(directory.with_name("store"))
    whole = directory.with_name("whole.tflite")
    files = shipped or [block.file for block in SubnetSpace(store).original]
    whole.write_bytes(stitch(directory.with_name("store"), files))
    package = make_package(directory, whole, store.inputs, store.outputs)
    elastic_stores.write(package)
    return list_files(package)


def list_files(package: Path) -> Path:
    """List all files of a package in its manifest, and return its directory."""
    files = {path.name: describe_file(path) for path in package.iterdir() if path.name != MANIFEST}
    Manifest.load(package).model_copy(update={"files": files}).save(package)
    return package


def set_latencies(package: Path) -> None:
    """Write the latencies of all blocks as if they were measured: proportional to their multiply-adds.

    The shipped network takes a little less than the chain of its blocks.
    """
    version, store = Package.open(package), BlockStore.load(package)
    latencies_ms = {one.content.sha256: 1e-7 * one.estimate.flops for one in store.variants}
    shipped = version.manifest.files[NETWORK]
    network = store.network_of(store.served or [one.file for one in SubnetSpace(store).original])
    latencies_ms[shipped.sha256] = 0.95 * sum(latencies_ms[one.content.sha256] for one in network)
    table = LatencyTable(
        machine=machine(),
        runtime=runtime(),
        execution=Execution.INTERPRETER,
        threads=1,
        latencies_ms=latencies_ms,
    )
    tables = state_directory(package) / TABLES
    tables.mkdir(parents=True)
    write_json(tables / f"latency-{Execution.INTERPRETER}-1.json", table.model_dump(mode="json"))


def write_pool(package: Path, entries: Sequence[PoolEntry] = SUBNETS, **changes: object) -> SubnetPool:
    """Write a package's pool, by default with all subnets within the budget."""
    values = {
        "store": Package.open(package).blocks_digest,
        "budget_ms": 20.0,
        "original_ms": 10.0,
        "metric": Metric.AGREEMENT,
        "examples": 100,
        "data": "mine.npz",
        "strategy": "additive",
        "entries": tuple(entries),
    }
    pool = SubnetPool.model_validate(values | changes)
    state_directory(package).mkdir(exist_ok=True)
    pool.save(state_directory(package))
    return pool


def with_engine(engine: Engine) -> list[PoolEntry]:
    """Return the entries of the two subnets for another engine."""
    return [entry.model_copy(update={"engine": engine}) for entry in SUBNETS]


def original_scores() -> npt.NDArray[np.float32]:
    """Return the scores of the original network for two images, as calculated by Keras."""
    return called(residual(), images(2))


def fast_scores(package: Path) -> npt.NDArray[np.float32]:
    """Return the scores of the fast subnet for two images, calculated block by block."""
    return load_chain(package, FAST, 1)({"image": images(2)})["scores"]
