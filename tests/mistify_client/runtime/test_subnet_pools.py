"""Pools of subnets: which pool applies to a package, and the options that it offers."""

import threading

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK, Manifest
from mistify_client import load
from mistify_client.assembly.engine import Engine
from mistify_client.runtime.options import OptionScore
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.pools import (
    FAST,
    SUBNETS,
    fast_scores,
    make_block_package,
    original_scores,
    with_engine,
    write_pool,
)
from tests.support.block_stores import ORIGINAL, images


@pytest.fixture
def package(tmp_path):
    return make_block_package(tmp_path / "package")


def test_the_options_are_the_subnets_of_the_pool(package):
    write_pool(package)
    model = load(package)
    sizes = [sum((package / file).stat().st_size for file in entry.files) for entry in SUBNETS]
    assert [
        (each.id, each.kind, each.costs.latency_ms, each.score, each.costs.size_bytes)
        for each in model.options
    ] == [
        ("subnet-0", "subnet", 4.0, OptionScore(0.7, Metric.AGREEMENT), sizes[0]),
        ("subnet-1", "subnet", 10.0, OptionScore(0.9, Metric.AGREEMENT), sizes[1]),
    ]
    assert [each.blocks for each in model.options] == [FAST, ORIGINAL]
    assert (model.wanted, model.running) == ("subnet-1", "subnet-1")
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)


@pytest.mark.parametrize(("budget_ms", "default"), [(20.0, 1), (9.0, 0), (1.0, 0)])
def test_the_best_subnet_within_the_budget_runs_first(package, budget_ms, default):
    write_pool(package, budget_ms=budget_ms)
    model = load(package)
    assert (model.wanted, model.running) == (f"subnet-{default}",) * 2
    np.testing.assert_allclose(
        model(images(2)), [fast_scores(package), original_scores()][default], atol=1e-5
    )


def of_another_store(package):
    write_pool(package, store="0" * 64)


def of_no_store(package):
    write_pool(package)
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {NETWORK: manifest.files[NETWORK]}}).save(package)
    (package / "blocks.json").unlink()


def empty(package):
    write_pool(package, entries=())


def of_before_it_was_tuned(package):
    write_pool(package)
    Manifest.load(package).model_copy(update={"tuned_from": "0" * 64}).save(package)


@pytest.mark.parametrize(
    "prepare",
    [lambda package: None, of_another_store, of_no_store, empty, of_before_it_was_tuned],
)
def test_the_whole_network_runs_without_a_pool(package, prepare):
    prepare(package)
    (package / ORIGINAL[1]).unlink()  # which only subnets need
    model = load(package)
    assert [(each.id, each.costs.latency_ms) for each in model.options] == [("branch-0", 0.1)]
    assert (model.branches, model.wanted, model.running) == ((), "branch-0", "branch-0")
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
    with pytest.raises(MistifyError, match='no option "subnet-0"; it has branch-0'):
        model.switch("subnet-0")


def damaged(path):
    path.write_text('{"format_version": 1}')


def unreadable(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [damaged, unreadable])
def test_the_whole_network_runs_with_a_damaged_pool_and_the_log_says_how_to_fix_it(package, damage, caplog):
    write_pool(package)
    path = state_directory(package) / "pool.json"
    damage(path)
    model = load(package)
    np.testing.assert_allclose(model(images(2)), original_scores(), atol=1e-5)
    assert model.options[0].kind == "branch"
    assert str(path) in caplog.text
    assert "remove it, or replace it with mistify adapt" in caplog.text


def join_taking_over(model):
    """Run an inference, so that the model notices a change, and wait until it is loaded."""
    model(images(2))
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()


def test_a_new_pool_is_adopted(package):
    write_pool(package)
    model = load(package)
    model.switch("subnet-1")
    pool = install_options(package, write_pool(package, SUBNETS[:1]), expected=package)
    assert (pool.generation, pool.entries) == (1, SUBNETS[:1])
    join_taking_over(model)
    np.testing.assert_array_equal(model(images(2)), fast_scores(package))
    assert [each.blocks for each in model.options] == [FAST]
    assert (model.wanted, model.running) == ("subnet-0", "subnet-0")


def test_an_unannounced_pool_is_announced_by_its_first_reader(package):
    """Its writer was killed. Running and new apps agree on the options."""
    write_pool(package)
    model = load(package)
    model.switch("subnet-0")
    write_pool(package, SUBNETS[::-1], generation=1)
    assert (len(model.options), model.wanted) == (2, "subnet-0")
    fresh = load(package)
    assert [each.blocks for each in fresh.options] == [ORIGINAL, FAST]
    assert Switchboard.open(state_directory(package)).generation == 1
    assert fresh.wanted == "subnet-1"  # the default, not a choice among other subnets
    join_taking_over(model)
    assert (model.options, model.wanted) == (fresh.options, "subnet-1")


def test_the_pool_of_another_version_is_not_installed(package, tmp_path):
    pool = write_pool(package)
    (state_directory(package) / "pool.json").unlink()
    with pytest.raises(MistifyError, match="has another version") as caught:
        install_options(package, pool, expected=tmp_path / "another")
    assert caught.value.code is ErrorCode.CONFLICT
    assert load(package).options[0].kind == "branch"


def test_a_subnet_runs_with_the_threads_that_the_pool_was_measured_with(package):
    write_pool(package, with_engine(Engine(threads=2)))
    assert load(package)._loaded.network.threads == 2
    assert load(package, threads=1)._loaded.network.threads == 1
