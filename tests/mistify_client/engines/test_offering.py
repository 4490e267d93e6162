"""Engines as options of a package: measured, offered, switched to, and refused."""

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.machine import machine, runtime
from mistify.package.manifest import NETWORK
from mistify.tflite.resizable import resizable
from mistify_client import load
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import ENGINES, EngineTable, MeasuredEngine
from mistify_client.assembly.executions import Execution
from mistify_client.engines.offering import best_engines, offer_engines
from mistify_client.files import held_alone
from mistify_client.runtime.versions import install_options, open_current, state_directory
from tests.mistify_client.pools import list_files, make_block_package, make_elastic_package, write_pool
from tests.support import elastic_stores

OWN = Engine()
TWO_THREADS = Engine(threads=2)
MAPPED = Engine(execution=Execution.COMPILED, mapped_weights=True)


@pytest.fixture
def package(tmp_path):
    return make_elastic_package(tmp_path / "package")


def measured(engine, latency_ms=1.0, memory_bytes=1e6, start_ms=10.0):
    return MeasuredEngine(engine=engine, latency_ms=latency_ms, start_ms=start_ms, memory_bytes=memory_bytes)


def install(package, /, *engines, **changes):
    """Make engines the options of a package as if they had been measured."""
    version = open_current(package)
    (state_directory(package) / ENGINES).mkdir(parents=True)
    table = EngineTable(package=version.digest, machine=machine(), runtime=runtime(), engines=engines)
    return install_options(package, table.model_copy(update=changes), expected=version.directory)


def images(count=5):
    return elastic_stores.digits()[0][:count]


def switched(model, option):
    """Switch a model, and wait until the option runs."""
    model.switch(option)
    model(images(1))
    model._loaded.network._network._loader.submit(lambda: None).result()
    assert model.running == option


def test_engines_are_measured_and_the_own_one_comes_first(package):
    table, tried = offer_engines(package, [1], seconds=1e-3)
    assert [one.engine for one in tried] == [OWN, MAPPED]
    assert all(one.latency_ms > 0 and one.start_ms > 0 and one.memory_bytes > 0 for one in tried)
    assert table.engines[0].engine == OWN
    assert set(table.engines) <= set(tried)
    assert EngineTable.of(open_current(package), state_directory(package)) == table
    assert [option.id for option in load(package).options] == list(table.ids)


def test_an_engine_that_cannot_run_the_network_is_left_out(tmp_path):
    """`CompiledModel` needs the graph of fixed shapes."""
    package = make_elastic_package(tmp_path / "package")
    (package / NETWORK).write_bytes(resizable((package / NETWORK).read_bytes()))
    list_files(package)
    table, tried = offer_engines(package, [1, 2], seconds=1e-3)
    assert [one.engine for one in tried] == [OWN, TWO_THREADS]
    assert MAPPED not in [one.engine for one in table.engines]


def test_a_network_that_its_own_engine_cannot_run_is_an_error(tmp_path):
    package = make_elastic_package(tmp_path / "package")
    (package / NETWORK).write_bytes(b"no network")
    list_files(package)
    with pytest.raises(MistifyError) as caught:
        offer_engines(package, [1], seconds=1e-3)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert not (state_directory(package) / EngineTable.FILE).exists()


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([measured(TWO_THREADS, 0.5), measured(MAPPED, 1.1, 5e5)], [TWO_THREADS, MAPPED]),
        ([measured(TWO_THREADS, 0.96), measured(MAPPED, 1.1, 9.6e5, 8.5)], []),  # within the precision
        ([measured(TWO_THREADS, 0.5), measured(MAPPED, 0.6, 9.9e5)], [TWO_THREADS]),  # best in nothing
        ([measured(TWO_THREADS, 1.0, 1e6, 5.0)], [TWO_THREADS]),
        ([measured(TWO_THREADS, 1.0, None), measured(MAPPED, 1.0, 5e5)], [MAPPED]),
    ],
)
def test_an_engine_is_offered_if_it_is_the_best_in_a_figure(others, expected):
    assert [one.engine for one in best_engines([measured(OWN), *others])] == [OWN, *expected]


def test_without_known_memory_the_other_figures_decide():
    others = [measured(TWO_THREADS, 0.5, None), measured(MAPPED, 1.1, None)]
    assert [one.engine for one in best_engines([measured(OWN, memory_bytes=None), *others])] == [
        OWN,
        TWO_THREADS,
    ]


@pytest.mark.parametrize("engine", [TWO_THREADS, MAPPED], ids=str)
def test_every_engine_gives_the_outputs_of_the_package(package, engine):
    expected = load(package)(images())
    install(package, measured(OWN), measured(engine, 0.5, 2e6))
    model = load(package)
    own, other = model.options
    assert (own.id, own.kind, own.engine, own.costs.latency_ms) == ("branch-0", "branch", OWN, 1.0)
    assert (other.id, other.kind, other.engine) == ("engine-1", "engine", engine)
    assert (other.costs.latency_ms, other.costs.memory_bytes) == (0.5, 2e6)
    assert other.score == own.score
    np.testing.assert_allclose(model(images()), expected, rtol=1e-5, atol=1e-6)
    switched(model, "engine-1")
    np.testing.assert_allclose(model(images()), expected, rtol=1e-5, atol=1e-6)
    assert load(package).running == "engine-1"


def test_an_app_that_sets_threads_runs_every_engine_with_them(package):
    install(package, measured(OWN), measured(TWO_THREADS, 0.5))
    model = load(package, threads=3)
    assert model._loaded.network.threads == 3
    switched(model, "engine-1")


@pytest.mark.parametrize("changes", [{"machine": "another"}, {"package": "0" * 64}], ids=str)
def test_a_table_of_another_machine_or_version_does_not_count(package, changes):
    install(package, measured(OWN), measured(TWO_THREADS, 0.5), **changes)
    assert [option.id for option in load(package).options] == ["branch-0"]


def test_a_damaged_table_leaves_the_package_as_it_was_shipped(package, caplog):
    install(package, measured(OWN), measured(TWO_THREADS, 0.5))
    (state_directory(package) / EngineTable.FILE).write_text("{}")
    assert [option.id for option in load(package).options] == ["branch-0"]
    assert "remove it, or replace it with mistify engines" in caplog.text


def test_a_package_with_other_options_gets_no_engines(tmp_path, branch_package):
    package = make_block_package(tmp_path / "blocks")
    write_pool(package)
    for directory, reason in ((package, "made on this device"), (branch_package, "branches")):
        with pytest.raises(MistifyError, match=reason) as caught:
            offer_engines(directory, [1], seconds=1e-3)
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_engines_are_measured_by_one_process_at_a_time(package):
    directory = state_directory(package) / ENGINES
    directory.mkdir(parents=True)
    with held_alone(directory, "busy"), pytest.raises(MistifyError, match="already being measured") as caught:
        offer_engines(package, [1], seconds=1e-3)
    assert caught.value.code is ErrorCode.CONFLICT


def test_only_compiled_models_map_weights():
    with pytest.raises(ValueError, match="only it maps weights"):
        Engine(mapped_weights=True)
