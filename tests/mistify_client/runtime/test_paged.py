"""Packages with subnets: the chosen subnet, the running one, and loading in the background."""

import logging
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify_client import load
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import WEIGHTS
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.runtime.options import options_of
from mistify_client.runtime.paged import RETRY_SECONDS, PagedOptions
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.chains import load_chain, store_in
from tests.mistify_client.pools import (
    FAST,
    SUBNETS,
    fast_scores,
    make_block_package,
    original_scores,
    with_engine,
    write_pool,
)
from tests.support.block_stores import HALVED, ORIGINAL, images
from tests.support.threads import without_threads


@pytest.fixture
def package(tmp_path):
    return make_block_package(tmp_path / "package")


def join_loading(model):
    """Wait until no blocks are being loaded."""
    model._loaded.network._network.close()


def subnets_of(choices):
    """Return blocks by the ids of their subnets."""
    return {f"subnet-{number}": chosen for number, chosen in enumerate(choices)}


def options(package):
    return options_of(Package.open(package), state_directory(package))


def ran(model):
    """Return how often each subnet ran, and which one ran last."""
    statistics = model.statistics()
    return statistics.counts, statistics.option


def test_the_previous_subnet_runs_while_the_next_one_is_loaded(package):
    """One of its blocks is a pipe, so that loading waits until something is written to it."""
    write_pool(package)
    model = load(package)
    expected, content = fast_scores(package), (package / HALVED).read_bytes()
    (package / HALVED).unlink()
    os.mkfifo(package / HALVED)
    model.switch("subnet-0")
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
    with (package / HALVED).open("wb") as pipe:  # once loading has started
        np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
        assert (model.wanted, model.running) == ("subnet-0", "subnet-1")
        assert ran(model) == ({"subnet-0": 0, "subnet-1": 2}, "subnet-1")
        pipe.write(content)
    join_loading(model)
    assert (model.wanted, model.running) == ("subnet-0", "subnet-0")
    np.testing.assert_array_equal(model(images(2)), expected)
    assert ran(model) == ({"subnet-0": 1, "subnet-1": 2}, "subnet-0")
    (seen,) = observed(state_directory(package))
    assert seen.inferences["option"].tolist() == [1, 1, 0]


def test_the_last_choice_runs_when_the_package_is_loaded_again(package):
    write_pool(package)
    load(package).switch("subnet-0")
    again = load(package)
    assert (again.wanted, again.running) == ("subnet-0", "subnet-0")
    np.testing.assert_array_equal(again(images(2)), fast_scores(package))


def test_the_default_runs_while_the_chosen_subnet_is_damaged(package, caplog):
    write_pool(package)
    load(package).switch("subnet-0")
    content = (package / HALVED).read_bytes()
    (package / HALVED).write_bytes(content[:-1])
    model = load(package)
    assert (model.wanted, model.running) == ("subnet-0", "subnet-1")
    assert str(package / HALVED) in caplog.text
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)


def test_a_damaged_block_is_retried_while_the_previous_subnet_runs(package, caplog):
    write_pool(package)
    content = (package / HALVED).read_bytes()
    (package / HALVED).write_bytes(content[:-1])
    now = 0.0
    choices = [ChosenBlocks(files=entry.files) for entry in SUBNETS]
    network = PagedNetwork(Blocks(package, store_in(package)), choices[1], 1)
    subnets = PagedOptions(Manifest.load(package), subnets_of(choices), network, 1, clock=lambda: now)

    def run():
        """Run an inference, wait until no blocks are being loaded, and return the subnet that ran."""
        values = {"image": images(2)}
        outputs, option, *_ = subnets.prepared(values)(values, 0)
        network._loader.submit(lambda: None).result()
        expected = original_scores() if option else load_chain(package, FAST, 1)(values)["scores"]
        np.testing.assert_allclose(outputs["scores"], expected, atol=1e-5)
        return option

    with caplog.at_level(logging.WARNING):
        assert run() == 1
    assert str(package / HALVED) in caplog.text
    (package / HALVED).write_bytes(content)
    now = RETRY_SECONDS - 1
    assert [run(), run(), subnets.running(0)] == [1, 1, 1]
    now = RETRY_SECONDS
    run()  # starts loading, and runs the new subnet if this finishes in time
    assert [run(), subnets.running(0)] == [0, 0]
    network.close()


def test_inferences_continue_if_no_thread_can_be_started(package, caplog):
    write_pool(package)
    model = load(package)
    model.switch("subnet-0")
    with without_threads():
        np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
    assert "subnet-0 cannot be loaded" in caplog.text
    assert (model.wanted, model.running) == ("subnet-0", "subnet-1")


def test_a_block_damaged_at_loading_is_refused_by_name(package):
    write_pool(package)
    (package / ORIGINAL[1]).write_bytes(b"no block")
    with pytest.raises(MistifyError, match=r"block-01\.tflite") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_an_unknown_subnet_is_reported(package):
    write_pool(package)
    model = load(package)
    with pytest.raises(MistifyError, match='no option "subnet-2"; it has subnet-0 and subnet-1') as caught:
        model.switch("subnet-2")
    assert caught.value.code is ErrorCode.NOT_FOUND


#: Switches on command to a subnet with a pipe as block, and never finishes loading.
GOES_OVER = """
import sys
import numpy as np
from pathlib import Path
from mistify_client import load

model, images = load(Path(sys.argv[1])), np.load(sys.argv[2])
model(images)
print("ready", flush=True)
input()
model.switch("subnet-0")
model(images)
input()
"""


@pytest.mark.parametrize("lost", [False, True])
def test_sigkill_while_blocks_are_loaded_does_not_affect_later_apps(package, tmp_path, lost):
    """Other apps continue, and new ones run the chosen subnet, or the previous one if it is damaged."""
    write_pool(package)
    other, block = load(package), package / HALVED
    np.save(tmp_path / "images.npy", images(2))
    content, expected = block.read_bytes(), fast_scores(package)
    arguments = [sys.executable, "-c", GOES_OVER, str(package), str(tmp_path / "images.npy")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        block.unlink()
        os.mkfifo(block)
        process.stdin.write("\n")
        process.stdin.flush()
        with block.open("wb"):  # once loading has started
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    block.unlink()
    np.testing.assert_allclose(other(images(2)), original_scores(), atol=1e-5)
    if not lost:
        block.write_bytes(content)
    fresh = load(package)
    assert (fresh.wanted, fresh.running) == ("subnet-0", f"subnet-{int(lost)}")
    np.testing.assert_allclose(fresh(images(2)), original_scores() if lost else expected, atol=1e-5)


def test_subnets_run_with_the_other_execution(package):
    write_pool(package, with_engine(Engine(execution=Execution.COMPILED)))
    model = load(package)
    assert {each.engine.execution for each in model.options} == {Execution.COMPILED}
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
    model.switch("subnet-0")
    model(images(2))
    join_loading(model)
    np.testing.assert_allclose(model(images(2)), fast_scores(package), atol=1e-5)


def test_subnets_pass_integers_between_blocks(tmp_path):
    package = make_block_package(tmp_path / "package", Quantization.INT8)
    whole = load(package)
    write_pool(package)
    model = load(package)
    assert (whole.options[0].kind, model.options[0].kind) == ("branch", "subnet")
    np.testing.assert_array_equal(model(images(2)), whole(images(2)))


def test_outputs_that_are_missing_from_the_blocks_are_an_error(package):
    write_pool(package)
    manifest = Manifest.load(package)
    output = manifest.outputs[0].model_copy(update={"name": "boxes"})
    manifest.model_copy(update={"outputs": (output,)}).save(package)
    with pytest.raises(MistifyError, match=r"cannot be used: they have no output boxes") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_subnets_run_without_a_writable_state(package, caplog):
    state = state_directory(package)
    pool = options(package)
    assert not pool.paged
    write_pool(package)
    (state / "switchboard").unlink(missing_ok=True)
    (state / "switchboard").mkdir()  # instead of the file
    model = load(package)
    model.switch("subnet-0")
    model(images(2))
    join_loading(model)
    assert "no monitor can switch this model" in caplog.text
    np.testing.assert_array_equal(model(images(2)), fast_scores(package))
    assert load(package).running == "subnet-1"


def test_a_subnet_is_stitched_after_running_for_a_while(package):
    write_pool(package)
    now = 0.0
    choices = [ChosenBlocks(files=entry.files) for entry in SUBNETS]
    network = PagedNetwork(Blocks.of(Package.open(package), state_directory(package)), choices[1], 1)
    subnets = PagedOptions(Manifest.load(package), subnets_of(choices), network, 1, clock=lambda: now)

    def run(wanted):
        """Run an inference, wait for background work, and return whether a stitched network ran."""
        values, was_whole = {"image": images(2)}, network.is_whole
        outputs, option, *_ = subnets.prepared(values)(values, wanted)
        expected = load_chain(package, choices[option].files, 1)(values)["scores"]
        np.testing.assert_array_equal(outputs["scores"], expected)
        if network._stitching is not None:
            network._stitching.join()
        network._loader.submit(lambda: None).result()
        return was_whole

    seconds = network.settling_seconds(choices[0])
    assert not run(1)
    now = seconds - 1
    assert [run(1), run(1)] == [False, False]
    now = seconds
    assert [run(1), run(1)] == [False, True]
    run(0)  # starts loading the other subnet
    now = 2 * seconds - 1
    assert [run(0), run(0)] == [False, False]
    now = 2 * seconds
    assert [run(0), run(0)] == [False, True]
    run(1)
    assert run(1)
    network.close()


def test_a_subnet_is_stitched_sooner_if_its_weights_are_to_be_mapped(package):
    """Until then, it takes more memory than was measured for it."""
    plain = ChosenBlocks(files=FAST, execution=Execution.COMPILED)
    mapped = plain.model_copy(update={"mapped_weights": True})
    blocks = Blocks.of(Package.open(package), state_directory(package))
    network = PagedNetwork(blocks, mapped, 1)
    assert network.settling_seconds(mapped) < network.settling_seconds(plain)
    now = 0.0
    subnets = PagedOptions(Manifest.load(package), subnets_of([mapped]), network, 1, clock=lambda: now)
    values = {"image": images(1)}
    expected = load_chain(package, FAST, 1, Execution.COMPILED)(values)["scores"]
    subnets.prepared(values)(values, 0)
    now = network.settling_seconds(mapped)
    outputs, *_ = subnets.prepared(values)(values, 0)
    np.testing.assert_array_equal(outputs["scores"], expected)
    network._stitching.join()
    network._loader.submit(lambda: None).result()
    assert network.is_whole
    (block,) = network._current.blocks
    assert block.weights == state_directory(package) / WEIGHTS
    network.close()


def test_a_package_that_is_loaded_again_runs_the_stitched_network(package):
    write_pool(package)
    blocks = Blocks.of(Package.open(package), state_directory(package))
    network = PagedNetwork(blocks, ChosenBlocks(files=ORIGINAL), 1)
    network.stitch({"image": images(1)})
    network._stitching.join()
    network.close()
    for file in ORIGINAL:
        (package / file).unlink()  # no longer read
    model = load(package)
    assert model.running == "subnet-1"
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
