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
from mistify_client.engines import subnets
from mistify_client.engines.offering import best_engines, offer_engines
from mistify_client.files import held_alone
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import open_current, state_directory
from tests.mistify_client.pools import (
    SUBNETS,
    list_files,
    make_block_package,
    make_elastic_package,
    write_pool,
)
from tests.support import elastic_stores
from tests.support.block_stores import images as block_images

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
    offers = offer_engines(package, [1], seconds=1e-3)
    tried = [measured for _, measured in offers]
    assert [one.engine for one in tried] == [OWN, MAPPED]
    assert all(one.latency_ms > 0 and one.start_ms > 0 and one.memory_bytes > 0 for one in tried)
    assert offers[0].option == "branch-0"
    table = EngineTable.of(open_current(package), state_directory(package))
    assert dict(zip(table.ids, table.engines, strict=True)) == {name: one for name, one in offers if name}
    assert [option.id for option in load(package).options] == list(table.ids)


def test_an_engine_that_cannot_run_the_network_is_left_out(tmp_path):
    """`CompiledModel` needs the graph of fixed shapes."""
    package = make_elastic_package(tmp_path / "package")
    (package / NETWORK).write_bytes(resizable((package / NETWORK).read_bytes()))
    list_files(package)
    offers = offer_engines(package, [1, 2], seconds=1e-3)
    assert [measured.engine for _, measured in offers] == [OWN, TWO_THREADS]
    table = EngineTable.of(open_current(package), state_directory(package))
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


def test_a_package_with_other_options_gets_no_engines(branch_package):
    with pytest.raises(MistifyError, match="branches") as caught:
        offer_engines(branch_package, [1], seconds=1e-3)
    assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.fixture
def with_pool(tmp_path):
    package = make_block_package(tmp_path / "blocks")
    write_pool(package)
    return package


def test_each_subnet_is_measured_with_mapped_weights_as_well(with_pool, monkeypatch):
    """The second subnet has an engine that saves memory; both engines of it follow each other."""

    def measure(files, engines, seconds):
        smaller = 0.6 if measure.calls else 1.0
        measure.calls += 1
        return [measured(OWN, 2.0, 1e6), measured(MAPPED, 2.2, smaller * 1e6)]

    measure.calls = 0
    monkeypatch.setattr(subnets, "measured_engines", measure)
    offers = offer_engines(with_pool)
    assert [option for option, _ in offers] == [None, "subnet-0", "subnet-1", "subnet-2"]
    assert [one.engine for _, one in offers] == [MAPPED, OWN, MAPPED, OWN]
    shown = [
        (each.id, each.blocks, each.engine, each.costs.latency_ms, each.costs.memory_bytes)
        for each in load(with_pool).options
    ]
    assert shown == [
        ("subnet-0", SUBNETS[0].files, OWN, 4.0, 1e6),
        ("subnet-1", SUBNETS[1].files, MAPPED, pytest.approx(11.0), 6e5),
        ("subnet-2", SUBNETS[1].files, OWN, 10.0, 1e6),
    ]
    offer_engines(with_pool)  # measures each subnet once, although one has two engines now
    assert measure.calls == 4


def test_the_memory_of_a_subnet_that_was_not_measured_follows_from_those_that_were(with_pool):
    sizes = [option.costs.size_bytes for option in load(with_pool).options]
    write_pool(with_pool, [SUBNETS[0], SUBNETS[1].model_copy(update={"memory_bytes": 3 * sizes[1]})])
    assert [option.costs.memory_bytes for option in load(with_pool).options] == pytest.approx(
        [3 * sizes[0], 3 * sizes[1]]
    )


def test_another_search_keeps_what_was_measured(with_pool):
    def with_engine(engine, latency_ms, memory_bytes):
        changes = {"engine": engine, "latency_ms": latency_ms, "memory_bytes": memory_bytes}
        return SUBNETS[1].model_copy(update=changes)

    before = write_pool(with_pool, [SUBNETS[0], with_engine(MAPPED, 12.0, 6e5), with_engine(OWN, 10.0, 1e6)])
    found = before.model_copy(
        update={"entries": (SUBNETS[0], SUBNETS[1].model_copy(update={"latency_ms": 5.0}))}
    )
    kept = found.with_measured(before).entries
    assert kept == (SUBNETS[0], with_engine(MAPPED, 6.0, 6e5), with_engine(OWN, 5.0, 1e6))
    assert found.with_measured(None) == found


def test_subnets_are_measured_as_they_run(with_pool):
    offers = offer_engines(with_pool, seconds=1e-3)
    assert [one.engine for _, one in offers].count(MAPPED) == len(SUBNETS)
    assert all(one.latency_ms > 0 and one.memory_bytes > 0 for _, one in offers)


def test_a_subnet_gives_the_same_outputs_with_mapped_weights(with_pool):
    entries = [SUBNETS[0].model_copy(update={"engine": engine}) for engine in (OWN, MAPPED)]
    write_pool(with_pool, entries=tuple(entries))
    model = load(with_pool)
    expected = model(block_images(1))
    model.switch("subnet-1" if model.running == "subnet-0" else "subnet-0")
    model(block_images(1))
    model._loaded.network._network._loader.submit(lambda: None).result()
    np.testing.assert_allclose(model(block_images(1)), expected, rtol=1e-5, atol=1e-6)


def test_threads_of_subnets_are_those_of_their_search(with_pool):
    with pytest.raises(MistifyError, match="mistify adapt") as caught:
        offer_engines(with_pool, [2])
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_engines_are_measured_by_one_process_at_a_time(package):
    directory = state_directory(package) / ENGINES
    directory.mkdir(parents=True)
    with held_alone(directory, "busy"), pytest.raises(MistifyError, match="already being measured") as caught:
        offer_engines(package, [1], seconds=1e-3)
    assert caught.value.code is ErrorCode.CONFLICT


def test_only_compiled_models_map_weights():
    with pytest.raises(ValueError, match="only it maps weights"):
        Engine(mapped_weights=True)
