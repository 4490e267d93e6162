"""A package with different subnets, and data for it."""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify_client.subnets.block_latencies import LatencyTable, latency_table
from mistify_client.subnets.space import SubnetSpace
from tests.support import elastic_stores


class Elastic(NamedTuple):
    directory: Path
    files: BlockFiles
    state: Path
    store: BlockStore
    space: SubnetSpace
    table: LatencyTable


@pytest.fixture
def elastic(tmp_path):
    """Write the block store in a precision, and measure it as briefly as possible."""

    def made(precision: Quantization = Quantization.NONE) -> Elastic:
        directory, state = tmp_path / "package", tmp_path / "state"
        store = elastic_stores.write(directory, precision)
        state.mkdir()
        files = opened.enter_context(BlockFiles(directory))
        table = latency_table(files, store, state, 1, seconds=1e-6)
        return Elastic(directory, files, state, store, SubnetSpace(store), table)

    with ExitStack() as opened:
        yield made


@pytest.fixture(scope="session")
def device_data() -> tuple[np.ndarray, np.ndarray]:
    """Return images and classes that the store was not trained on."""
    images, classes = elastic_stores.digits()
    return images[1000:], classes[1000:]
