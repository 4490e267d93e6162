"""Options of a package and their costs; `test_subnet_pools.py` tests those of packages with blocks."""

from pathlib import Path

import pytest

from mistify.config.data.metric import Metric
from mistify.costs.energy import Energy, EnergyOrigin
from mistify.errors import MistifyError
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.executions import Execution
from mistify_client.monitor.sensing.costs import expected_on
from mistify_client.runtime.options import Option, OptionCosts, OptionScore, options_of
from tests.mistify_client.monitor.conftest import ACCURACIES, EXPECTED_MS, branch, manifest, three_branches


def opened(manifest: Manifest) -> Package:
    """Return an opened package whose files do not matter."""
    return Package(Path("package"), manifest, "0" * 64)


def test_branches_are_options_with_the_costs_in_the_manifest(tmp_path):
    options = options_of(opened(three_branches(Metric.MSE)), tmp_path)
    assert (options.default, options.threads, options.hardware, options.fastest) == (1, 1, "host", 0)
    assert options.options == tuple(
        Option(
            kind=OptionKind.BRANCH,
            id=f"branch-{number}",
            engine=Engine(execution=Execution.INTERPRETER, threads=1),
            costs=OptionCosts(
                latency_ms=latency_ms,
                p95_ms=2 * latency_ms,
                memory_bytes=memory,
                size_bytes=None,
                axes={
                    "flops": 1e6 * latency_ms,
                    "memory_bytes": memory,
                    "latency_ms@board": 10 * latency_ms,
                },
            ),
            score=OptionScore(accuracy, Metric.MSE),
            blocks=(),
        )
        for number, (latency_ms, accuracy, memory) in enumerate(
            zip(EXPECTED_MS, ACCURACIES, (1e6, 2e6, 3e6), strict=True)
        )
    )


def test_a_package_without_branches_has_one_option(tmp_path):
    options = options_of(opened(manifest()), tmp_path)
    assert [(each.id, each.costs.latency_ms, each.score.value) for each in options.options] == [
        ("branch-0", 10.0, 0.8)
    ]
    assert [options.chosen(number) for number in (-1, 0, 1)] == [0, 0, 0]


def test_places_without_an_option_select_the_default(tmp_path):
    options = options_of(opened(three_branches()), tmp_path)
    assert [options.chosen(place) for place in (-1, 0, 1, 2, 3)] == [1, 0, 1, 2, 1]
    assert [options.at_or_default(place).id for place in (-1, 2)] == ["branch-1", "branch-2"]


def test_an_unknown_id_is_refused_with_the_known_ones(tmp_path):
    options = options_of(opened(three_branches()), tmp_path)
    assert [options.place_of(each) for each in options.ids] == [0, 1, 2]
    with pytest.raises(MistifyError, match='no option "branch-3"; it has branch-0, branch-1 and branch-2'):
        options.place_of("branch-3")


def test_latencies_are_predicted_for_the_hardware_of_the_package(tmp_path):
    package = three_branches()
    options = options_of(opened(package), tmp_path)
    predicted = expected_on("board", options, package)
    assert [each.costs.latency_ms for each in predicted.options] == [10 * each for each in EXPECTED_MS]
    assert predicted.hardware == "board"
    for hardware in ("host", "phone", "host@4-threads"):
        assert expected_on(hardware, options, package) is options


def test_the_energy_of_branches_follows_equation_1(tmp_path):
    """A multiply-add takes 4.6 pJ, and reading a weight of 32 bits 200 times as much."""
    own = branch(4.0, 0.7)
    counted = own.model_copy(update={"achieved": {**own.achieved, "params": 1000.0}})
    first, second = options_of(opened(manifest([counted, own])), tmp_path).options
    assert first.costs.energy == Energy(pytest.approx(4.6e-9 * (4e6 + 200 * 1000)), EnergyOrigin.PUBLISHED)
    assert second.costs.energy is None
