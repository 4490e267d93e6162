"""Networks that switch to other blocks, and keep only the blocks in use in memory."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from executors.structure.blocks import Block, blocks_of
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_server.worker.packaging.conversion.blocks import block_store
from tests.mistify_client.chains import load_chain, store_in
from tests.support import block_stores
from tests.support.block_stores import HALVED, LAST_TWO, ORIGINAL, images, residual

OTHER = (ORIGINAL[0], HALVED, LAST_TWO)
COMPILED = ChosenBlocks(files=ORIGINAL, execution=Execution.COMPILED)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    return block_stores.write(tmp_path / "store")


@pytest.fixture
def paged(store):
    network = PagedNetwork(Blocks(store, store_in(store)), ChosenBlocks(files=ORIGINAL), 1)
    yield network
    network.close()


def scores(store, names):
    return load_chain(store, names, 1)({"image": images(2)})["scores"]


def outputs(network):
    tensors, _ = network({"image": images(2)})
    return tensors["scores"]


def loaded(network):
    return {block.variant.file: block for block in network._current.blocks}


def test_switching_keeps_the_blocks_that_are_still_used(store, paged):
    before = loaded(paged)
    np.testing.assert_array_equal(outputs(paged), scores(store, ORIGINAL))
    paged.switch(ChosenBlocks(files=OTHER)).result()
    assert paged.running.files == OTHER
    np.testing.assert_array_equal(outputs(paged), scores(store, OTHER))
    assert loaded(paged)[ORIGINAL[0]] is before[ORIGINAL[0]]


def test_inferences_continue_while_blocks_are_loaded(store, paged):
    """The block is a pipe, so that loading waits until something is written to it."""
    content = (store / HALVED).read_bytes()
    (store / HALVED).unlink()
    os.mkfifo(store / HALVED)
    switched = paged.switch(ChosenBlocks(files=OTHER))
    with (store / HALVED).open("wb") as pipe:  # once loading has started
        np.testing.assert_array_equal(outputs(paged), scores(store, ORIGINAL))
        assert paged.running.files == ORIGINAL
        pipe.write(content)
    switched.result()
    assert paged.running.files == OTHER


def test_the_last_of_several_switches_wins(paged):
    for names in (OTHER, ORIGINAL, (*ORIGINAL[:2], LAST_TWO)):
        switched = paged.switch(ChosenBlocks(files=names))
    switched.result()
    assert paged.running.files == (*ORIGINAL[:2], LAST_TWO)


def test_concurrent_threads_never_see_a_mixture_of_two_networks(store, paged):
    expected = {(scores(store, names).tobytes(), ChosenBlocks(files=names)) for names in (ORIGINAL, OTHER)}
    seen, stop = set(), threading.Event()

    def run():
        while not stop.is_set():
            tensors, chosen = paged({"image": images(2)})
            seen.add((tensors["scores"].tobytes(), chosen))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for names in (OTHER, ORIGINAL) * 5:
        paged.switch(ChosenBlocks(files=names)).result()
    stop.set()
    for thread in threads:
        thread.join()
    assert seen <= expected


def test_a_damaged_block_does_not_stop_the_running_network(store, paged):
    (store / HALVED).write_bytes((store / HALVED).read_bytes()[:-1])
    with pytest.raises(MistifyError) as caught:
        paged.switch(ChosenBlocks(files=OTHER)).result()
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert caught.value.problems[0].place == str(store / HALVED)
    assert paged.running.files == ORIGINAL
    np.testing.assert_array_equal(outputs(paged), scores(store, ORIGINAL))


def test_the_same_blocks_can_be_reloaded_with_another_execution(store, paged):
    before = loaded(paged)
    paged.switch(COMPILED).result()
    assert paged.running == COMPILED
    assert loaded(paged).keys() == before.keys()
    assert not any(block is before[name] for name, block in loaded(paged).items())
    np.testing.assert_allclose(outputs(paged), scores(store, ORIGINAL), atol=1e-6)


def test_blocks_that_form_no_network_are_refused_immediately(paged):
    with pytest.raises(MistifyError, match="begins at position"):
        paged.switch(ChosenBlocks(files=ORIGINAL[1:]))


#: Switches to the large blocks and back to the small one, and prints the resident memory in kB each time.
MEMORY_SCRIPT = """
import sys
from pathlib import Path
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify.package.blocks import BlockStore

directory = Path(sys.argv[1])
small, large = (ChosenBlocks(files=names.split()) for names in sys.argv[2:])
network = PagedNetwork(Blocks(directory, BlockStore.load(directory)), large, 1)
for chosen in (small, large, small):
    network.switch(chosen).result()
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in status if line.startswith("VmRSS:")))
"""


def test_unused_blocks_are_not_in_memory(tmp_path):
    large, small = blocks_of(residual(width=200), 0.0), blocks_of(residual(), 1.0)
    whole = Block("small", 0, len(large), small[0].model)
    files = block_store([*large, whole], Quantization.NONE)
    (tmp_path / "store").mkdir()
    for name, content in files.items():
        (tmp_path / "store" / name).write_bytes(content)
    arguments = [str(tmp_path / "store"), whole.file, " ".join(block.file for block in large)]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    before, with_large, after = map(int, done.stdout.split())
    weights = sum(len(files[block.file]) for block in large) // 1024
    assert weights > 5_000
    assert with_large - before > weights
    assert after - before < weights // 4
