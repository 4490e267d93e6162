"""Subnets stitched in the background give the same outputs as their blocks, whatever fails meanwhile."""

import os
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify_client.assembly.background_process import BackgroundProcess
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.assembly.stitched_networks import STITCHED, STITCHER
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.chains import load_chain, store_in
from tests.mistify_client.pools import FAST, make_block_package
from tests.support.block_stores import HALVED, LAST_TWO, ORIGINAL, images
from tests.support.disks import files_limited_to

THIRD = (*ORIGINAL[:2], LAST_TWO)


@pytest.fixture
def package(tmp_path):
    return make_block_package(tmp_path / "package")


def blocks_in(package):
    return Blocks(package, store_in(package), networks_of(package))


def networks_of(package):
    return state_directory(package) / STITCHED


def inputs(count=1):
    return {"image": images(count)}


def stitched(network):
    """Stitch the running subnet, and wait until the stitched network runs."""
    assert network.stitch(inputs())
    join(network)
    return network


def stitch(package, names, *options):
    """Stitch blocks in a process of their own, and return the reason if it fails."""
    return BackgroundProcess().run(STITCHER, str(package), str(networks_of(package)), *options, *names)


def join(network):
    if network._stitching is not None:
        network._stitching.join()
    network._loader.submit(lambda: None).result()


def opened(package, names=ORIGINAL, **settings):
    return PagedNetwork(blocks_in(package), ChosenBlocks(files=names, **settings), 1)


def scores(network, count=2):
    tensors, _ = network(inputs(count))
    return tensors["scores"]


def files_of(package):
    directory = networks_of(package)
    return sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns) if directory.exists() else []


@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.INT8])
@pytest.mark.parametrize("execution", Execution)
def test_a_stitched_subnet_gives_the_outputs_of_its_blocks(tmp_path, precision, execution):
    package = make_block_package(tmp_path / "package", precision)
    network = opened(package, FAST, execution=execution)
    assert not network.is_whole
    stitched(network)
    assert network.is_whole
    assert network.running == ChosenBlocks(files=FAST, execution=execution)
    expected = load_chain(package, FAST, 1, execution)(inputs(2))["scores"]
    np.testing.assert_array_equal(scores(network), expected)
    network.close()


def test_an_existing_stitched_network_is_loaded_immediately(package):
    stitched(opened(package)).close()
    (before,) = files_of(package)
    network = opened(package)
    assert network.is_whole
    network.switch(ChosenBlocks(files=FAST)).result()
    assert not network.is_whole
    network.switch(ChosenBlocks(files=ORIGINAL)).result()
    assert network.is_whole
    assert files_of(package) == [before]
    network.close()


@pytest.mark.parametrize("harm", [lambda content: content[:-1], lambda content: content[:-1] + b"x"])
def test_a_damaged_network_is_detected_and_stitched_again(package, harm, caplog):
    stitched(opened(package)).close()
    (path,) = files_of(package)
    content = path.read_bytes()
    path.write_bytes(harm(content))
    network = opened(package)
    assert not network.is_whole
    assert str(path) in caplog.text
    np.testing.assert_array_equal(scores(network), load_chain(package, ORIGINAL, 1)(inputs(2))["scores"])
    assert stitched(network).is_whole
    assert path.read_bytes() == content
    network.close()


def test_stitching_replaces_a_damaged_network(package):
    """No app needs to have noticed the damage."""
    stitched(opened(package)).close()
    (path,) = files_of(package)
    content = path.read_bytes()
    path.write_bytes(b"")
    assert stitch(package, ORIGINAL) is None
    assert path.read_bytes() == content


def test_weights_are_packed_by_the_process_that_stitches(package, tmp_path):
    """Packing takes memory, which the app would keep."""
    weights = tmp_path / "weights"
    assert stitch(package, ORIGINAL, "--weights", str(weights)) is None
    packed = {path: path.stat().st_ino for path in weights.rglob("*") if path.is_file()}
    assert {path.suffix for path in packed} >= {".tflite", ".xnnpack"}
    chosen = ChosenBlocks(files=ORIGINAL, execution=Execution.COMPILED, mapped_weights=True)
    network = PagedNetwork(blocks_in(package)._replace(weights=weights), chosen, 1)
    (block,) = network._current.blocks
    assert block.weights == weights
    assert {path: path.stat().st_ino for path in weights.rglob("*") if path.is_file()} == packed
    expected = load_chain(package, ORIGINAL, 1, Execution.COMPILED)(inputs())["scores"]
    np.testing.assert_array_equal(scores(network, 1), expected)
    network.close()


def test_only_the_two_most_recently_used_networks_are_kept(package):
    network = stitched(opened(package))
    (first,) = files_of(package)
    network.switch(ChosenBlocks(files=FAST)).result()
    stitched(network)
    (second,) = set(files_of(package)) - {first}
    network.switch(ChosenBlocks(files=ORIGINAL)).result()  # now the most recently used one
    network.switch(ChosenBlocks(files=THIRD)).result()
    stitched(network)
    assert len(files_of(package)) == 2
    assert first in files_of(package)
    assert second not in files_of(package)
    network.close()


def test_the_blocks_keep_running_on_a_full_disk(package, caplog):
    network = opened(package)
    with files_limited_to(1_000):
        stitched(network)
    assert not network.is_whole
    assert "they cannot be stitched" in caplog.text
    np.testing.assert_array_equal(scores(network), load_chain(package, ORIGINAL, 1)(inputs(2))["scores"])
    assert stitched(network).is_whole
    assert len(files_of(package)) == 1  # the attempt leaves no files
    network.close()


def test_the_blocks_run_if_the_state_directory_is_a_file(package, caplog):
    state_directory(package).write_text("a file")
    network = stitched(opened(package))
    assert not network.is_whole
    assert "they cannot be stitched" in caplog.text
    network.close()


def test_the_blocks_run_if_memory_is_short(package):
    def network(available):
        return PagedNetwork(blocks_in(package), ChosenBlocks(files=ORIGINAL), 1, lambda: available)

    short = stitched(network(0))
    assert not short.is_whole
    assert files_of(package) == []
    plenty = stitched(network(10**10))
    assert plenty.is_whole
    assert not network(0).is_whole
    short.close()
    plenty.close()


def test_a_damaged_block_is_named_and_the_other_blocks_run(package, caplog):
    network = opened(package)
    (package / ORIGINAL[1]).write_bytes(b"damaged")
    assert not stitched(network).is_whole
    assert ORIGINAL[1] in caplog.text
    network.close()


def test_processes_can_share_a_state_directory(package):
    """Six processes stitch three subnets: every network is complete, and at most two are kept."""
    problems = []

    def note_problem(names):
        problems.append(stitch(package, names))

    threads = [threading.Thread(target=note_problem, args=[names]) for names in (ORIGINAL, FAST, THIRD) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [None] * 6
    assert len(files_of(package)) == 2
    networks = [opened(package, names) for names in (ORIGINAL, FAST, THIRD)]
    assert sum(network.is_whole for network in networks) == 2
    for network, names in zip(networks, (ORIGINAL, FAST, THIRD), strict=True):
        np.testing.assert_array_equal(scores(network), load_chain(package, names, 1)(inputs(2))["scores"])


def make_pipe(package, name):
    """Replace a block by a pipe, so that reading it blocks forever."""
    (package / name).unlink()
    os.mkfifo(package / name)
    return package / name


def is_read(pipe):
    """Return whether a process is reading from a pipe."""
    with suppress(OSError):  # raised if no process reads
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return True
    return False


def test_closing_ends_the_process_and_the_next_one_removes_its_files(package):
    network = opened(package, FAST)
    content = (package / HALVED).read_bytes()
    pipe = make_pipe(package, HALVED)
    assert network.stitch(inputs())
    with pipe.open("wb"):  # once it is being read
        assert not network.stitch(inputs())  # another process is stitching
        network.close()
    assert not network._stitching.is_alive()
    assert not is_read(pipe)
    pipe.unlink()
    pipe.write_bytes(content)
    networks_of(package).mkdir(exist_ok=True)
    (networks_of(package) / f"{'0' * 32}-{'0' * 64}.tflite.part").write_bytes(b"incomplete")
    assert stitched(opened(package, FAST)).is_whole
    assert [path.suffix for path in files_of(package)] == [".tflite"]


#: An app that ends while its subnet is being stitched from a pipe; it reports when stitching has begun.
ENDS = """
import os, sys
from pathlib import Path
import numpy as np
from tests.mistify_client.chains import store_in
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.paging import Blocks, PagedNetwork

package, networks, pipe, *names = sys.argv[1:]
network = PagedNetwork(
    Blocks(Path(package), store_in(Path(package)), Path(networks)), ChosenBlocks(files=names), 1
)
os.unlink(pipe)
os.mkfifo(pipe)
network.stitch({"image": np.zeros((1, 8, 8, 3), np.float32)})
writing = os.open(pipe, os.O_WRONLY)  # once it is being read
print("stitching", flush=True)
"""


def test_the_stitching_process_ends_with_its_app(package):
    arguments = [str(package), str(networks_of(package)), str(package / HALVED), *FAST]
    done = subprocess.run(
        [sys.executable, "-c", ENDS, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "stitching\n"
    assert not is_read(package / HALVED)
    assert files_of(package) == []
