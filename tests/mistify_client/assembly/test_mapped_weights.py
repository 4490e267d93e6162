"""Packed weights in files that processes share: made once, verified, and made again if damaged."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mistify.package.manifest import NETWORK
from mistify.tflite.resizable import fixed_shapes
from mistify_client.assembly.executions import Execution, open_network
from mistify_client.assembly.mapped_weights import mapped_weights
from tests.mistify_client.pools import make_elastic_package
from tests.support import elastic_stores
from tests.support.disks import files_limited_to


@pytest.fixture
def network(tmp_path):
    package = make_elastic_package(tmp_path / "package")
    return fixed_shapes((package / NETWORK).read_bytes())


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "weights"


def outputs(network, weights=None):
    run = open_network(network, Execution.COMPILED, 1, weights)
    (result,) = run({"image": elastic_stores.digits()[0][:3]}).values()
    return result


def state_of(directory):
    return {path: (path.stat().st_ino, path.read_bytes()) for path in directory.rglob("*") if path.is_file()}


def test_outputs_are_the_same_with_mapped_weights(network, directory):
    expected = outputs(network)
    for _ in range(2):  # making the files, and using them
        np.testing.assert_array_equal(outputs(network, directory), expected)
    assert {".tflite", ".xnnpack"} <= {path.suffix for path in state_of(directory)}


def test_files_are_made_once(network, directory):
    files = mapped_weights(directory, network)
    before = state_of(directory)
    assert mapped_weights(directory, network) == files
    assert state_of(directory) == before
    assert files.network.read_bytes() == network


@pytest.mark.parametrize("part", ["network", "weights"])
def test_a_damaged_file_is_made_again(network, directory, part):
    expected = outputs(network, directory)
    path = getattr(mapped_weights(directory, network), part)
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    np.testing.assert_array_equal(outputs(network, directory), expected)
    assert path.read_bytes() == content


def test_threads_that_start_at_once_share_the_files(network, directory):
    with ThreadPoolExecutor(4) as pool:
        files = set(pool.map(lambda _: mapped_weights(directory, network), range(4)))
    assert len(files) == 1


def test_on_a_full_disk_the_weights_are_packed_into_memory(network, directory, caplog):
    expected = outputs(network)
    with files_limited_to(100):
        result = outputs(network, directory)
    np.testing.assert_array_equal(result, expected)
    assert "every process has its own copy of the weights" in caplog.text
