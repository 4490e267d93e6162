"""Latencies of packages: measured on this machine or predicted for other hardware, and labelled so."""

from dataclasses import replace

import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.latency import LatencyModel
from mistify.costs.profiles import NominalProfile, by_name, device_profile
from mistify.costs.quantization import Quantization
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import MeasuredLatency
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.measurement.package import _predictions, measured_here


def latency(median_ms: float, threads: int = 1) -> MeasuredLatency:
    return MeasuredLatency(
        median_ms=median_ms, p95_ms=median_ms, runs=1, threads=threads, machine="x86_64", runtime="LiteRT"
    )


@pytest.mark.parametrize(
    ("threads", "precision", "axes"),
    [
        (1, Quantization.NONE, {"latency_ms@host"}),
        (1, Quantization.INT8_QAT, {"latency_ms@host", "latency_ms@host@int8"}),
        (4, Quantization.INT8, {"latency_ms@host@4-threads", "latency_ms@host@4-threads@int8"}),
    ],
)
def test_only_this_machine_is_measured(threads: int, precision: Quantization, axes: set[str]) -> None:
    assert measured_here(latency(2.0, threads), precision) == dict.fromkeys(axes, 2.0)


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("latency_ms@pi", "is judged by the latency on pi predicted from its data sheet, "),
        ("latency_ms@pi@4-threads", "is judged by the latency on pi predicted from its data sheet, "),
        (
            "latency_ms@board@int8",
            "is judged by the latency on board predicted from measurements of its operators",
        ),
        ("latency_ms@host", None),
        ("flops", None),
    ],
)
def test_a_limit_on_other_hardware_is_labelled_as_predicted(axis: str, said: str | None) -> None:
    pi, model = NominalProfile("pi", 5.0, 1.0), LatencyModel(start=0.0, routines={})
    boards = [device_profile("board", model, integer) for integer in (False, True)]
    task = PackageTask.model_construct(
        spec=PackageSpec({axis: 1.0}),
        recipe=TaughtRecipe.model_construct(hardware=by_name([HOST, pi, pi.with_threads(4), *boards])),
    )
    notes = list(_predictions(task))
    if said is None:
        assert not notes
    else:
        (note,) = notes
        assert note.startswith(said)
        assert note.endswith("without measurements there")


@pytest.mark.parametrize(
    ("axis", "precision", "said"),
    [
        ("energy_mj@host", Quantization.NONE, "is judged by the energy on host from published ratios"),
        ("energy_mj@host@int8", Quantization.INT8, "is judged by the energy on host from published ratios"),
        ("energy_mj@board", Quantization.NONE, "is judged by the energy on board from published ratios"),
        (
            "energy_mj@board@int8",
            Quantization.INT8,
            "is judged by the energy fitted to measurements of board",
        ),
    ],
)
def test_a_limit_on_energy_is_labelled_with_its_basis(axis: str, precision: Quantization, said: str) -> None:
    """The board has measured its watts with int8 networks only."""
    model = LatencyModel(start=0.0, routines={})
    board, integers = (device_profile("board", model, integer) for integer in (False, True))
    task = PackageTask.model_construct(
        spec=PackageSpec({axis: 1.0}, quantization=QuantizationConfig(precision=precision)),
        recipe=TaughtRecipe.model_construct(hardware=by_name([HOST, board, replace(integers, watts=2.0)])),
    )
    (note,) = _predictions(task)
    assert note.startswith(said)
